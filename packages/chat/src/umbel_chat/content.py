"""The content of a message: its parts, and the form in which a chat template wants it."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, TypeAlias

from jinja2 import nodes

from umbel_chat.errors import InvalidChatError

ContentFormat: TypeAlias = Literal["string", "openai"]
"""Whether a template takes content as one string, or as a list of parts like the API's."""

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


def detect_content_format(template: nodes.Template) -> ContentFormat:
    """Tell from a parsed chat template which content format it was written for.

    It is "openai" when the template has a loop over the content of a message: over an attribute
    `content` of what a loop over the messages yields, over a variable called `content`, or over a
    parameter of a macro that is called with such an attribute.  The rule is that of
    vllm/renderers/hf.py (_detect_content_format).
    """
    messages = _aliases(template, ("messages",))
    contents = {
        (*variable, "content") for variable, source in _loops(template) if source in messages
    }
    in_macros: set[int] = set()
    for macro in template.find_all(nodes.Macro):
        in_macros.update(id(loop) for loop in macro.find_all(nodes.For))
        parameters = _parameters_bound_to(macro, template, contents)
        if any(source in parameters for _, source in _loops(macro, plain=True)):
            return "openai"
    outside = (loop for loop in template.find_all(nodes.For) if id(loop) not in in_macros)
    if any(_is_name(loop.iter, "content") for loop in outside):
        return "openai"
    return "openai" if any(source in contents for _, source in _loops(template)) else "string"


VariablePath: TypeAlias = tuple[str, ...]
"""A variable and attributes of it: `ns.rest` is ("ns", "rest")."""


def _path(node: nodes.Node | None) -> VariablePath | None:
    """Give the variable path that an expression reads, seen through filters, tests and slices."""
    while isinstance(node, (nodes.Filter, nodes.Test)) or (
        isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Slice)
    ):
        node = node.node
    return _plain_path(node)


def _plain_path(node: nodes.Node | None) -> VariablePath | None:
    if isinstance(node, nodes.Name):
        return (node.name,)
    if isinstance(node, nodes.NSRef):
        return (node.name, node.attr)
    if isinstance(node, nodes.Getattr):
        attribute = node.attr
    elif (
        isinstance(node, nodes.Getitem)
        and isinstance(node.arg, nodes.Const)
        and isinstance(node.arg.value, str)
    ):
        attribute = node.arg.value
    else:
        return None
    base = _plain_path(node.node)
    return None if base is None else (*base, attribute)


def _is_name(node: nodes.Node, name: str) -> bool:
    return isinstance(node, nodes.Name) and node.name == name


def _loops(
    root: nodes.Node, plain: bool = False
) -> Iterator[tuple[VariablePath, VariablePath | None]]:
    """Iterate over the loops with one variable: that variable, and what they loop over."""
    for loop in root.find_all(nodes.For):
        if isinstance(loop.target, nodes.Name):
            source = _plain_path(loop.iter) if plain else _path(loop.iter)
            yield (loop.target.name,), source


def _assignments(root: nodes.Node) -> Iterator[tuple[VariablePath, VariablePath]]:
    """Iterate over the assignments of a variable path to another."""
    for assignment in root.find_all(nodes.Assign):
        target = _plain_path(assignment.target)
        if target is None:
            continue
        value = assignment.node
        if isinstance(value, nodes.Call) and _is_name(value.node, "namespace"):
            for keyword in value.kwargs:
                if (source := _path(keyword.value)) is not None:
                    yield (*target, keyword.key), source
        elif (source := _path(value)) is not None:
            yield target, source


def _aliases(root: nodes.Node, start: VariablePath) -> set[VariablePath]:
    """Find all variable paths that the value of one may have been assigned to."""
    assignments = list(_assignments(root))
    found = {start}
    while added := {target for target, source in assignments if source in found} - found:
        found |= added
    return found


def _parameters_bound_to(
    macro: nodes.Macro, root: nodes.Node, paths: set[VariablePath]
) -> set[VariablePath]:
    """Find the parameters of a macro that some call binds to one of the paths."""
    names = [argument.name for argument in macro.args]
    bound: set[VariablePath] = set()
    for call in root.find_all(nodes.Call):
        if not _is_name(call.node, macro.name):
            continue
        arguments = list(zip(names, call.args, strict=False))
        arguments += [(keyword.key, keyword.value) for keyword in call.kwargs]
        bound |= {(name,) for name, value in arguments if name in names and _path(value) in paths}
    return bound
