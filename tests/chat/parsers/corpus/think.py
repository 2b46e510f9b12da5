"""Reasoning between `<think>` and `</think>`, alone and before calls."""

from ..transcripts import Corpus, Transcript
from . import deepseek, kimi

START, END = "<think>", "</think>"
TOKENS = (START, END)
CALL_START, CALL_END = "<tool_call>", "</tool_call>"
CALL = CALL_START + '\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n' + CALL_END

OPEN = "<|assistant|>\n<think>\n"
CLOSED = "<|assistant|>\n<think>\n\n</think>\n\n"
UNSAID = "<|assistant|>\n"

WHOLE_IGNORES_PROMPT = "vLLM looks at the prompt when it streams only"
SECOND_MARKER = "vLLM gives the second marker as content when it streams"
TAKEN_FOR_BEGUN = "vLLM takes the whole answer for reasoning, whatever the prompt says"

REASONING = (
    Transcript(
        "reasoning that the prompt begins",
        "Let me think.\nYes.</think>\n\nIt is sunny.",
        prompt=OPEN,
        reasoning="Let me think.\nYes.",
        content="\n\nIt is sunny.",
    ),
    Transcript(
        "reasoning with both markers",
        "<think>Let me think.</think>It is sunny.",
        prompt=UNSAID,
        reasoning="Let me think.",
        content="It is sunny.",
    ),
    Transcript(
        "the first marker twice",
        "\n<think>Let me think.</think>It is sunny.",
        prompt=OPEN,
        reasoning="Let me think.",
        content="It is sunny.",
    ),
    Transcript(
        "no reasoning",
        "It is sunny.",
        prompt=CLOSED,
        content="It is sunny.",
        differs=TAKEN_FOR_BEGUN,
    ),
    Transcript(
        "empty reasoning",
        "<think>\n\n</think>\n\nIt is sunny.",
        prompt=UNSAID,
        content="\n\nIt is sunny.",
    ),
    Transcript(
        "reasoning that is cut off",
        "<think>Let me th",
        prompt=UNSAID,
        reasoning="Let me th",
    ),
    Transcript(
        "nothing after the reasoning",
        "Let me think.</think>",
        prompt=OPEN,
        reasoning="Let me think.",
    ),
    Transcript("an empty answer", "", prompt=OPEN),
    Transcript(
        "unicode",
        "北京 🌍 é</think>北京 🌍 é",
        prompt=OPEN,
        reasoning="北京 🌍 é",
        content="北京 🌍 é",
    ),
    Transcript(
        "markup in both",
        "a < b <thin <b> </thin k></think>a < b </thin",
        prompt=OPEN,
        reasoning="a < b <thin <b> </thin k>",
        content="a < b </thin",
    ),
    Transcript(
        "lines around the reasoning",
        "<think>\nOne.\n\n  Two.\n</think>\nIt is sunny.\n",
        prompt=UNSAID,
        reasoning="\nOne.\n\n  Two.\n",
        content="\nIt is sunny.\n",
    ),
)


def trimmed(transcripts: tuple[Transcript, ...]) -> tuple[Transcript, ...]:
    """Leave out whitespace at the end of reasoning, for formats to which it belongs."""
    return tuple(
        transcript._replace(reasoning=transcript.reasoning.rstrip()) for transcript in transcripts
    )


# Formats that end reasoning at a call, and take no reasoning for granted.
HYBRID = (
    Transcript(
        "an answer of a model that does not reason",
        "It is sunny.",
        prompt=UNSAID,
        content="It is sunny.",
        differs=TAKEN_FOR_BEGUN,
    ),
    Transcript(
        "an end marker that the prompt has",
        "</think>It is sunny.",
        prompt=CLOSED,
        content="It is sunny.",
        differs=SECOND_MARKER,
    ),
    Transcript(
        "two end markers",
        "<think>One.</think>\n</think>\n\nIt is sunny.",
        prompt=UNSAID,
        reasoning="One.",
        content="\n\nIt is sunny.",
        differs=SECOND_MARKER,
    ),
)

WITH_CALLS = (
    Transcript(
        "a call after the reasoning",
        "<think>One.</think>\n\n" + CALL,
        prompt=UNSAID,
        reasoning="One.",
        calls=(("get_weather", {"city": "Paris"}),),
    ),
    Transcript(
        "a call that ends the reasoning",
        "One." + CALL,
        prompt=OPEN,
        reasoning="One.",
        calls=(("get_weather", {"city": "Paris"}),),
    ),
    Transcript(
        "a call without reasoning",
        CALL,
        prompt=CLOSED,
        calls=(("get_weather", {"city": "Paris"}),),
    ),
    Transcript(
        "text and a call without reasoning",
        "I look. " + CALL,
        prompt=CLOSED,
        content="I look. ",
        calls=(("get_weather", {"city": "Paris"}),),
        differs=WHOLE_IGNORES_PROMPT,
    ),
    Transcript(
        "reasoning, text and two calls",
        "One.</think>I look.\n" + CALL + "\n" + CALL,
        prompt=OPEN,
        reasoning="One.",
        content="I look.\n",
        calls=(("get_weather", {"city": "Paris"}),) * 2,
    ),
)

