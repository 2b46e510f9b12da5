"""What a request says of its own rendering: documents, arguments, a template; and how it is cut."""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import pytest

from umbel_chat import ChatLlm, ChatModel, ChatRequest, ChatTemplate, InvalidChatError
from umbel_chat.processes import KEPT_FACTS, RenderingProcesses
from umbel_text import TextLlm, TextModel

Ask = Callable[..., ChatRequest]

UNTRUSTED = (
    "Chat template is passed with request, but --trust-request-chat-template is not set. Refused "
    "request with untrusted chat template."
)
OWN = "{{ bos_token }}<{{ messages[0].content }}>"


@pytest.fixture
def make(text_model: TextModel) -> Callable[..., ChatLlm]:
    """Make a ChatLlm without an engine."""

    def make(
        template: str = "{{ messages[0].content }}", trusted: bool = False, **fields: Any
    ) -> ChatLlm:
        special = {"bos_token": "<|end|>"}
        model = ChatModel(
            "m", ChatTemplate(template, special), trust_request_template=trusted, **fields
        )
        return ChatLlm(model, TextLlm(text_model))

    return make


# Documents and arguments.


DOCUMENTS = (
    "{% for document in documents or [] %}({{ document.title }}: {{ document.text }}){% endfor %}"
)


def test_documents_reach_the_template(make: Callable[..., ChatLlm], ask: Ask) -> None:
    chat_llm = make(DOCUMENTS)
    documents = [{"title": "a", "text": "x"}, {"title": "b", "text": "y"}]
    assert chat_llm.render(ask(documents=documents)) == "(a: x)(b: y)"
    assert chat_llm.render(ask(documents=[])) == ""
    assert chat_llm.render(ask()) == ""


def test_documents_of_the_request_come_before_those_among_its_arguments(
    make: Callable[..., ChatLlm], ask: Ask
) -> None:
    chat_llm = make(DOCUMENTS)
    arguments = {"documents": [{"title": "c", "text": "z"}]}
    assert chat_llm.render(ask(template_arguments=arguments)) == "(c: z)"
    own = [{"title": "a", "text": "x"}]
    assert chat_llm.render(ask(documents=own, template_arguments=arguments)) == "(a: x)"


@pytest.mark.parametrize("value", [None, "auto"])
def test_an_argument_that_asks_for_nothing_leaves_the_model_s(
    make: Callable[..., ChatLlm], ask: Ask, value: object
) -> None:
    chat_llm = make("{{ mood }}", template_arguments={"mood": "kind"})
    assert chat_llm.render(ask(template_arguments={"mood": value})) == "kind"
    assert chat_llm.render(ask(template_arguments={"mood": False})) == "False"


# A template of the request's own.


@pytest.mark.parametrize("source", [OWN, "", "{% broken"])
def test_a_template_of_a_request_is_refused_unless_requests_are_trusted(
    make: Callable[..., ChatLlm], ask: Ask, monkeypatch: pytest.MonkeyPatch, source: str
) -> None:
    chat_llm = make()
    monkeypatch.setattr(RenderingProcesses, "run", pytest.fail)
    for work in (chat_llm.render, chat_llm.read, chat_llm.lower):
        with pytest.raises(InvalidChatError) as caught:
            work(ask(chat_template=source))
        assert (str(caught.value), caught.value.parameter) == (UNTRUSTED, None)
    with pytest.raises(InvalidChatError) as caught:
        chat_llm.render(ask(template_arguments={"chat_template": OWN}))
    assert str(caught.value) == UNTRUSTED


def test_a_trusted_template_takes_the_place_of_the_model_s(
    make: Callable[..., ChatLlm], ask: Ask
) -> None:
    chat_llm = make("ours", trusted=True)
    assert chat_llm.render(ask(chat_template=OWN)) == "<|end|><Hi>"
    # The next request has the model's again, and so has one whose template is empty.
    assert chat_llm.render(ask()) == "ours"
    assert chat_llm.render(ask(chat_template="")) == "ours"


def test_a_trusted_template_may_stand_among_the_arguments(
    make: Callable[..., ChatLlm], ask: Ask
) -> None:
    chat_llm = make("ours", trusted=True)
    among = {"chat_template": OWN}
    assert chat_llm.render(ask(template_arguments=among)) == "<|end|><Hi>"
    both = ask(chat_template="first", template_arguments=among)
    assert chat_llm.render(both) == "first"
    assert chat_llm.render(ask(template_arguments={"chat_template": None})) == "ours"
    with pytest.raises(InvalidChatError, match="chat_template must be a string"):
        chat_llm.render(ask(template_arguments={"chat_template": ["x"]}))


