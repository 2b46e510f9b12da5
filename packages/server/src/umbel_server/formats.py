"""Which parsers a command line asks for."""

from collections.abc import Iterable
from pathlib import Path
from typing import TypeVar

import msgspec

from umbel_chat import load_chat_template, load_tool_template
from umbel_chat.parsers.detection import ModelFacts
from umbel_chat.parsers.formats import ReasoningFormat, ToolFormat
from umbel_chat.parsers.selection import (
    Formats,
    choose_reasoning_format,
    choose_tool_format,
    formats_of_file,
    installed_formats,
)
from umbel_server.logs import say
from umbel_server.settings import FrontendSettings
from umbel_text.tokenizer import read_json

SettingsT = TypeVar("SettingsT", bound=FrontendSettings)


def with_formats(settings: SettingsT, folder: Path, tokenizer_folder: Path) -> SettingsT:
    """Fill in the names of the parsers, and tell which they are and why.

    Raises FormatError for a name that is not known, and for a plugin that cannot be used.
    """
    formats = _formats(settings)
    config = read_json(folder / "config.json")
    architectures = config.get("architectures")
    templates = [
        load(tokenizer_folder, settings.chat_template)
        for load in (load_chat_template, load_tool_template)
    ]
    facts = ModelFacts(
        settings.model,
        str(config.get("model_type", "")),
        tuple(map(str, architectures)) if isinstance(architectures, list) else (),
        "\n".join(template for template in templates if template is not None),
    )
    tool = choose_tool_format(settings.tool_call_parser, formats, facts)
    reasoning = choose_reasoning_format(settings.reasoning_parser, formats, facts)
    for kind, choice in (("tool call parser", tool), ("reasoning parser", reasoning)):
        if choice.format is not None:
            say(f"{kind}: {choice.name} ({choice.reason})")
    return msgspec.structs.replace(
        settings,
        tool_call_parser=tool.name,
        reasoning_parser=reasoning.name,
    )


def formats_of(settings: FrontendSettings) -> tuple[ToolFormat | None, ReasoningFormat | None]:
    """Give the formats whose names are filled in."""
    formats = _formats(settings)
    return (
        formats.tools.get(settings.tool_call_parser),
        formats.reasoning.get(settings.reasoning_parser),
    )


class AddedToken(msgspec.Struct, frozen=True):
    """A token beside the vocabulary proper."""

    content: str


class TokenizerFile(msgspec.Struct, frozen=True):
    """As much of a `tokenizer.json` as tells which markers are tokens."""

    added_tokens: list[AddedToken] = []


def are_tokens(folder: Path, texts: Iterable[str]) -> bool:
    """Tell whether some texts are one token each of the tokenizer in a folder."""
    try:
        content = (folder / "tokenizer.json").read_bytes()
        file = msgspec.json.decode(content, type=TokenizerFile)
    except (OSError, msgspec.MsgspecError):
        return False
    return {token.content for token in file.added_tokens} >= set(texts)


def _formats(settings: FrontendSettings) -> Formats:
    formats = installed_formats()
    if settings.tool_parser_plugin is None:
        return formats
    return formats.with_more(*formats_of_file(settings.tool_parser_plugin))
