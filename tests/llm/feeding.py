"""The statistics of children, and outputs to feed them with."""

from umbel_engine import EngineCoreOutput, FinishReason, PrefillStats, Step
from umbel_engine.wire import EngineEvent, RequestFault
from umbel_llm import LlmMetrics
from umbel_llm.metrics import ChildStats, ParentStats

ARRIVAL = 1_000.0


def make_child(
    metrics: LlmMetrics,
    parent: ParentStats | None = None,
    prompt: int = 5,
    max_tokens: int | None = 10,
) -> ChildStats:
    parent = parent or ParentStats(metrics, 1)
    return ChildStats(metrics, parent, ARRIVAL, prompt, max_tokens)


def step_at(timestamp: float, received: float = ARRIVAL, engine: int = 0) -> Step:
    return Step(engine, timestamp, received, [])


def output(
    tokens: int = 1,
    events: list[tuple[int, float]] | None = None,
    prefill: PrefillStats | None = None,
    error: RequestFault | None = None,
) -> EngineCoreOutput:
    return EngineCoreOutput(
        "request",
        [7] * tokens,
        events=[EngineEvent(*event) for event in events] if events else None,
        prefill_stats=prefill,
        error=error,
    )


def run(child: ChildStats, tokens: int, reason: FinishReason = "length", engine: int = 0) -> None:
    """Let a child generate tokens, one per step, and finish."""
    for _ in range(tokens):
        child.feed(output(), step_at(1.0, engine=engine))
    child.finish(reason, step_at(1.0, engine=engine))
