"""Answers through chat templates that vLLM comes with, and back through umbel's parsers."""

import json
import os
import tomllib
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from umbel_chat.errors import InvalidChatError
from umbel_chat.messages import read_messages
from umbel_chat.parsers.detection import REASONING_RULES, TOOL_RULES, ModelFacts, detect
from umbel_chat.template import ChatTemplate
from umbel_engine.sample_model import user_cache

from ..chat.parsers.test_transcripts import CORPORA, Message, merged, message_of, parse
from ..chat.parsers.tokens import tokenizer_with
from ..chat.parsers.transcripts import TOOLS, Corpus, Transcript
from ..upstream.environment import find_source
from .example_templates import ANSWERS, EXAMPLES, REASONING, RUST_TESTS, Example

ROOT = Path(__file__).parents[2]
ENGINE_PYTHON = ROOT / ".venv-engine/bin/python"

QUESTION = "What is it like in Paris?"
DEFINITIONS = [
    {
        "type": "function",
        "function": {"name": name, "description": f"Calls {name}.", "parameters": parameters},
    }
    for name, parameters in TOOLS.items()
]

OURS = tuple(example for example in EXAMPLES if example.tool)
CASES = [
    pytest.param(example, answer, id=f"{example.name}-{answer.name}")
    for example in OURS
    for answer in ANSWERS
    if example.thinking is not None or not answer.reasoning
]


@pytest.fixture(scope="module")
def source() -> Path:
    """The source distribution of vLLM, unpacked."""
    if given := os.environ.get("UMBEL_VLLM_SOURCE"):
        return Path(given)
    plan = tomllib.loads((ROOT / "tests/upstream/modules.toml").read_text())
    folder = user_cache() / "upstream-tests"
    folder.mkdir(parents=True, exist_ok=True)
    return find_source(plan["vllm"], folder, ENGINE_PYTHON)


@cache
def template_in(path: Path) -> ChatTemplate:
    special = {"bos_token": "<s>", "eos_token": "</s>"}
    return ChatTemplate(path.read_text(encoding="utf-8"), special)


def render(template: ChatTemplate, example: Example, answer: Transcript | None) -> str:
    """Render a question with its answer, or with the prompt for one."""
    messages: list[object] = [{"role": "user", "content": QUESTION}]
    if answer is not None:
        messages.append(message_from(answer))
    return template.render(
        read_messages(messages, template.content_format, "m"),
        add_generation_prompt=answer is None,
        tools=DEFINITIONS,
        template_kwargs=example.thinking,
    )


def message_from(answer: Transcript) -> dict[str, object]:
    """Give an answer as a client sends it back."""
    message: dict[str, object] = {"role": "assistant", "content": answer.content}
    if answer.reasoning:
        message["reasoning"] = answer.reasoning
    if answer.calls:
        message["tool_calls"] = [
            {
                # Mistral's templates take no shorter ids.
                "id": f"call{index:05}",
                "type": "function",
                "function": {"name": name, "arguments": json.dumps(arguments)},
            }
            for index, (name, arguments) in enumerate(answer.calls)
        ]
    return message


def written(source: Path, example: Example, answer: Transcript) -> Transcript:
    """Give an answer with the text that a model would have written for it."""
    template = template_in(source / example.path)
    prompt = render(template, example, None)
    _, question, turn = render(template, example, answer).rpartition(QUESTION)
    assert question
    text = without_prefix(turn, prompt.rpartition(QUESTION)[2])
    for end in example.turn_ends:
        text = text.partition(end)[0]
    return answer._replace(text=text, prompt=prompt)


def without_prefix(text: str, prefix: str) -> str:
    """Cut off a prefix; some templates do not write the same whitespace in it every time."""
    if text.startswith(prefix):
        return text[len(prefix) :]
    visible = "".join(prefix.split())
    place = 0
    for character in visible:
        place = text.index(character, place) + 1
    assert "".join(text[:place].split()) == visible
    return text[place:]


def corpus_of(example: Example) -> Corpus:
    """Give the formats of a template, and what is a token for models that write in them."""
    reasoning = None if example.thinking is None else example.reasoning
    tokens = [
        token
        for corpus in CORPORA
        if corpus.tool == example.tool or (reasoning and corpus.reasoning == reasoning)
        for token in corpus.tokens
    ]
    return Corpus(example.tool, reasoning, tuple(dict.fromkeys(tokens)), ())


def compared(message: Message) -> object:
    """Leave out whitespace around texts, which is the template's, and the order of arguments."""
    reasoning, content, calls = message
    texts = [(name, json.dumps(arguments, sort_keys=True)) for name, arguments in calls]
    return reasoning.strip(), content.strip(), texts


@pytest.mark.parametrize(("example", "answer"), CASES)
def test_an_answer_comes_back(source: Path, example: Example, answer: Transcript) -> None:
    corpus = corpus_of(example)
    is_lost = answer.name in example.lost
    try:
        transcript = written(source, example, answer)
    except InvalidChatError:
        assert is_lost
        return
    found = compared(message_of(parse(corpus, transcript, tokenizer_with(corpus.tokens))))
    expected = compared((answer.reasoning, answer.content, list(answer.calls)))
    if is_lost:
        assert found != expected, "it comes back now"
    else:
        assert found == expected, transcript.text


@pytest.mark.parametrize("example", OURS, ids=lambda example: example.name)
@settings(max_examples=20)
@given(data=st.data())
def test_an_answer_comes_back_however_it_is_cut(
    source: Path, example: Example, data: st.DataObject
) -> None:
    answers = [
        answer
        for answer in ANSWERS
        if answer.name not in example.lost
        and (example.thinking is not None or not answer.reasoning)
    ]
    transcript = written(source, example, data.draw(st.sampled_from(answers)))
    cuts = data.draw(st.lists(st.integers(0, len(transcript.text)), max_size=20))
    corpus = corpus_of(example)
    tokenizer = tokenizer_with(corpus.tokens)
    whole = merged(parse(corpus, transcript, tokenizer))
    assert merged(parse(corpus, transcript, tokenizer, cuts)) == whole


@pytest.mark.parametrize("example", OURS, ids=lambda example: example.name)
def test_templates_that_are_said_to_write_no_reasoning_write_none(
    source: Path, example: Example
) -> None:
    answer = next(answer for answer in ANSWERS if answer.name == "reasoning and text")
    rendered = render(template_in(source / example.path), example, answer)
    assert (REASONING in rendered) == (example.thinking is not None)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_a_template_tells_the_formats_it_is_for(source: Path, example: Example) -> None:
    facts = ModelFacts("m", template=(source / example.path).read_text(encoding="utf-8"))
    tool, reasoning = detect(TOOL_RULES, facts), detect(REASONING_RULES, facts)
    assert (tool and tool[0], reasoning and reasoning[0]) == (example.tool, example.reasoning)


def test_all_examples_are_listed_and_the_others_have_no_format(source: Path) -> None:
    listed = {source / example.path for example in EXAMPLES if example.place != RUST_TESTS}
    examples = source / "examples"
    assert set(examples.glob("tool_chat_template_*.jinja")) == listed
    for path in set(examples.glob("*.jinja")) - listed:
        facts = ModelFacts("m", template=path.read_text(encoding="utf-8"))
        assert detect(TOOL_RULES, facts) is None
        assert detect(REASONING_RULES, facts) is None
