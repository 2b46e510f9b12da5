"""What can go wrong between messages and a prompt.

ChatError
├── ChatTemplateError       the deployment's chat template cannot be read or compiled
└── InvalidChatError        a request that the chat layer refuses
    └── InvalidMessageError a message that does not have the shape of the API
"""

import msgspec


class ChatError(Exception):
    """Base class of every error of this package."""


class ChatTemplateError(ChatError):
    """Report a chat template that no request could be rendered with; meant to stop the start."""


class InvalidChatError(ChatError):
    """Report a request that cannot become a prompt, in words for the client.

    `parameter` is the field to blame, None where vLLM names none.  `value` is what stood there,
    `msgspec.UNSET` when the answer is not to repeat it.
    """

    def __init__(
        self, message: str, parameter: str | None = None, value: object = msgspec.UNSET
    ) -> None:
        super().__init__(message)
        self.parameter = parameter
        self.value = value


class InvalidMessageError(InvalidChatError):
    """Report a message that is refused as a malformed body; `parameter` is its path in the body."""
