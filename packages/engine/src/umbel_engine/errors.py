"""What can go wrong between a frontend and its engines.

EngineError
├── EngineStartError        engines did not come up; says which stage was reached
├── EngineDeadError         the engines are gone; ends every stream and every waiter
├── EngineRequestError      the engine refused or failed one request
├── UtilityError            an engine answered a utility call with a failure
└── InvalidRankError        a request names a data-parallel rank that no engine has
"""


class EngineError(Exception):
    """Base class of every error of this package."""


class EngineStartError(EngineError):
    """Report that engines did not become ready, with the stage that was reached."""


class EngineDeadError(EngineError):
    """Report that the engines are gone and no request can be served any more."""


class EngineRequestError(EngineError):
    """Report that an engine ended one request with an error.

    `code` and `retryable` are the engine's own (vllm/v1/engine/__init__.py, RequestError, since
    0.33); an engine that sends no error object gives code None.  `parameter` is the field of the
    request to blame, where a layer above knows it.
    """

    def __init__(
        self,
        message: str,
        code: str | None = None,
        retryable: bool = False,
        parameter: str | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.retryable = retryable
        self.parameter = parameter


class UtilityError(EngineError):
    """Report that a utility call failed on an engine, in the engine's own words."""


class InvalidRankError(EngineError):
    """Report a data-parallel rank outside the connected engines."""

    def __init__(self, rank: int, engine_count: int) -> None:
        super().__init__(f"data_parallel_rank {rank} is out of range [0, {engine_count}).")
        self.rank = rank
        self.engine_count = engine_count
