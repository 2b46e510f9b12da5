"""Talk to vLLM engine cores: handshake, requests, outputs, aborts and utility calls."""

from umbel_engine.client import EngineClient, EngineOptions
from umbel_engine.errors import (
    EngineDeadError,
    EngineError,
    EngineRequestError,
    EngineStartError,
    InvalidRankError,
    UtilityError,
)
from umbel_engine.greeter import EngineGreeter
from umbel_engine.messages import (
    ABORTED,
    Extras,
    Finish,
    Logprobs,
    Stage,
    Step,
    TokenBuffer,
    TokenDelta,
    TokenStage,
    WeightVersionSpan,
)
from umbel_engine.process import EngineProcess, EngineProcessOptions
from umbel_engine.routing import Engine
from umbel_engine.samples import Child, Fanout, OpenFanout, Sample, Samples, Sink, merge
from umbel_engine.wire import (
    Addresses,
    EngineCoreOutput,
    EngineCoreOutputs,
    EngineCoreRequest,
    FinishReason,
    PrefillStats,
    RepetitionDetection,
    SamplingParams,
    SchedulerStats,
    StructuredOutputs,
)

__all__ = [
    "ABORTED",
    "Addresses",
    "Child",
    "Engine",
    "EngineClient",
    "EngineCoreOutput",
    "EngineCoreOutputs",
    "EngineCoreRequest",
    "EngineDeadError",
    "EngineError",
    "EngineGreeter",
    "EngineOptions",
    "EngineProcess",
    "EngineProcessOptions",
    "EngineRequestError",
    "EngineStartError",
    "Extras",
    "Fanout",
    "Finish",
    "FinishReason",
    "InvalidRankError",
    "Logprobs",
    "OpenFanout",
    "PrefillStats",
    "RepetitionDetection",
    "Sample",
    "Samples",
    "SamplingParams",
    "SchedulerStats",
    "Sink",
    "Stage",
    "Step",
    "StructuredOutputs",
    "TokenBuffer",
    "TokenDelta",
    "TokenStage",
    "UtilityError",
    "WeightVersionSpan",
    "merge",
]
