"""The tools of a request, and which of them the model may or must call."""

from collections.abc import Mapping
from typing import Literal, TypeAlias

import msgspec


class Tool(msgspec.Struct, frozen=True):
    """A function that the model may call.

    `parameters` is the JSON schema of its arguments, `strict` says whether that is to be enforced.
    `definition` is the tool as chat templates see it.
    """

    name: str
    definition: Mapping[str, object]
    parameters: Mapping[str, object] | None = None
    strict: bool | None = None


class NamedTool(msgspec.Struct, frozen=True):
    """The one tool that has to be called."""

    name: str


ToolChoice: TypeAlias = Literal["none", "auto", "required"] | NamedTool
