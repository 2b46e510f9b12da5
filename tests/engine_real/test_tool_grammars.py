"""What calls are held to, compiled as the engine does: right calls pass, and are read as such.

Formats whose calls are enforced as JSON have no grammar of their own.
"""

import json
import os
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec
import pytest

from umbel_chat.constraint import tool_constraint
from umbel_chat.events import OutputEvent
from umbel_chat.parsers.model_parsers import ModelParsers
from umbel_chat.parsers.registry import TOOL_FORMATS
from umbel_chat.plan import AnswerPlan
from umbel_chat.tools import NamedTool, Tool, ToolChoice
from umbel_engine import StructuredOutputs
from umbel_text.structured_outputs import check_structured_outputs

from ..chat.parsers.test_transcripts import CORPORA, message_of
from ..chat.parsers.tokens import END_OF_TURN, backend_with, tokenizer_with
from ..chat.parsers.transcripts import TOOLS
from .call_writers import WRITERS, Call, CallWriter

PYTHON = Path(__file__).parents[2] / ".venv-engine/bin/python"
SIDE = Path(__file__).with_name("grammar_side.py")

TOKENS = tuple(sorted({token for corpus in CORPORA for token in corpus.tokens}))

FREE = "get_time"
"""The tool that says nothing of its arguments."""

WALKS = 8
"""Texts drawn at random from each grammar."""

WEATHER = ("get_weather", {"city": 'Zürich "東京" 🎉', "days": -3, "unit": "celsius"})
PARIS = ("get_weather", {"city": "Paris"})
NOW = ("get_time", {})
SEARCH = (
    "search",
    {
        "query": "a < b",
        "limit": 1.5e3,
        "exact": False,
        "tags": ["x", "y"],
        "filter": {"after": "2024"},
    },
)
UNKNOWN = ("get_rain", {"city": "Paris"})
WRONG_TYPE = ("get_weather", {"city": "Paris", "days": "many"})
WRONG_VALUE = ("get_weather", {"city": "Paris", "unit": "kelvin"})
INCOMPLETE = ("get_weather", {"days": 3})
OTHER_NAME = ("get_weather", {"town": "Paris"})

ANSWER = {
    "type": "object",
    "properties": {"answer": {"type": "integer"}},
    "required": ["answer"],
}


PYTHON_TYPES = {
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "array": list,
    "object": dict,
    None: object,
}

Answers = dict[str, Any]


class Case(NamedTuple):
    """A constraint, and answers that are and that are not of its form."""

    name: str
    writer: CallWriter
    choice: ToolChoice
    constraint: StructuredOutputs
    right: Sequence[tuple[str, Sequence[Call], str]]
    """Texts with the calls and the content in them."""
    wrong: Sequence[str]
    is_loose: bool
    """Whether arguments are free."""


def tools(strict: bool | None = None) -> list[Tool]:
    return [
        Tool(name, {}, None if name == FREE else parameters, strict)
        for name, parameters in TOOLS.items()
    ]


def case(
    name: str,
    writer: CallWriter,
    choice: ToolChoice,
    right: Sequence[tuple[str, Sequence[Call], str]],
    wrong: Sequence[str],
    *,
    single: bool = False,
    strict: bool | None = None,
    own: StructuredOutputs | None = None,
) -> Case:
    constraint = tool_constraint(writer.format, tools(strict), choice, single, own, "auto")
    assert constraint is not None
    is_loose = strict is False or (choice == "auto" and strict is None)
    return Case(f"{writer.name}-{name}", writer, choice, constraint, right, wrong, is_loose)


def cases_of(writer: CallWriter) -> list[Case]:
    """Give the cases of a format: each way in which calls may be enforced."""
    write, begin = writer.write, writer.answer
    is_one = writer.name == "openai"
    several = [] if is_one else [[PARIS, NOW], [NOW, PARIS, WEATHER]]

    def calls(*rows: Sequence[Call]) -> list[tuple[str, Sequence[Call], str]]:
        return [(write(row), row, "") for row in rows]

    def texts(*rows: Sequence[Call]) -> list[str]:
        return [write(row) for row in rows]

    bad = texts(*([call] for call in (UNKNOWN, WRONG_TYPE, WRONG_VALUE, INCOMPLETE, OTHER_NAME)))
    free = calls([("get_weather", {"town": "x"})], [("search", {})])
    hello = (begin + "Hello.", [], "Hello.")
    number = (begin + '{"answer": 7}', [], '{"answer": 7}')
    talk = [] if is_one else [("I look.\n" + write([PARIS]), [PARIS], "I look.")]
    each = ([WEATHER], [NOW], [SEARCH])
    return [
        case(
            "required",
            writer,
            "required",
            calls(*each, *several),
            [*bad, "", "Hello.", hello[0], "I look.\n" + write([PARIS]), write([PARIS])[:-1] + "x"],
        ),
        case("required-not-strict", writer, "required", free, texts([UNKNOWN]), strict=False),
        case(
            "named",
            writer,
            NamedTool("get_weather"),
            calls([WEATHER]),
            [*bad, hello[0], *texts([NOW], [PARIS, PARIS])],
        ),
        case(
            "single",
            writer,
            "required",
            calls(*each),
            [*bad, *texts([PARIS, PARIS], [NOW, PARIS])],
            single=True,
        ),
        case("strict", writer, "auto", [*calls(*each), hello, *talk], bad, strict=True),
        case("auto-single", writer, "auto", [*calls(*each), hello], texts([UNKNOWN]), single=True),
        case(
            "strict-beside-a-schema",
            writer,
            "auto",
            [*calls(*each, *several), number],
            [*bad, hello[0], begin + '{"answer": "x"}'],
            strict=True,
            own=StructuredOutputs(json=ANSWER),
        ),
    ]


