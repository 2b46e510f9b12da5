"""What a chat template cannot do, and what a failing one makes of a request."""

import contextlib
import copy
import re
from datetime import datetime

import pytest
from jinja2 import TemplateError

from umbel_chat.environment import make_environment
from umbel_chat.errors import ChatTemplateError, InvalidChatError
from umbel_chat.template import ChatTemplate

CONVERSATION: list[dict[str, object]] = [{"role": "user", "content": "hi"}]

ESCAPES = [
    "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "{{ ''['__class__']['__mro__'][1]['__subclasses__']() }}",
    "{{ (''|attr('__class__'))|attr('__mro__') }}{{ (''|attr('__class__')).__mro__[0] }}",
    "{{ messages.__class__.__base__.__subclasses__() }}",
    "{{ raise_exception.__globals__['json'] }}",
    "{{ strftime_now.__globals__['json'] }}",
    "{{ strftime_now.__closure__[0] }}",
    "{{ lipsum.__globals__['os'].popen('id').read() }}",
    "{{ cycler.__init__.__globals__.os.environ }}",
    "{{ joiner.__init__.__globals__ }}",
    "{{ namespace.__init__.__globals__ }}",
    "{{ self.__init__.__globals__ }}",
    "{{ self._TemplateReference__context.environment.globals }}",
    "{{ '{0.__class__.__mro__}'.format(1) }}",
    "{{ '{a.__class__.__mro__}'.format_map({'a': 1}) }}",
    "{{ ('{0.__class__.__mro__}'|attr('format'))(1) }}",
    "{% set f = '{0.__class__.__mro__}'.format %}{{ f(1) }}",
    "{{ ([''] | map(attribute='__class__.__mro__') | first)[1] }}",
    "{{ (messages | map('attr', '__class__') | first)() }}",
    "{{ messages.append(1) }}",
    "{{ messages[0].update(role='system') }}",
    "{% do messages.clear() %}",
    "{% include '/etc/passwd' %}",
    "{% import 'os' as os %}",
    "{{ range(10 ** 12) | list }}",
    "{{ open('/etc/passwd') }}",
]


@pytest.mark.parametrize("source", ESCAPES)
def test_a_template_cannot_leave_the_sandbox(source: str) -> None:
    with pytest.raises((InvalidChatError, ChatTemplateError)):
        ChatTemplate(source).render(CONVERSATION)
    assert CONVERSATION == [{"role": "user", "content": "hi"}]


