"""What a chat template cannot do, and what a failing one makes of a request."""

import pytest
from jinja2 import TemplateError

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