def json_cases() -> list[Case]:
    """Give the cases of a format whose calls are enforced as JSON."""

    def write(calls: Sequence[Call]) -> str:
        return json.dumps([{"name": name, "parameters": given} for name, given in calls])

    writer = CallWriter(TOOL_FORMATS["granite4"], write)
    right = [(write(row), row, "") for row in ([WEATHER], [NOW], [PARIS, NOW, SEARCH])]
    wrong = [write([call]) for call in (UNKNOWN, WRONG_TYPE, WRONG_VALUE, INCOMPLETE)]
    named = NamedTool("get_weather")
    two = write([PARIS, NOW])
    return [
        case("required", writer, "required", right, [*wrong, "[]", "Hello."]),
        case("single", writer, "required", right[:2], [*wrong, two], single=True),
        case(
            "named",
            writer,
            named,
            [(json.dumps(WEATHER[1]), [WEATHER], "")],
            [json.dumps(WRONG_TYPE[1]), "{}", write([PARIS])],
        ),
    ]


CASES = [*(made for writer in WRITERS for made in cases_of(writer)), *json_cases()]


@pytest.fixture(scope="module")
def engine_answers() -> Answers:
    """What the engine's compiler says to all cases, in one process."""
    asked = {
        "tokenizer": backend_with(TOKENS).to_str(),
        "stops": [END_OF_TURN, "<|call|>"],
        "tools": [
            {
                "type": "function",
                "function": {"name": name, "strict": True, "parameters": parameters},
            }
            for name, parameters in TOOLS.items()
        ],
        "cases": [
            {
                "constraint": constraint_fields(made.constraint),
                "texts": [*(text for text, _, _ in made.right), *made.wrong],
                "walks": WALKS,
            }
            for made in CASES
        ],
    }
    run = subprocess.run(
        [PYTHON, SIDE],
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "HF_HUB_OFFLINE": "1", "VLLM_LOGGING_LEVEL": "ERROR"},
    )
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


def constraint_fields(constraint: StructuredOutputs) -> dict[str, object]:
    fields = msgspec.structs.asdict(constraint)
    return {key: value for key, value in fields.items() if key in ("json", "structural_tag")}


def parsed(made: Case, text: str) -> tuple[list[tuple[str, object]], str]:
    """Read an answer; gives the calls and the content."""
    tokenizer = tokenizer_with(TOKENS)
    parsers = ModelParsers(tokenizer, made.writer.format, None)
    forced: NamedTool | Literal["required"] | None = None
    if made.constraint.json is not None:
        forced = made.choice if isinstance(made.choice, NamedTool) else "required"
    processor = AnswerPlan(tools=TOOLS, forced=forced).new_processor(parsers)
    events: list[OutputEvent] = []
    for piece in re.split(f"({'|'.join(map(re.escape, TOKENS))})", text):
        token_id = tokenizer.backend.token_to_id(piece)
        events += processor.feed(piece, [] if token_id is None else [token_id])
    _, content, calls = message_of(events + processor.finish())
    return calls, content


def fits(name: str, arguments: object) -> bool:
    """Tell whether the arguments of a call are those of a tool, as far as their types go."""
    if name == FREE:
        return isinstance(arguments, dict)
    schema = TOOLS[name]
    properties, required = schema["properties"], schema.get("required", [])
    return (
        isinstance(arguments, dict)
        and set(required) <= set(arguments) <= set(properties)
        and all(
            isinstance(value, PYTHON_TYPES[properties[key].get("type")])
            for key, value in arguments.items()
        )
    )


IDS = [made.name for made in CASES]
INDEXES = range(len(CASES))


@pytest.mark.parametrize("index", INDEXES, ids=IDS)
def test_right_answers_are_accepted_and_read(engine_answers: Answers, index: int) -> None:
    made, answer = CASES[index], engine_answers["cases"][index]
    for (text, calls, content), accepted in zip(made.right, answer["accepted"], strict=False):
        assert accepted, text
        found, said = parsed(made, text)
        assert (found, said.strip()) == (list(calls), content), text


@pytest.mark.parametrize("index", INDEXES, ids=IDS)
def test_wrong_answers_are_not_accepted(engine_answers: Answers, index: int) -> None:
    made, answer = CASES[index], engine_answers["cases"][index]
    verdicts = answer["accepted"][len(made.right) :]
    assert [text for text, accepted in zip(made.wrong, verdicts, strict=True) if accepted] == []


@pytest.mark.parametrize("index", INDEXES, ids=IDS)
def test_whatever_is_accepted_is_read_as_calls(engine_answers: Answers, index: int) -> None:
    made, answer = CASES[index], engine_answers["cases"][index]
    assert answer["walks"]
    for text in answer["walks"]:
        calls, content = parsed(made, text)
        if made.choice != "auto":
            assert calls, text
            assert not content.strip(), text
        for name, arguments in calls:
            assert name in TOOLS, text
            assert made.is_loose or fits(name, arguments), (text, arguments)


@pytest.mark.parametrize("index", INDEXES, ids=IDS)
def test_constraints_of_calls_are_sent(index: int) -> None:
    check_structured_outputs(CASES[index].constraint, "auto")


def test_structural_tags_of_vllm_are_sent(engine_answers: Answers) -> None:
    tags = engine_answers["own_tags"]
    assert {"hermes-required", "harmony-auto", "glm_4_7-named"} <= set(tags)
    for tag in tags.values():
        check_structured_outputs(StructuredOutputs(structural_tag=tag), "auto")