# Each fails or gives something harmless.  Most have been published, for jinja2 of some version.
ATTEMPTS = {
    "attributes": """
{{ ''|attr('__class__') }}
{{ ''|attr('\\x5f\\x5fclass\\x5f\\x5f') }}
{{ ''['__cla' ~ 'ss__'] }}{{ ''[['__class', '__']|join] }}
{{ (1).__class__ }}{{ none.__class__ }}{{ [].__class__.__base__ }}
{{ ''.join.__self__ }}{{ ''.join.__qualname__ }}{{ 'x'.encode().decode.__self__ }}
{{ messages.append.__self__ }}
{{ messages.__init__ }}{{ messages.__len__() }}
{{ messages[0].items.__self__ }}{{ messages[0].items().mapping.__class__ }}
{{ dict.__subclasses__() }}
{{ dict.mro() }}{{ dict|attr('mro') }}{{ range.mro() }}
{{ undefined_name.__init__.__globals__ }}
{{ undefined_name._fail_with_undefined_error.__globals__ }}
{{ x.__class__ if x is not defined }}""",
    "str.format": """
{{ ('{0.__class__}'|attr('for' ~ 'mat'))(1) }}
{{ ['{0.__class__}']|map('format', 1)|list }}
{% for f in ['{0.__class__.__init__.__globals__}'.format] %}{{ f(messages) }}{% endfor %}
{{ dict(a='{0.__class__}'.format)['a'](1) }}{{ dict(a='{0.__class__}'.format).a(1) }}
{% macro m(f) %}{{ f(1) }}{% endmacro %}{{ m('{0.__class__}'.format) }}
{% call('{0.__class__}'.format) %}{% endcall %}
{{ ['{0.__class__}'.format]|map('attr', '__self__')|list }}
{{ ('{a.__class__}'|attr('format_map'))({'a': 1}) }}
{{ ('{0.__class__}'|escape).format(1) }}{{ ('{0.__class__}'|safe).format(1) }}
{{ ('{0.__class__}'|escape|attr('format'))(1) }}
{{ '%(a)s'|format(a=lipsum.__globals__) }}{{ ('%s'|safe) % lipsum.__globals__ }}
{% filter format(1) %}{0.__class__}{% endfilter %}""",
    "globals": """
{{ lipsum.__globals__ }}{{ lipsum|attr('__globals__') }}
{{ lipsum.__globals__.os.popen('id').read() }}
{{ lipsum.__code__.co_consts }}
{{ lipsum.__kwdefaults__ }}{{ lipsum.func_globals }}{{ lipsum.__builtins__ }}
{{ cycler('a').__class__ }}{{ cycler.next.__globals__ }}{{ cycler.mro() }}
{{ joiner().__init__.__globals__ }}
{{ namespace.__init__.__globals__ }}
{% set ns = namespace(a=1) %}{{ ns.__dict__ }}{{ ns._Namespace__attrs }}
{{ namespace(m=1)|attr('_Namespace__attrs') }}
{% set ns = namespace() %}{% set ns.__class__ = 1 %}{{ ns.__class__ }}
{{ raise_exception.__code__ }}{{ raise_exception.__module__ }}
{{ strftime_now.__closure__ }}{{ strftime_now|attr('__closure__') }}
{{ self.__class__ }}{{ self|attr('_TemplateReference__context') }}
{% block b %}{{ self.b.__globals__ }}{{ self.b._context }}{{ self.b._stack }}{% endblock %}
{% for x in [1] %}{{ loop._iterator }}{{ loop.__init__.__globals__ }}{% endfor %}
{% for x in [1] %}{{ loop._undefined }}{{ loop.__class__ }}{% endfor %}
{% macro m() %}{% endmacro %}{{ m._func.__globals__ }}
{{ config }}{{ request }}{{ environment }}{{ context }}{{ __builtins__ }}
{{ url_for.__globals__ }}
{{ getattr('', '__class__') }}
{{ type('') }}
{{ __import__('os') }}
{{ (lambda: 1)() }}
{{ [x for x in messages] }}
{% import 'os' as os %}
{% from 'os' import system %}
{% include self %}
{% extends messages %}""",
    "generators": """
{{ (messages|map('upper')).gi_frame }}{{ (messages|map('upper'))|attr('gi_frame') }}
{{ (messages|select).gi_code.co_consts }}
{{ (messages|batch(1)).gi_frame.f_builtins }}
{{ (messages|map(attribute='role')).gi_yieldfrom }}""",
    "filters": """
{{ {'a b=c': lipsum.__globals__}|xmlattr }}
{{ {'__class__': 1}|xmlattr }}
{{ [1]|map(attribute='__class__')|list }}{{ [[1]]|map(attribute='0.__class__')|list }}
{{ [1]|groupby('__class__') }}
{{ [1]|sort(attribute='__class__') }}{{ [1]|unique(attribute='__class__')|list }}
{{ [1]|selectattr('__class__')|list }}{{ [1]|rejectattr('__class__.__mro__')|list }}
{{ [1]|sum(attribute='__class__') }}
{{ [1]|max(attribute='__class__') }}
{% set x = 'a' %}{% filter attr('__class__') %}{{ x }}{% endfilter %}
{{ messages|tojson|attr('__class__') }}
{{ 1 is __class__ }}
{{ 1|default(lipsum.__globals__, true) }}""",
    "changes": """
{% set a = messages.append %}{{ a(1) }}
{% with a = messages.append %}{{ a(1) }}{% endwith %}
{{ (messages|attr('append'))(1) }}
{{ messages.extend([1]) }}
{{ messages.insert(0, 1) }}
{{ messages.pop() }}
{{ messages.remove(messages[0]) }}
{{ messages.sort() }}
{{ messages.reverse() }}
{{ messages.clear() }}
{{ messages.__setitem__(0, 1) }}
{{ messages.__delitem__(0) }}
{{ messages.__iadd__([1]) }}
{{ messages[0].update({'a': 1}) }}
{{ messages[0].pop('role') }}
{{ messages[0].popitem() }}
{{ messages[0].setdefault('x', 1) }}
{{ messages[0].clear() }}
{{ messages[0].keys().mapping.update(a=1) }}
{{ (messages|first).update(a=1) }}
{{ (messages|sort(attribute='role'))[0].update(a=1) }}
{% for u in messages|map(attribute='update') %}{{ u(role='x') }}{% endfor %}
{{ dict.update(messages[0], a=1) }}
{{ (dict|attr('update'))(messages[0], a=1) }}
{{ dict['update'](messages[0], a=1) }}
{{ dict.pop(messages[0], 'role') }}
{{ dict.clear(messages[0]) }}
{% set messages.x = 1 %}
{% set ns = namespace(m=messages) %}{% set ns.m = ns.m + [1] %}""",
}
SOURCES = [source for sources in ATTEMPTS.values() for source in sources.strip().splitlines()]

OF_PYTHON = re.compile(r"<class|<module|<code|<frame|<function|built-in|uid=|object at 0x")


@pytest.mark.parametrize("source", SOURCES)
def test_nothing_of_python_comes_out_of_the_sandbox(source: str) -> None:
    conversation = copy.deepcopy(CONVERSATION)
    template_environment = make_environment(datetime.now)
    try:
        rendered = template_environment.from_string(source).render(messages=conversation)
    except Exception as error:
        rendered = str(error)
    assert OF_PYTHON.search(rendered) is None
    assert conversation == CONVERSATION


def test_what_the_sandbox_refuses_of_a_class_is_what_it_refuses_of_instances() -> None:
    template = ChatTemplate(
        "{{ dict(a=1).a }}{{ dict.fromkeys(['x'], 2) }}{{ dict(a=1).get('a') }}"
    )
    assert template.render(CONVERSATION) == "1{'x': 2}1"


