"""What the llm layer refuses.

Exception
└── QueueFullError          a request was not admitted because of what is running already
"""


class QueueFullError(Exception):
    """Report a request that was turned away because of the load; it may be sent again.

    `reason` is the name of the limit, as in `AdmissionLimits`.  The message is vLLM's
    (vllm/exceptions.py).
    """

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
