"""Reasoning between `<think>` and `</think>`."""

from umbel_chat.parsers.formats import ReasoningFormat

START, END = "<think>", "</think>"

STATE = (
    "Whether reasoning has begun is told by the prompt; vLLM asks the arguments of the chat template, "
    "or takes it for begun."
)
WITHOUT_TOOLS = "A call ends reasoning where calls are looked for; in vLLM, always."
TWICE = (
    "An end marker that is written twice in a row is one; vLLM gives the second as content when it "
    "streams, and drops all in the answer when it does not."
)

DEEPSEEK_R1 = ReasoningFormat(
    names=("deepseek_r1", "step5"),
    start=START,
    end=END,
    summary="`<think>` and `</think>`; an answer begins with reasoning, with or without the former.",
    models=("DeepSeek-R1", "QwQ"),
    differences=(
        "Nothing before `</think>` is dropped; vLLM drops what stands before `<think>`.",
        "An end marker that is written twice in a row is one; in vLLM the second is content.",
    ),
)

DEEPSEEK_V3 = ReasoningFormat(
    names=("deepseek_v3",),
    start=START,
    end=END,
    begins_open=False,
    summary="`<think>` and `</think>`, the former in the prompt.",
    models=("DeepSeek-V3.1",),
    differences=(STATE,),
)

QWEN3 = ReasoningFormat(
    names=("qwen3",),
    start=START,
    end=END,
    begins_open=False,
    interrupts=True,
    summary="`<think>` and `</think>`, the former in the prompt or written by the model.",
    models=("Qwen3", "Qwen3-Thinking", "Qwen3.5"),
    differences=(STATE, WITHOUT_TOOLS, TWICE),
)

GLM45 = ReasoningFormat(
    names=("glm45", "glm47"),
    start=START,
    end=END,
    begins_open=False,
    interrupts=True,
    trims_reasoning=True,
    summary="`<think>` and `</think>`, the former in the prompt or written by the model.",
    models=("GLM-4.5", "GLM-4.6", "GLM-4.7"),
    differences=(STATE, WITHOUT_TOOLS, TWICE),
)

KIMI_K2 = ReasoningFormat(
    names=("kimi_k2",),
    start=START,
    end=END,
    begins_open=False,
    interrupts=True,
    trims_reasoning=True,
    summary="`<think>` and `</think>`; a section of calls ends reasoning, too.",
    models=("Kimi-K2-Thinking", "Kimi-K2.5"),
    differences=(STATE, WITHOUT_TOOLS, TWICE),
)

NEMOTRON_V3 = ReasoningFormat(
    names=("nemotron_v3",),
    start=START,
    end=END,
    interrupts=True,
    trims_reasoning=True,
    summary="`<think>` and `</think>`, the former in the prompt.",
    models=("Nemotron 3 Nano", "Nemotron 3 Super"),
    differences=(
        STATE,
        WITHOUT_TOOLS,
        TWICE,
        "Reasoning stays reasoning where no answer follows, whatever `force_nonempty_content` says.",
    ),
)
