"""Calls as the models write them."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from umbel_chat.parsers.formats import ToolFormat
from umbel_chat.parsers.registry import TOOL_FORMATS

Call = tuple[str, Mapping[str, object]]


class CallWriter(NamedTuple):
    """How a model writes an answer that is calls, and one that is text."""

    format: ToolFormat
    write: Callable[[Sequence[Call]], str]
    answer: str = ""

    @property
    def name(self) -> str:
        """The name of the format."""
        return self.format.names[0]


def _joined(separator: str, write: Callable[..., str], begin: str = "", end: str = ""):
    def answer(calls: Sequence[Call]) -> str:
        return begin + separator.join(write(*call) for call in calls) + end

    return answer


def _hermes(name: str, arguments: Mapping[str, object]) -> str:
    return f'<tool_call>\n{{"name": "{name}", "arguments": {_json(arguments)}}}\n</tool_call>'


def _llama3(name: str, arguments: Mapping[str, object]) -> str:
    return f'{{"name": "{name}", "parameters": {_json(arguments)}}}'


def _kimi(name: str, arguments: Mapping[str, object]) -> str:
    return (
        f"<|tool_call_begin|>functions.{name}:0<|tool_call_argument_begin|>"
        f"{_json(arguments)}<|tool_call_end|>"
    )


def _deepseek_v3(name: str, arguments: Mapping[str, object]) -> str:
    return (
        f"<｜tool▁call▁begin｜>function<｜tool▁sep｜>{name}\n```json\n{_json(arguments)}\n```"
        "<｜tool▁call▁end｜>"
    )


def _deepseek_v31(name: str, arguments: Mapping[str, object]) -> str:
    return f"<｜tool▁call▁begin｜>{name}<｜tool▁sep｜>{_json(arguments)}<｜tool▁call▁end｜>"


def _deepseek_v32(name: str, arguments: Mapping[str, object]) -> str:
    parameters = "".join(
        f'<｜DSML｜parameter name="{key}" string="{_json(isinstance(value, str))}">'
        f"{_text(value)}</｜DSML｜parameter>\n"
        for key, value in arguments.items()
    )
    return f'<｜DSML｜invoke name="{name}">\n{parameters}</｜DSML｜invoke>'


def _qwen3_coder(name: str, arguments: Mapping[str, object]) -> str:
    parameters = "".join(
        f"<parameter={key}>\n{_text(value)}\n</parameter>\n" for key, value in arguments.items()
    )
    return f"<tool_call>\n<function={name}>\n{parameters}</function>\n</tool_call>"


def _minimax_m2(name: str, arguments: Mapping[str, object]) -> str:
    parameters = "".join(
        f'<parameter name="{key}">{_text(value)}</parameter>\n' for key, value in arguments.items()
    )
    return f'<invoke name="{name}">\n{parameters}</invoke>'


def _glm45(name: str, arguments: Mapping[str, object]) -> str:
    parameters = "".join(
        f"<arg_key>{key}</arg_key>\n<arg_value>{_text(value)}</arg_value>\n"
        for key, value in arguments.items()
    )
    return f"<tool_call>{name}\n{parameters}</tool_call>"


def _glm47(name: str, arguments: Mapping[str, object]) -> str:
    parameters = "".join(
        f"<arg_key>{key}</arg_key><arg_value>{_text(value)}</arg_value>"
        for key, value in arguments.items()
    )
    return f"<tool_call>{name}{parameters}</tool_call>"


def _harmony(name: str, arguments: Mapping[str, object]) -> str:
    return (
        f"<|channel|>commentary to=functions.{name} <|constrain|>json<|message|>{_json(arguments)}"
    )


def _harmony_in_other_order(name: str, arguments: Mapping[str, object]) -> str:
    return (
        "<|channel|>analysis<|message|>I need it.<|end|><|start|>assistant "
        f"to=functions.{name}<|channel|>commentary json<|message|>{_json(arguments)}"
    )


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _text(value: object) -> str:
    return value if isinstance(value, str) else _json(value)


CALLS_BEGIN, CALLS_END = "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"

WRITERS = (
    CallWriter(TOOL_FORMATS["hermes"], _joined("\n", _hermes)),
    CallWriter(TOOL_FORMATS["llama3_json"], _joined("; ", _llama3)),
    CallWriter(
        TOOL_FORMATS["kimi_k2"],
        _joined("", _kimi, "<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"),
    ),
    CallWriter(TOOL_FORMATS["deepseek_v3"], _joined("\n", _deepseek_v3, CALLS_BEGIN, CALLS_END)),
    CallWriter(TOOL_FORMATS["deepseek_v31"], _joined("", _deepseek_v31, CALLS_BEGIN, CALLS_END)),
    CallWriter(
        TOOL_FORMATS["deepseek_v32"],
        _joined(
            "\n",
            _deepseek_v32,
            "\n\n<｜DSML｜function_calls>\n",
            "\n</｜DSML｜function_calls>",
        ),
    ),
    CallWriter(TOOL_FORMATS["qwen3_coder"], _joined("\n", _qwen3_coder)),
    CallWriter(
        TOOL_FORMATS["minimax_m2"],
        _joined("\n", _minimax_m2, "\n<minimax:tool_call>\n", "\n</minimax:tool_call>"),
    ),
    CallWriter(TOOL_FORMATS["glm45"], _joined("\n", _glm45)),
    CallWriter(TOOL_FORMATS["glm47"], _joined("", _glm47)),
    CallWriter(TOOL_FORMATS["openai"], _joined("", _harmony), "<|channel|>final<|message|>"),
    CallWriter(
        TOOL_FORMATS["openai"], _joined("", _harmony_in_other_order), "<|channel|>final<|message|>"
    ),
)
"""Of every format whose calls are enforced in its own form; `answer` stands before an answer that
calls nothing."""
