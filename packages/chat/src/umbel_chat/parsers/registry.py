"""All formats, by the names that they are chosen by."""

from collections.abc import Mapping
from types import MappingProxyType

from umbel_chat.parsers import (
    deepseek,
    deepseek_v32,
    gemma4,
    glm45,
    granite,
    harmony,
    hermes,
    kimi,
    llama3,
    minimax_m2,
    mistral,
    phi4_mini,
    pythonic,
    qwen3_coder,
    think,
)
from umbel_chat.parsers.formats import ReasoningFormat, ToolFormat

TOOL_FORMATS: Mapping[str, ToolFormat] = MappingProxyType(
    {
        name: tool
        for tool in (
            deepseek.DEEPSEEK_V3,
            deepseek.DEEPSEEK_V31,
            deepseek_v32.DEEPSEEK_V32,
            gemma4.GEMMA4,
            glm45.GLM45,
            granite.GRANITE4,
            harmony.OPENAI,
            hermes.HERMES,
            kimi.KIMI_K2,
            llama3.LLAMA3_JSON,
            minimax_m2.MINIMAX_M2,
            mistral.MISTRAL,
            phi4_mini.PHI4_MINI_JSON,
            pythonic.LLAMA4_PYTHONIC,
            pythonic.PYTHONIC,
            qwen3_coder.QWEN3_CODER,
            qwen3_coder.SEED_OSS,
        )
        for name in tool.names
    }
)

REASONING_FORMATS: Mapping[str, ReasoningFormat] = MappingProxyType(
    {
        name: reasoning
        for reasoning in (
            gemma4.GEMMA4_REASONING,
            granite.GRANITE,
            harmony.OPENAI_GPTOSS,
            minimax_m2.MINIMAX_M2_REASONING,
            mistral.MISTRAL_THINK,
            qwen3_coder.SEED_OSS_REASONING,
            think.DEEPSEEK_R1,
            think.DEEPSEEK_V3,
            think.GLM45,
            think.KIMI_K2,
            think.NEMOTRON_V3,
            think.QWEN3,
        )
        for name in reasoning.names
    }
)
