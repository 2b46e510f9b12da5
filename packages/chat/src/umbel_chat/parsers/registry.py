"""All formats, by the names that they are chosen by."""

from collections.abc import Mapping
from types import MappingProxyType

from umbel_chat.parsers import granite, hermes, llama3, mistral, phi4_mini, pythonic, think
from umbel_chat.parsers.formats import ReasoningFormat, ToolFormat

TOOL_FORMATS: Mapping[str, ToolFormat] = MappingProxyType(
    {
        name: tool
        for tool in (
            granite.GRANITE4,
            hermes.HERMES,
            llama3.LLAMA3_JSON,
            mistral.MISTRAL,
            phi4_mini.PHI4_MINI_JSON,
            pythonic.LLAMA4_PYTHONIC,
            pythonic.PYTHONIC,
        )
        for name in tool.names
    }
)

REASONING_FORMATS: Mapping[str, ReasoningFormat] = MappingProxyType(
    {
        name: reasoning
        for reasoning in (granite.GRANITE, mistral.MISTRAL_THINK, think.DEEPSEEK_R1)
        for name in reasoning.names
    }
)
