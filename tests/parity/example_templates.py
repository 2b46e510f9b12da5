"""The chat templates in vLLM's source distribution, and answers to put through them."""

from typing import NamedTuple

from ..chat.parsers.transcripts import Transcript

TEXT = "It is sunny, and {warm}."
CALL = ("get_weather", {"city": "Paris"})
REASONING = "The user wants {to know}.\n\nI see."
NESTED = {"after": "1", "or": [{"n": [None, False, 2]}, {}, []]}
ODD = '\n Zürich 東京 🎉\n"a" \\ \\n "}]{["}} {"b": <c> \'d\' é, '

ANSWERS = (
    Transcript("text", "", content=TEXT),
    Transcript("a call", "", calls=(CALL,)),
    Transcript("no arguments", "", calls=(("get_time", {}),)),
    Transcript("two calls", "", calls=(CALL, ("get_time", {}))),
    Transcript("two arguments", "", calls=(("get_weather", {"city": "Rome", "days": -3}),)),
    Transcript("no strings", "", calls=(("search", {"limit": 1.5, "exact": True}),)),
    Transcript("nested arguments", "", calls=(("search", {"filter": NESTED}),)),
    Transcript("a list", "", calls=(("search", {"tags": ["a, b", "", "c]"]}),)),
    Transcript("null", "", calls=(("search", {"anything": None}),)),
    Transcript("an odd string", "", calls=(("search", {"query": ODD}),)),
    Transcript("text and a call", "", content=TEXT, calls=(CALL,)),
    Transcript("reasoning and text", "", content=TEXT, reasoning=REASONING),
    Transcript("reasoning and a call", "", calls=(CALL,), reasoning=REASONING),
    Transcript(
        "reasoning, text and calls",
        "",
        content=TEXT,
        calls=(CALL, ("get_time", {})),
        reasoning=REASONING,
    ),
)
"""Answers as a model means them, without what it writes."""

WITH_CALLS = tuple(answer.name for answer in ANSWERS if answer.calls and not answer.reasoning)

NO_TEXT = {"text and a call": "leaves out the text of an answer that has calls"}
ONE_CALL = {"two calls": "refuses two calls at once"}
NULL_AS_WORD = {"null": "writes null as the word None, which may be a string"}
BARE_STRINGS = NO_TEXT | dict.fromkeys(
    ("a call", "two calls", "two arguments", "an odd string"), "writes strings without quotes"
)
ALL_STRINGS = dict.fromkeys(
    ("two arguments", "no strings", "nested arguments", "a list", "null"),
    "puts quotes around all values",
)


class Example(NamedTuple):
    """A chat template in vLLM's source distribution.

    `tool` and `reasoning` are the formats that it is for, None for those that umbel does not have.
    `turn_ends` are what it writes after an answer.  `lost` are the answers that it does not write as
    a model would, and what it does.  `thinking` are the arguments with which it writes reasoning,
    None if it never does.
    """

    name: str
    tool: str | None = None
    turn_ends: tuple[str, ...] = ()
    reasoning: str | None = None
    lost: dict[str, str] = {}
    thinking: dict[str, object] | None = None
    place: str = "examples/tool_chat_template_{}.jinja"

    @property
    def path(self) -> str:
        return self.place.format(self.name)


RUST_TESTS = "rust/src/chat/tests/templates/{}.jinja"
WITH_THINKING = {"enable_thinking": True}

EXAMPLES = (
    Example("apertus"),
    Example("deepseekr1", "deepseek_v3", ("<｜end▁of▁sentence｜>",), "deepseek_r1"),
    Example("deepseekv3", "deepseek_v3", ("<｜end▁of▁sentence｜>",)),
    Example("deepseekv31", "deepseek_v31", ("<｜end▁of▁sentence｜>",), "deepseek_v3"),
    Example("functiongemma"),
    Example(
        "gemma3_pythonic",
        "pythonic",
        ("<end_of_turn>",),
        lost=dict.fromkeys(("two arguments", "no strings"), "puts nothing between arguments"),
    ),
    Example(
        "gemma4",
        "gemma4",
        ("<|tool_response>", "<turn|>"),
        "gemma4",
        thinking=WITH_THINKING,
    ),
    Example("glm4", "glm45", lost=dict.fromkeys(WITH_CALLS, "leaves out calls")),
    Example("granite"),
    Example("granite_20b_fc"),
    Example("hermes", "hermes", ("<|im_end|>",), lost=NO_TEXT),
    Example("hunyuan_a13b"),
    Example("internlm2_tool"),
    Example("llama3.1_json", "llama3_json", ("<|eot_id|>",), lost=NO_TEXT | ONE_CALL),
    Example("llama3.2_json", "llama3_json", ("<|eot_id|>",), lost=NO_TEXT | ONE_CALL),
    Example("llama3.2_pythonic", "pythonic", ("<|eot_id|>",), lost=BARE_STRINGS),
    Example("llama4_json", "llama4_json", ("<|eot|>",)),
    Example(
        "llama4_pythonic",
        "llama4_pythonic",
        ("<|eot|>",),
        lost=ALL_STRINGS
        | {
            "an odd string": "does not escape quotes in strings",
            "text and a call": "puts text right before calls, where they are none",
        },
    ),
    Example("mistral", "mistral", ("</s>",), lost=NO_TEXT),
    Example("mistral3", "mistral", ("</s>",), lost=NO_TEXT),
    Example("mistral_parallel", "mistral", ("</s>",), lost=NO_TEXT),
    Example("muse_glimmer"),
    Example(
        "phi4_mini",
        "phi4_mini_json",
        ("<|end|>",),
        lost=dict.fromkeys(WITH_CALLS, "leaves out `functools`, and writes arguments in Python"),
    ),
    Example("qwen3", "hermes", ("<|im_end|>",), "qwen3", thinking={}, place=RUST_TESTS),
    Example(
        "qwen35",
        "qwen3_coder",
        ("<|im_end|>",),
        "qwen3",
        lost=NULL_AS_WORD,
        thinking=WITH_THINKING,
        place=RUST_TESTS,
    ),
    Example("qwen3coder", "qwen3_coder", ("<|im_end|>",), lost=NULL_AS_WORD),
    Example("toolace", "pythonic", ("<|eot_id|>",), lost=BARE_STRINGS),
    Example("xlam_llama"),
    Example("xlam_qwen"),
)
