"""The content of a message: its parts, and how they become one text."""

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from umbel_chat.errors import InvalidChatError

Part: TypeAlias = dict[str, object]
"""A content part in the form that templates see."""

TEXT_FIELDS: Mapping[str, str] = {
    "text": "text",
    "input_text": "text",
    "output_text": "text",
    "refusal": "refusal",
    "thinking": "thinking",
}
"""The part types that carry text, and the field that it is in."""

MEDIA_TYPES = frozenset(
    {
        "image_url",
        "input_image",
        "image_pil",
        "image_embeds",
        "audio_url",
        "input_audio",
        "audio_embeds",
        "video_url",
        "video_embeds",
    }
)

EMBEDDING_TYPES = frozenset({"image_embeds", "audio_embeds", "video_embeds"})

# Fields that the API gives a meaning to. Others are handed on to the template, for which they are
# meant (vllm/renderers/chat_utils/chat_message.py, _KNOWN_CONTENT_PART_FIELDS).
KNOWN_FIELDS = MEDIA_TYPES | {
    "closed",
    "data",
    "file",
    "name",
    "prompt_cache_breakpoint",
    "refusal",
    "text",
    "thinking",
    "type",
    "uuid",
}

NO_EMBEDDED_PROMPT = (
    "prompt_embeds content part requires a non-empty `data` field with base64-encoded tensor bytes."
)
NO_PROMPT_EMBEDS = "You must set `--enable-prompt-embeds` to input `prompt_embeds`"


def read_parts(parts: Sequence[object], model_name: str, path: str) -> list[Part]:
    """Read content parts, a string standing for a part of type text.

    A part of type text or refusal whose text is null is skipped.  Raises InvalidChatError for a
    part that is no text, `path` being the place of the parts in the request.
    """
    read: list[Part] = []
    for index, part in enumerate(parts):
        if isinstance(part, str):
            read.append({"type": "text", "text": part})
        elif (object_read := read_part(part, model_name, f"{path}.{index}")) is not None:
            read.append(object_read)
    return read


def read_part(part: object, model_name: str, path: str) -> Part | None:
    """Read one content part that is no plain string; None for one that is to be skipped."""
    if not isinstance(part, Mapping):
        raise InvalidChatError(f"{path} must be an object or a string.")
    kind = part_type(part)
    if kind in TEXT_FIELDS:
        return read_text_part(part, kind, path)
    if kind == "tool_reference":
        if not isinstance(part.get("name"), str):
            raise InvalidChatError(f"{path}.name must be a string.")
        return {"type": kind, "name": part["name"]}
    if kind == "prompt_embeds":
        message = NO_PROMPT_EMBEDS if part.get("data") else NO_EMBEDDED_PROMPT
        raise InvalidChatError(message, "prompt_embeds")
    if kind in EMBEDDING_TYPES:
        raise InvalidChatError("The model is not multimodal.")
    if kind in MEDIA_TYPES:
        raise InvalidChatError(f"{model_name} is not a multimodal model")
    # The message is vLLM's, which names the types that some model takes.
    supported = ", ".join(sorted({*TEXT_FIELDS, *MEDIA_TYPES, "prompt_embeds", "tool_reference"}))
    raise InvalidChatError(
        f"Unsupported chat content part type: {kind!r}. Supported types: {supported}.", "type", kind
    )


def part_type(part: Mapping[str, object]) -> str:
    """Give the type of a part; one that states none may be recognized by a field of its own."""
    kind = part.get("type")
    if isinstance(kind, str):
        return kind
    if kind is not None:
        raise InvalidChatError("Invalid 'type' field in multimodal part.", "type")
    for candidate in sorted(MEDIA_TYPES | {"prompt_embeds", "tool_reference"}):
        if candidate in part and candidate != "input_image":
            return candidate
    raise InvalidChatError("Missing 'type' field in multimodal part.", "type")


def read_text_part(part: Mapping[str, object], kind: str, path: str) -> Part | None:
    """Read a part that carries text, which becomes one of type text."""
    field = TEXT_FIELDS[kind]
    text = part.get(field)
    if text is None and field in part and kind in ("text", "refusal"):
        return None
    if not isinstance(text, str):
        raise InvalidChatError(f"{path}.{field} must be a string.")
    extra = {name: value for name, value in part.items() if name not in KNOWN_FIELDS}
    return {"type": "text", "text": text, **extra}


def join_parts(parts: Sequence[Part]) -> str:
    """Join parts to one string, a line or more for each; empty ones leave no empty line."""
    texts = [str(part["text"] if part["type"] == "text" else part["name"]) for part in parts]
    return "\n".join(text for text in texts if text)
