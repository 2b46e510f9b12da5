"""All formats, by the names that they are chosen by."""

from collections.abc import Mapping
from types import MappingProxyType

from umbel_chat.parsers import deepseek_v32, gemma4, glm45, hermes, minimax_m2, qwen3_coder, think
from umbel_chat.parsers.formats import ReasoningFormat, ToolFormat

TOOL_FORMATS: Mapping[str, ToolFormat] = MappingProxyType(
    {
        name: tool
        for tool in (
            hermes.HERMES,
            qwen3_coder.QWEN3_CODER,
            qwen3_coder.SEED_OSS,
            minimax_m2.MINIMAX_M2,
            deepseek_v32.DEEPSEEK_V32,
            glm45.GLM45,
            gemma4.GEMMA4,
        )
        for name in tool.names
    }
)

REASONING_FORMATS: Mapping[str, ReasoningFormat] = MappingProxyType(
    {
        name: reasoning
        for reasoning in (
            think.DEEPSEEK_R1,
            minimax_m2.MINIMAX_M2_REASONING,
            qwen3_coder.SEED_OSS_REASONING,
            gemma4.GEMMA4_REASONING,
        )
        for name in reasoning.names
    }
)
