"""All formats, by the names that they are chosen by."""

from collections.abc import Mapping
from types import MappingProxyType

from umbel_chat.parsers import deepseek, harmony, hermes, kimi, think
from umbel_chat.parsers.formats import ReasoningFormat, ToolFormat

TOOL_FORMATS: Mapping[str, ToolFormat] = MappingProxyType(
    {
        name: tool
        for tool in (
            hermes.HERMES,
            deepseek.DEEPSEEK_V3,
            deepseek.DEEPSEEK_V31,
            kimi.KIMI_K2,
            harmony.OPENAI,
        )
        for name in tool.names
    }
)

REASONING_FORMATS: Mapping[str, ReasoningFormat] = MappingProxyType(
    {
        name: reasoning
        for reasoning in (
            think.DEEPSEEK_R1,
            think.DEEPSEEK_V3,
            think.QWEN3,
            think.GLM45,
            think.KIMI_K2,
            think.NEMOTRON_V3,
            harmony.OPENAI_GPTOSS,
        )
        for name in reasoning.names
    }
)
