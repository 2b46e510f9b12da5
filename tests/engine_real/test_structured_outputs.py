"""Whatever form a client asks of an answer, the engine goes on answering others.

Each constraint is either refused before it is sent, or the engine answers it: with text of that form,
or with an error where its compiler finds what our check cannot.  Meanwhile, and after that, it answers
a request without a constraint.
"""

import asyncio
import json
import re
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path

import pytest

from umbel_engine import EngineClient, EngineOptions, StructuredOutputs
from umbel_engine.process import EngineProcess, EngineProcessOptions
from umbel_engine.sample_model import prepare_sample_model
from umbel_llm import Llm
from umbel_text import InvalidRequestError, SamplingOptions, TextLlm, TextRequest, load_text_model

PYTHON = Path(__file__).parents[2] / ".venv-engine" / "bin" / "python"

MAX_MODEL_LEN = 1024

PATIENCE = 120
"""Seconds after which an engine that does not answer has stopped, on a machine that may be busy."""

TOKENS = 24
"""How many tokens an answer may have; enough to be in the middle of a constraint."""

IDS = count()


def schema(**keywords):
    return StructuredOutputs(json=keywords)


def tag(**fields):
    return StructuredOutputs(
        structural_tag=json.dumps({"type": "structural_tag", "format": fields})
    )


def nested(levels, value):
    for _ in range(levels):
        value = {"type": "array", "items": value}
    return value


def nested_format(levels, value):
    for _ in range(levels):
        value = {"type": "sequence", "elements": [value]}
    return value


def rules(*lines):
    return StructuredOutputs(grammar="\n".join(lines))


def chain(length, last, body="{0}"):
    """Give rules each of which is made of the next."""
    lines = [f"r{index} ::= " + body.format(f"r{index + 1}") for index in range(length)]
    return rules("root ::= r0", *lines, f"r{length} ::= {last}")


def legacy(structures, triggers):
    return StructuredOutputs(
        structural_tag=json.dumps({"structures": structures, "triggers": triggers})
    )


ANY_TEXT = {"type": "any_text"}
A_TAG = {"type": "tag", "begin": "<a>", "content": ANY_TEXT, "end": "</a>"}
JSON_GRAMMAR = """
root ::= value
value ::= object | array | string | number | "true" | "false" | "null"
object ::= "{" ws (pair (ws "," ws pair)*)? ws "}"
pair ::= string ws ":" ws value
array ::= "[" ws (value (ws "," ws value)*)? ws "]"
string ::= "\\"" ([^"\\\\\\n] | "\\\\" ["\\\\/bfnrt] | "\\\\u" [0-9a-f]{4})* "\\""
number ::= "-"? ("0" | [1-9] [0-9]*) ("." [0-9]+)? ([eE] [+-]? [0-9]+)?
ws ::= [ \\t\\n]*
"""
PERSON = schema(
    type="object",
    properties={"name": {"type": "string", "maxLength": 20}, "age": {"type": "integer"}},
    required=["name", "age"],
)

ANSWERED = {
    "a schema": PERSON,
    "a schema in text": StructuredOutputs(json=json.dumps(PERSON.json)),
    "any object": StructuredOutputs(json_object=True),
    "a schema of nothing": StructuredOutputs(json={}),
    "a schema that is true": StructuredOutputs(json="true"),
    "a schema nested as deeply as may be": schema(**nested(31, {"type": "string"})),
    "a schema that refers to itself": schema(type="object", properties={"a": {"$ref": "#"}}),
    "a thousand properties": schema(
        type="object", properties={f"k{index}": {"type": "string"} for index in range(1000)}
    ),
    "long limits": schema(type="string", minLength=100, maxLength=1_000_000),
    "many items": schema(type="array", items={"type": "integer"}, minItems=10**9),
    "many values": schema(enum=[f"value {index}" for index in range(2000)]),
    "a format": schema(type="string", format="date-time"),
    "a pattern that looks ahead": schema(type="string", pattern="^(?!a)[a-z]{3,10}$"),
    "a pattern with words": schema(type="string", pattern=r"^(\w+ ?){1,20}$"),
    "a number's bounds": schema(type="number", minimum=-1e300, maximum=1e300),
    "a regex": StructuredOutputs(regex=r"[a-z]{3,9}@[a-z]{3,9}\.com"),
    "an empty regex": StructuredOutputs(regex=""),
    "a regex of loops": StructuredOutputs(regex=r"((\w+ )*\w+\.\s?)+"),
    "a regex of counted lines": StructuredOutputs(regex=r"(- [^\n]{1,40}\n){1,20}"),
    "a regex of ambiguous words": StructuredOutputs(regex=r"(\w+\s*){1,5}"),
    "many parentheses": StructuredOutputs(regex="(" * 150 + "a" + ")" * 150),
    "many empty alternatives": StructuredOutputs(regex="|" * 5000),
    "anchors anywhere": StructuredOutputs(regex="^^a$^b$"),
    "a choice": StructuredOutputs(choice=["yes", "no"]),
    "an empty choice": StructuredOutputs(choice=[""]),
    "odd choices": StructuredOutputs(choice=['"', "\\", "\n", "\x00", "\x7f", "学", "\u2028"]),
    "thousands of choices": StructuredOutputs(choice=[f"word {index}" for index in range(4000)]),
    "a long choice": StructuredOutputs(choice=["abcdefgh " * 5000]),
    "choices that begin alike": StructuredOutputs(choice=["a" * size for size in range(1, 200)]),
    "JSON as a grammar": StructuredOutputs(grammar=JSON_GRAMMAR),
    "an operator": rules('root ::= root "+" root | [0-9]+'),
    "recursion to the left": rules("root ::= root [a-z] | [a-z]"),
    "a chain of rules": chain(1500, '"b"'),
    "rules that double": chain(30, '"b"', "{0} {0}"),
    "a look ahead": rules('root ::= "a" (="b")'),
    "a dispatch": rules('root ::= TagDispatch(("<a>", r))', 'r ::= "b"'),
    "Lark": StructuredOutputs(
        grammar='start: WORD ("," WORD)*\nWORD: /[a-z]+/\n%import common.WS\n%ignore WS\n'
    ),
    "Lark with a schema": StructuredOutputs(grammar='start: "x" %json {"type": "integer"}'),
    "a tag": tag(**A_TAG),
    "triggered tags": tag(type="triggered_tags", triggers=["<a"], tags=[A_TAG]),
    "tags of the older form": legacy(
        [{"begin": "<a>", "schema": {"type": "object"}, "end": "</a>"}], ["<a"]
    ),
    "formats nested as deeply as may be": tag(**nested_format(35, ANY_TEXT)),
}