HERMES_TOKENS = (*TOKENS, CALL_START, CALL_END)


def hybrid(name: str, *, trims: bool, begins_open: bool = False) -> tuple[Corpus, Corpus]:
    """Give the corpora of a format whose models may reason or not."""
    alone = REASONING + (HYBRID[1:] if begins_open else HYBRID)
    return (
        Corpus(None, name, TOKENS, trimmed(alone) if trims else alone),
        Corpus("hermes", name, HERMES_TOKENS, WITH_CALLS),
    )


DEEPSEEK_R1 = Corpus(
    None,
    "deepseek_r1",
    TOKENS,
    (
        *REASONING,
        Transcript(
            "reasoning without its first marker",
            "Let me think.</think>It is sunny.",
            prompt=UNSAID,
            reasoning="Let me think.",
            content="It is sunny.",
        ),
        Transcript("no markers at all", "Let me think.", prompt=UNSAID, reasoning="Let me think."),
        Transcript(
            "the first marker in the reasoning",
            "They write <think> there.</think>Yes.",
            prompt=OPEN,
            reasoning="They write <think> there.",
            content="Yes.",
            differs="vLLM drops the text before the marker",
        ),
    ),
)

DEEPSEEK_V3_THINKING = Corpus(
    None, "deepseek_v3", TOKENS, REASONING, template_arguments={"thinking": True}
)

DEEPSEEK_V3 = Corpus(
    None,
    "deepseek_v3",
    TOKENS,
    (
        Transcript("plain text", "It is sunny.", prompt=CLOSED, content="It is sunny."),
        Transcript("nothing said", "It is sunny.", prompt=UNSAID, content="It is sunny."),
        Transcript(
            "reasoning all the same",
            "<think>One.</think>It is sunny.",
            prompt=UNSAID,
            reasoning="One.",
            content="It is sunny.",
            differs="vLLM gives the markers as content",
        ),
        Transcript("markers of no reasoning", "a <think> b", prompt=CLOSED, content="a <think> b"),
    ),
)

DEEPSEEK_V31_CALLS = Corpus(
    "deepseek_v31",
    "deepseek_v3",
    (*TOKENS, *deepseek.MARKERS),
    (
        Transcript(
            "reasoning and a call",
            "One.</think>" + deepseek.section(deepseek.v31("get_weather", '{"city": "Paris"}')),
            prompt=OPEN,
            reasoning="One.",
            calls=(("get_weather", {"city": "Paris"}),),
        ),
        Transcript(
            "markers of calls in the reasoning",
            "One " + deepseek.CALLS_START + " two.</think>Three.",
            prompt=OPEN,
            reasoning="One " + deepseek.CALLS_START + " two.",
            content="Three.",
        ),
    ),
    template_arguments={"thinking": True},
)

KIMI_K2_CALLS = Corpus(
    "kimi_k2",
    "kimi_k2",
    (*TOKENS, *kimi.MARKERS),
    (
        Transcript(
            "reasoning and a call",
            "<think>One.\n</think>" + kimi.section(kimi.call("functions.get_time:0", "{}")),
            prompt=UNSAID,
            reasoning="One.",
            calls=(("get_time", {}),),
        ),
        Transcript(
            "a section that ends the reasoning",
            "One. " + kimi.section(kimi.call("functions.get_time:0", "{}")),
            prompt=OPEN,
            reasoning="One.",
            calls=(("get_time", {}),),
        ),
        Transcript(
            "text and a call without reasoning",
            "I look. " + kimi.section(kimi.call("functions.get_time:0", "{}")),
            prompt=UNSAID,
            content="I look. ",
            calls=(("get_time", {}),),
            differs=TAKEN_FOR_BEGUN,
        ),
    ),
)

CORPORA = (
    DEEPSEEK_R1,
    DEEPSEEK_V3_THINKING,
    DEEPSEEK_V3,
    DEEPSEEK_V31_CALLS,
    *hybrid("qwen3", trims=False),
    *hybrid("glm45", trims=True),
    *hybrid("kimi_k2", trims=True)[:1],
    KIMI_K2_CALLS,
    *hybrid("nemotron_v3", trims=True, begins_open=True),
)
