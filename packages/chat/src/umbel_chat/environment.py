"""The environment that chat templates are compiled and rendered in.

It equals that of transformers (transformers/utils/chat_template_utils.py).  Rendering processes
import this module, so it imports nothing but jinja2 and what detects the content format.
"""

import json
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import NoReturn

from jinja2 import TemplateError, meta, nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment, modifies_known_mutable

from umbel_chat.content_format import ContentFormat, detect_content_format


class CompiledTemplate:
    """A template, compiled in this process; it has no state and may render on several threads.

    `now` is the local time for templates that print the date.  Raises whatever jinja2 and Python's
    compiler raise for a source that is not valid.
    """

    def __init__(self, source: str, now: Callable[[], datetime] = datetime.now) -> None:
        environment = make_environment(now)
        parsed = environment.parse(source)
        self.used: frozenset[str] = frozenset(meta.find_undeclared_variables(parsed))
        """The names of the variables that the template reads."""
        self.content_format: ContentFormat = detect_content_format(parsed)
        """The form of content that the template was written for."""
        self._template = environment.from_string(source)
        # Every rendering copies them, which takes long of the chain of mappings that they come as.
        self._template.globals = dict(self._template.globals)

    def render(self, variables: Mapping[str, object]) -> str:
        """Render the template; what it does not get along with raises in any way."""
        return self._template.render(variables)


class GenerationBlocks(Extension):
    """The tag `{% generation %}`, which marks what the model said for training; renders its body."""

    tags = {"generation"}  # noqa: RUF012 (jinja2 declares it so)

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body, lineno=line)


class ChatEnvironment(ImmutableSandboxedEnvironment):
    """The sandbox, which keeps what is given to a template from being changed by any way round."""

    def is_safe_attribute(self, obj: object, attr: str, value: object) -> bool:
        """Refuse the class what it refuses its instances: `dict.update(message, role="x")`."""
        if obj is dict and modifies_known_mutable({}, attr):
            return False
        return super().is_safe_attribute(obj, attr, value)


def make_environment(now: Callable[[], datetime]) -> ChatEnvironment:
    """Make the environment that chat templates are written for."""
    environment = ChatEnvironment(
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=[GenerationBlocks, "jinja2.ext.loopcontrols"],
    )
    environment.filters["tojson"] = to_json
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = lambda format: now().strftime(format)  # noqa: A006
    return environment


def to_json(
    value: object,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Write a value as JSON, without the escapes for HTML that Jinja's own filter makes."""
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )


def raise_exception(message: str) -> NoReturn:
    """Refuse a conversation, from inside a template."""
    raise TemplateError(message)


def reason_of(error: BaseException) -> str:
    """Give the template's own words in a chain of errors, or else what the error says."""
    current: BaseException | None = error
    while current is not None:
        if isinstance(current, TemplateError):
            return str(current)
        current = current.__cause__ or current.__context__
    return str(error) or type(error).__name__
