"""What is found in the text of a sample, in order."""

from typing import TypeAlias

import msgspec


class ContentDelta(msgspec.Struct, frozen=True, gc=False):
    """Text to append to the content of the answer."""

    text: str


class ReasoningDelta(msgspec.Struct, frozen=True, gc=False):
    """Text to append to the reasoning that comes with the answer."""

    text: str


class ToolCallStart(msgspec.Struct, frozen=True, gc=False):
    """The beginning of a call of a tool.

    `index` counts the calls of a sample from 0.  A parser leaves it and, unless the model itself
    wrote one, the `id` to its caller.
    """

    name: str
    id: str = ""
    index: int = 0


class ArgumentsDelta(msgspec.Struct, frozen=True, gc=False):
    """JSON to append to the arguments of the call that began last."""

    text: str


class ToolCallEnd(msgspec.Struct, frozen=True, gc=False):
    """The end of the call that began last; a call that was cut off has none."""


OutputEvent: TypeAlias = (
    ContentDelta | ReasoningDelta | ToolCallStart | ArgumentsDelta | ToolCallEnd
)