def test_a_model_without_a_template_takes_a_trusted_one(text_model: TextModel, ask: Ask) -> None:
    model = ChatModel("m", ChatTemplate(None), trust_request_template=True)
    chat_llm = ChatLlm(model, TextLlm(text_model))
    assert chat_llm.render(ask(chat_template="{{ messages[0].content }}")) == "Hi"
    with pytest.raises(InvalidChatError, match="default chat template is no longer allowed"):
        chat_llm.render(ask())


def test_the_form_of_content_is_what_the_request_s_template_wants(
    make: Callable[..., ChatLlm], ask: Ask
) -> None:
    loops = (
        "{% for message in messages %}"
        "{% for part in message.content %}[{{ part.text }}]{% endfor %}"
        "{% endfor %}"
    )
    chat_llm = make(trusted=True)
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert chat_llm.render(ask(parts)) == "a\nb"
    assert chat_llm.render(ask(parts, chat_template=loops)) == "[a][b]"


@pytest.mark.parametrize("source", ["{% broken", "{{ 1 +", "{% if %}" * 3, "{{ '" + "(" * 10_000])
def test_a_template_that_does_not_compile_is_the_request_s_fault(
    make: Callable[..., ChatLlm], ask: Ask, source: str
) -> None:
    chat_llm = make(trusted=True)
    with pytest.raises(InvalidChatError) as caught:
        chat_llm.lower(ask(chat_template=source))
    assert str(caught.value)
    assert caught.value.parameter is None


def test_it_is_refused_in_the_words_of_jinja(make: Callable[..., ChatLlm], ask: Ask) -> None:
    words = "Expected an expression, got 'end of statement block'"
    with pytest.raises(InvalidChatError, match=words):
        make(trusted=True).lower(ask(chat_template="{% if %}"))


def test_a_request_s_template_is_as_confined_as_the_model_s(
    make: Callable[..., ChatLlm], ask: Ask
) -> None:
    chat_llm = make(trusted=True)
    with pytest.raises(InvalidChatError, match="unsafe"):
        chat_llm.render(ask(chat_template="{{ messages.__class__.__mro__ }}"))


@pytest.fixture
def described(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The templates that a process was asked about, in their order."""
    described: list[str] = []

    def run(self: RenderingProcesses, source: str, variables: Mapping[str, object] | None) -> str:
        if variables is not None:
            return "rendered"
        described.append(source)
        return '{"used":["messages"],"content_format":"string"}'

    monkeypatch.setattr(RenderingProcesses, "run", run)
    return described


def test_what_a_template_reads_is_not_asked_again_when_it_comes_again(
    make: Callable[..., ChatLlm], ask: Ask, described: list[str]
) -> None:
    chat_llm = make(trusted=True)
    for _ in range(3):
        assert chat_llm.render(ask(chat_template=OWN)) == "rendered"
        assert chat_llm.read(ask(chat_template=OWN))
        chat_llm.lower(ask())
    assert described == [OWN]


def test_only_the_last_templates_stay_known(
    make: Callable[..., ChatLlm], ask: Ask, described: list[str]
) -> None:
    chat_llm = make(trusted=True)
    sources = [f"{index}{OWN}" for index in range(KEPT_FACTS + 1)]
    for source in sources:
        chat_llm.render(ask(chat_template=source))
    del described[:]
    for source in sources[1:]:
        chat_llm.render(ask(chat_template=source))
    assert described == []
    chat_llm.render(ask(chat_template=sources[0]))
    assert described == [sources[0]]


# Truncation.


def test_a_rendered_prompt_is_cut_like_any_other_text(
    make: Callable[..., ChatLlm], ask: Ask
) -> None:
    chat_llm = make()

    def kept(**fields: object) -> str:
        lowered = chat_llm.lower(ask("abcdef", **fields), 1)
        # The text stays whole: it is what the request is told of its prompt.
        assert lowered.text.request.prompt == "abcdef"
        return chat_llm.text.model.tokenizer.decode(lowered.text.prompt_token_ids)

    assert kept() == "abcdef"
    assert kept(truncate_prompt_tokens=2) == "ef"
    assert kept(truncate_prompt_tokens=2, truncation_side="right") == "ab"
    short = msgspec.structs.replace(chat_llm.text.model, max_model_len=4)
    chat_llm = ChatLlm(chat_llm.model, TextLlm(short))
    assert kept(truncate_prompt_tokens=-1) == "def"


def test_offsets_are_places_in_the_rendered_prompt(make: Callable[..., ChatLlm], ask: Ask) -> None:
    chat_llm = make("<user>{{ messages[0].content }}")
    lowered = chat_llm.lower(ask("ab", return_token_offsets=True))
    assert lowered.text.token_offsets == [(0, 6), (6, 7), (7, 8)]
    assert chat_llm.lower(ask("ab")).text.token_offsets is None