FAILED = {
    "a reference to nowhere": schema(**{"$ref": "#/nowhere"}),
    "a type that is none": schema(type="color"),
    "a schema that nothing follows": StructuredOutputs(json="false"),
    "a limit of more than 64 bits": StructuredOutputs(
        json='{"type": "string", "maxLength": 36893488147419103232}'
    ),
    "bounds that no integer has": schema(type="integer", minimum=-1e300),
    "a token that is none": StructuredOutputs(grammar="start: <[999999]>"),
    "a trigger that nothing has": legacy([{"begin": "<a>", "schema": {}, "end": "</a>"}], ["<b"]),
    "an empty pattern in a tag": tag(type="regex", pattern=""),
}

# Everything from here on does the engine harm: it dies, or it stands still.

WOULD_KILL = {
    "a group's name beyond ASCII": StructuredOutputs(regex="(?<\U0010ffff>a)"),
    "a control character beyond ASCII": StructuredOutputs(regex="\\c\U0010ffff"),
    "such a pattern": schema(type="string", pattern="\\c\U0010ffff"),
    "such a pattern in a tag": tag(type="regex", pattern="\\c\U0010ffff"),
    "such a regex in Lark": StructuredOutputs(grammar="start: /\\c\U0010ffff/"),
    "a rule that repeats itself": rules("root ::= root{2,}"),
    "a rule that is itself or nothing": StructuredOutputs(grammar="start: start?"),
    "a rule that repeats itself never": rules("root ::= root{0}"),
    "rules that repeat each other": rules("root ::= a{2}", "a ::= root{3}"),
    "grammars within grammars": StructuredOutputs(
        grammar="start: " + "%lark { start: " * 3000 + '"a"' + "}" * 3000
    ),
    "a repeated dispatch on tokens": tag(
        type="repeat",
        min=1,
        max=3,
        content={"type": "token_dispatch", "rules": [[17, ANY_TEXT]]},
    ),
}

WOULD_STALL = {
    "words counted up to a thousand": StructuredOutputs(regex=r"(\w+\s*){1,1000}"),
    "counts within counts": StructuredOutputs(regex="(([a-z]{1,100}){1,100}){1,100}"),
    "small counts within small counts": StructuredOutputs(regex="(([a-z]{1,10}){1,10}){1,10}"),
    "loops within loops": StructuredOutputs(regex=r"((\w+ ?)*,?)*"),
    "a loop over nothing": StructuredOutputs(regex="((.)?)+[a-c]"),
    "such counts in a pattern": schema(type="string", pattern='^"(([a-z]{1,99}){1,99}){1,99}$'),
    "such counts in a tag": tag(type="regex", pattern="(([a-z]{1,99}){1,99}){1,99}"),
    "such counts in Lark": StructuredOutputs(grammar="start: /(([a-z]{1,99}){1,99}){1,99}/"),
    "such counts in rules": rules("root ::= a{1,999}", "a ::= b{1,999}", "b ::= [a-z]{1,999}"),
    "a rule after itself": rules("root ::= root root | [a-z]"),
    "rules that double what may be nothing": chain(30, "[a-z]?", "{0} {0}"),
    "optional characters": rules("root ::= " + " ".join(["[a-z]?"] * 1000)),
    "many different limits": schema(
        anyOf=[{"type": "string", "minLength": length} for length in range(1000)]
    ),
    "many properties, some of them": schema(
        type="object",
        properties={f"k{index}": {"type": "string"} for index in range(300)},
        minProperties=100,
        maxProperties=200,
    ),
    "a regex too long to compile": StructuredOutputs(regex="[a-z]" * 3300),
    "a long chain of rules": chain(10_000, '"b"'),
    "loops over text": tag(
        type="repeat", min=1, max=3000, content={"type": "star", "content": ANY_TEXT}
    ),
}