@pytest.mark.parametrize("name", ["__class__", "__init__", "__globals__", "_private", "mro"])
def test_internals_of_what_a_template_is_given_are_undefined(name: str) -> None:
    source = f"{{{{ messages[0]['{name}'] is defined }}}}{{{{ messages.{name} is defined }}}}"
    assert ChatTemplate(source).render(CONVERSATION) == "FalseFalse"


def test_what_a_client_writes_is_never_a_template() -> None:
    template = ChatTemplate("{% for message in messages %}{{ message.content }}{% endfor %}{{ x }}")
    written = "{{ 7 * 7 }}{% raw %}{{ ''.__class__ }}"
    conversation: list[dict[str, object]] = [{"role": "user", "content": written}]
    assert template.render(conversation, template_kwargs={"x": written}) == written * 2


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("{{ raise_exception('Only two roles, please.') }}", "Only two roles, please."),
        ("{{ messages[0].missing.field }}", "'dict object' has no attribute 'missing'"),
        ("{{ missing() }}", "'missing' is undefined"),
        ("{{ 1 / 0 }}", "division by zero"),
        ("{{ messages[0].content + 1 }}", 'can only concatenate str (not "int") to str'),
        ("{{ missing | tojson }}", "Object of type Undefined is not JSON serializable"),
        ("{{ ''.__class__.x }}", "access to attribute '__class__' of 'str' object is unsafe."),
        ("{{ range(200000) }}", "Range too big. The sandbox blocks ranges larger than"),
    ],
)
def test_a_template_that_fails_refuses_the_request_in_its_own_words(
    source: str, message: str
) -> None:
    with pytest.raises(InvalidChatError) as caught:
        ChatTemplate(source).render(CONVERSATION)
    assert str(caught.value).startswith(message)
    assert caught.value.parameter is None


def test_a_template_s_own_words_are_found_behind_another_error() -> None:
    def fail() -> None:
        try:
            raise TemplateError("Only users may speak.")
        except TemplateError as error:
            raise RuntimeError("rendering failed") from error

    with pytest.raises(InvalidChatError, match=r"^Only users may speak\.$"):
        ChatTemplate("{{ fail() }}").render(CONVERSATION, template_kwargs={"fail": fail})


def test_values_nested_too_deeply_for_json_refuse_the_request() -> None:
    nested: list[object] = []
    for _ in range(100_000):
        nested = [nested]
    with pytest.raises(InvalidChatError, match="recursion"):
        ChatTemplate("{{ x | tojson }}").render(CONVERSATION, template_kwargs={"x": nested})


def test_a_template_that_calls_itself_for_ever_refuses_the_request() -> None:
    source = "{% macro again() %}{{ again() }}{% endmacro %}{{ again() }}"
    with pytest.raises(InvalidChatError, match="recursion"):
        ChatTemplate(source).render(CONVERSATION)


# What clients say in place of what a template expects.


def nested(depth: int, kind: str = "list") -> object:
    value: object = 1
    for _ in range(depth):
        value = [value] if kind == "list" else {"a": value}
    return value


USES = (
    "{{ x | tojson }}",
    "{{ x }}",
    "{{ x | string | length }}",
    "{{ x == x }}{{ x | pprint }}",
    "{{ x | tojson(indent=4) }}",
)


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("kind", ["list", "dict"])
@pytest.mark.parametrize("depth", [100, 900, 5_000, 100_000])
def test_deep_arguments_are_rendered_or_refused(use: str, kind: str, depth: int) -> None:
    template = ChatTemplate(use)
    with contextlib.suppress(InvalidChatError):
        template.render(CONVERSATION, template_kwargs={"x": nested(depth, kind)})


def test_an_argument_does_not_hide_what_templates_rely_on() -> None:
    source = (
        "{{ strftime_now('%%') }}{{ range(2) | list }}{{ namespace(a=1).a }}{{ dict(a=1).a }}"
        "{% for x in [1] %}{{ loop.index }}{% endfor %}{{ messages | length }}"
    )
    hiding = dict.fromkeys(
        ("strftime_now", "range", "namespace", "dict", "loop", "x", "self", "raise_exception"), 0
    )
    template = ChatTemplate(source)
    assert template.render(CONVERSATION, template_kwargs=hiding) == "%[0, 1]1111"
    with pytest.raises(InvalidChatError, match=r"^no$"):
        ChatTemplate("{{ raise_exception('no') }}").render(CONVERSATION, template_kwargs=hiding)


def test_keys_of_any_name_are_only_keys() -> None:
    messages: list[dict[str, object]] = [
        {"role": "user", "content": "hi", "__class__": "c", "items": "i", "keys": 1, "": None}
    ]
    source = "{{ messages[0]['__class__'] }}{{ messages[0]['items'] }}{{ messages[0] | length }}"
    assert ChatTemplate(source).render(messages) == "ci6"
    with pytest.raises(InvalidChatError):
        ChatTemplate("{{ messages[0].__class__.__mro__ }}").render(messages)
