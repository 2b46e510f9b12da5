"""Tokens in, tokens out, n times, on vLLM engine cores."""

from umbel_llm.admission import AdmissionLimits, Counters
from umbel_llm.errors import QueueFullError
from umbel_llm.family import RequestListener, RequestSummary, StageFactory
from umbel_llm.llm import Llm
from umbel_llm.metrics import ChildStats, LlmMetrics, ParentStats, RequestTiming
from umbel_llm.request import GenerateRequest

__all__ = [
    "AdmissionLimits",
    "ChildStats",
    "Counters",
    "GenerateRequest",
    "Llm",
    "LlmMetrics",
    "ParentStats",
    "QueueFullError",
    "RequestListener",
    "RequestSummary",
    "RequestTiming",
    "StageFactory",
]