REFUSED = {
    "NUL in a regex": StructuredOutputs(regex="a\0b"),
    "NUL in a grammar": rules('root ::= "a" \0'),
    "a schema nested too deeply": schema(**nested(70, {})),
    "text nested too deeply": StructuredOutputs(json="[" * 100_000),
    "numbers that JSON does not have": StructuredOutputs(json='{"const": NaN}'),
    "an open parenthesis": StructuredOutputs(regex="(" * 10_000),
    "a range the wrong way round": StructuredOutputs(regex="[z-a]"),
    "no root": rules('a ::= "b"'),
    "a name without a rule": rules("root ::= a"),
    "neither EBNF nor Lark": StructuredOutputs(grammar="hello world"),
    "several kinds": StructuredOutputs(regex="a", json_object=True),
    "no kind": StructuredOutputs(),
    "lone surrogates": StructuredOutputs(choice=["\ud800"]),
    "a tag without a format": StructuredOutputs(structural_tag="{}"),
}


class Asker:
    """Asks an engine through the text layer."""

    def __init__(self, text):
        self._text = text

    async def finish(self, constraint=None):
        """Generate a sample, and give its text and how it ended."""
        options = SamplingOptions(
            structured_outputs=constraint, max_tokens=TOKENS, temperature=1.0, seed=7
        )
        request = TextRequest(request_id=f"r{next(IDS)}", prompt="Say:", sampling=options)
        pieces, finish = [], None
        async with asyncio.timeout(PATIENCE), self._text.generate(request) as samples:
            async for _, delta in samples:
                pieces.append(delta.text)
                finish = delta.finish
        return "".join(pieces), finish

    async def finish_beside_another(self, constraint):
        """Do so while the engine answers a request without a constraint, and another after it."""
        asked = asyncio.create_task(self.finish(constraint))
        try:
            assert (await self.finish())[1].reason in ("stop", "length")
            answer = await asked
        finally:
            asked.cancel()
        assert (await self.finish())[1].reason in ("stop", "length")
        return answer


@asynccontextmanager
async def running_engine():
    model = prepare_sample_model()
    async with EngineClient(EngineOptions(local_engines=True, ready_timeout=600)) as client:
        options = EngineProcessOptions(
            PYTHON, str(model), client.handshake_address, max_model_len=str(MAX_MODEL_LEN)
        )
        async with EngineProcess(options) as process:
            await process.wait_ready(client)
            yield Asker(TextLlm(load_text_model(model, MAX_MODEL_LEN), Llm(client)))


@pytest.fixture(scope="module")
def runner():
    with asyncio.Runner() as runner:
        yield runner


@pytest.fixture(scope="module")
def asker(runner):
    context = running_engine()
    yield runner.run(context.__aenter__())
    runner.run(context.__aexit__(None, None, None))


def each(constraints):
    return pytest.mark.parametrize("constraint", constraints.values(), ids=constraints.keys())


@each(ANSWERED)
def test_the_engine_answers_in_the_form(runner, asker, constraint):
    _, finish = runner.run(asker.finish_beside_another(constraint))
    assert finish.reason in ("stop", "length")


@each(FAILED)
def test_what_the_compiler_cannot_use_fails_alone(runner, asker, constraint):
    text, finish = runner.run(asker.finish_beside_another(constraint))
    assert (text, finish.reason) == ("", "error")
    assert finish.error.code == "validation_error"


@each({**WOULD_KILL, **WOULD_STALL, **REFUSED})
def test_what_would_harm_the_engine_is_not_sent(runner, asker, constraint):
    with pytest.raises(InvalidRequestError):
        runner.run(asker.finish(constraint))


@pytest.mark.parametrize(
    ("constraint", "form"),
    [
        (StructuredOutputs(regex="[0-9]{3}-[0-9]{4}"), r"[0-9]{3}-[0-9]{4}"),
        (StructuredOutputs(choice=["red", "green"]), "red|green"),
        (rules('root ::= "<" [a-z]{2,5} ">"'), "<[a-z]{2,5}>"),
        (StructuredOutputs(grammar='start: "<" /[a-z]{2,5}/ ">"'), "<[a-z]{2,5}>"),
        (schema(type="integer", minimum=10, maximum=99), "[1-9][0-9]"),
        (tag(type="const_string", value="only this"), "only this"),
    ],
)
def test_an_answer_has_the_form_that_was_asked_for(runner, asker, constraint, form):
    text, finish = runner.run(asker.finish(constraint))
    assert re.fullmatch(form, text)
    assert finish.reason == "stop"
