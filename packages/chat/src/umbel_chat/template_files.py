"""The chat templates that come with a model.

Which files they are in, and which of several is taken, is the rule of transformers' tokenizers and
of vllm/renderers/chat_utils/chat_template.py.
"""

import json
from collections.abc import Mapping
from pathlib import Path

from umbel_chat.errors import ChatTemplateError

DEFAULT, FOR_TOOLS = "default", "tool_use"
"""What models with several templates call those that requests get, without and with tools."""


def load_chat_template(folder: Path, given: str | None = None) -> str | None:
    """Load the source of the chat template for the model in a folder.

    `given` is a file or the template itself; otherwise it is `chat_template.jinja` of the folder,
    or the entry `chat_template` of its `tokenizer_config.json` (the one called "default" of
    several).  None when there is none.  Raises ChatTemplateError when it cannot be read.
    """
    return _templates(folder).get(DEFAULT) if given is None else _load_given(given)


def load_tool_template(folder: Path, given: str | None = None) -> str | None:
    """Load the source of the chat template for requests with tools, if there is one of its own.

    It is the one called "tool_use" of several: a file in `additional_chat_templates`, or an entry of
    `tokenizer_config.json`.  None where a template is `given`: that is for all requests.  Raises
    ChatTemplateError when it cannot be read.
    """
    return _templates(folder).get(FOR_TOOLS) if given is None else None


def _templates(folder: Path) -> Mapping[str, str]:
    """Load the templates of a model by name: those in files, or else those in its configuration."""
    file = folder / "chat_template.jinja"
    try:
        found = {DEFAULT: file.read_text(encoding="utf-8")} if file.is_file() else {}
        for file in (folder / "additional_chat_templates").glob("*.jinja"):
            found[file.stem] = file.read_text(encoding="utf-8")
        file = folder / "tokenizer_config.json"
        if found or not file.is_file():
            return found
        config = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ChatTemplateError(f"cannot read the chat template from {file}: {error}") from error
    return _by_name(config.get("chat_template")) if isinstance(config, dict) else {}


def _by_name(templates: object) -> Mapping[str, str]:
    if isinstance(templates, str):
        return {DEFAULT: templates}
    entries: list[tuple[object, object]] = []
    if isinstance(templates, dict):
        entries += templates.items()
    elif isinstance(templates, list):
        objects = [entry for entry in templates if isinstance(entry, dict)]
        entries += [(entry.get("name"), entry.get("template")) for entry in objects]
    return {name: text for name, text in entries if isinstance(name, str) and isinstance(text, str)}


def _load_given(given: str) -> str:
    try:
        return Path(given).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        if any(character in given for character in "{}\n"):
            return given
        raise ChatTemplateError(
            f"The supplied chat template ({given}) looks like a file path, but it failed to be "
            f"opened. Reason: {error}"
        ) from error
