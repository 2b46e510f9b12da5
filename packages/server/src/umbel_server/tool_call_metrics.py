"""How often calls were looked for in samples, under vLLM's name (vllm/parser/metrics.py)."""

from prometheus_client import CollectorRegistry, Counter

MODES = {False: "non_streaming", True: "streaming"}
OUTCOMES = {False: "no_tool_call", True: "tool_call"}
COUNTED, UNCOUNTED = "chat_completions", ("responses", "other")
"""The types of requests whose samples are counted, and those that are shown with 0."""


class ToolCallMetrics:
    """Counts samples in which the model's parser looked for calls, each once, at its end."""

    def __init__(self, model_name: str, registry: CollectorRegistry) -> None:
        counter = Counter(
            "vllm:tool_call_parser_invocations",
            "Samples in which a parser looked for tool calls.",
            ("model_name", "mode", "outcome", "request_type"),
            registry=registry,
        )
        # Finding the series of some labels takes longer than to count in it.
        self._series = {
            (streams, has_calls): counter.labels(model_name, mode, outcome, COUNTED)
            for streams, mode in MODES.items()
            for has_calls, outcome in OUTCOMES.items()
        }
        for mode in MODES.values():
            for outcome in OUTCOMES.values():
                for request_type in UNCOUNTED:
                    counter.labels(model_name, mode, outcome, request_type)

    def count(self, streams: bool, has_calls: bool) -> None:
        """Count a sample by whether it was streamed, and whether there were calls in it."""
        self._series[streams, has_calls].inc()
