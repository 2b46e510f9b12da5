"""Tokens in, tokens out, n times, on vLLM engine cores."""

from umbel_llm.llm import Llm, StageFactory
from umbel_llm.metrics import ChildStats, LlmMetrics, ParentStats, RequestTiming
from umbel_llm.request import GenerateRequest

__all__ = [
    "ChildStats",
    "GenerateRequest",
    "Llm",
    "LlmMetrics",
    "ParentStats",
    "RequestTiming",
    "StageFactory",
]
