"""What can go wrong between text and tokens.

TextError
├── InvalidRequestError     a request asks for what cannot be done; the client's fault
│   └── InvalidTextError    a text that cannot be encoded
├── ModelNotFoundError      no folder and no hub repository of that name
└── ModelFilesError         a model's files are missing, malformed or not supported
"""

import msgspec


class TextError(Exception):
    """Base class of every error of this package."""


class InvalidRequestError(TextError):
    """Report a value in a request that cannot be served.

    `parameter` is the name of the field at fault, None when no single field is.  `value` is what
    stood there, `msgspec.UNSET` when the answer is not to repeat it.
    """

    def __init__(
        self, message: str, parameter: str | None = None, value: object = msgspec.UNSET
    ) -> None:
        super().__init__(message)
        self.parameter = parameter
        self.value = value


class InvalidTextError(InvalidRequestError):
    """Report a text that is not valid Unicode (lone surrogates), in the tokenizer's own words."""

    def __init__(self) -> None:
        super().__init__(
            "TextEncodeInput must be Union[TextInputSequence, Tuple[InputSequence, InputSequence]]"
        )


class ModelNotFoundError(TextError):
    """Report a model that is neither a folder nor to be had from the hub."""


class ModelFilesError(TextError):
    """Report files of a model that cannot be used, with the file and the reason."""
