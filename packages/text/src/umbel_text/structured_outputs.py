"""Structured outputs: a constraint on the form of an answer, checked before an engine sees it.

Order and messages are those of vllm/sampling_params.py and of the validators of the backends under
vllm/v1/structured_output.  The libraries of the backends are not imported, since they need torch: what
only a compiler can find out is left to the engine, which then refuses the request.  Beyond vLLM's
rules, what would take the engine down or keep it from its other requests is refused.
"""

import json
from collections.abc import Mapping

import msgspec

from umbel_engine import StructuredOutputs
from umbel_text.backends import (
    check_for_enforcer,
    check_for_guidance,
    check_for_outlines,
    is_for_outlines,
)
from umbel_text.errors import InvalidRequestError
from umbel_text.grammars.errors import UnservableError
from umbel_text.grammars.schemas import DEEPEST_SCHEMA, is_deeper
from umbel_text.xgrammar import MOST_CHOICES, check_for_xgrammar

KINDS = ("json", "regex", "choice", "grammar", "json_object", "structural_tag")

LARGEST_CONSTRAINT = 256 * 1024
"""Bytes of a constraint; one that is larger keeps the engine's compiler busy for half a minute."""

DEEPEST_TAG = DEEPEST_SCHEMA + 16
"""How deep objects and arrays may nest in a structural tag, which is around a schema."""


def check_structured_outputs(constraint: StructuredOutputs, backend: str) -> StructuredOutputs:
    """Check a constraint for a backend; gives it as the engine wants it.

    Raises InvalidRequestError for the first fault.  With the backend "auto" it is vLLM's choice:
    xgrammar, and one of the others for what that would refuse.
    """
    check_one_kind(constraint)
    _check_text(constraint)
    _check_content(constraint)
    try:
        checked, chosen = _check_for(constraint, backend)
    except UnservableError as error:
        kind = next(kind for kind in KINDS if getattr(constraint, kind) is not None)
        raise InvalidRequestError(
            f"structured_outputs.{kind} cannot be served: {error}.", "structured_outputs"
        ) from None
    return msgspec.structs.replace(checked, backend=chosen)


def _check_for(constraint: StructuredOutputs, backend: str) -> tuple[StructuredOutputs, str]:
    """Check a constraint for a backend; gives it as that wants it, and the backend's name."""
    if backend.startswith("xgrammar"):
        return check_for_xgrammar(constraint), backend
    if backend.startswith("guidance"):
        check_for_guidance(constraint)
    elif backend == "outlines":
        check_for_outlines(constraint)
    elif backend == "lm-format-enforcer":
        check_for_enforcer(constraint)
    else:
        return _choose(constraint)
    return constraint, backend


def _choose(constraint: StructuredOutputs) -> tuple[StructuredOutputs, str]:
    """Check a constraint for the first backend that takes it; see `_check_for`."""
    try:
        return check_for_xgrammar(constraint), "xgrammar"
    except InvalidRequestError:
        pass
    if constraint.json and is_for_outlines(_schema(constraint.json)):
        check_for_outlines(constraint)
        return constraint, "outlines"
    check_for_guidance(constraint)
    return constraint, "guidance"


def check_one_kind(constraint: StructuredOutputs) -> None:
    """Refuse several constraints at once, and none."""
    count = sum(getattr(constraint, kind) is not None for kind in KINDS)
    if count == 1:
        return
    fields = msgspec.structs.asdict(constraint)
    fields["_backend"] = fields.pop("backend")
    fields["_backend_was_auto"] = False
    if count > 1:
        raise InvalidRequestError(
            "You can only use one kind of structured outputs constraint but multiple are "
            f"specified: {fields}"
        )
    raise InvalidRequestError(
        f"You must use one kind of structured outputs constraint but none are specified: {fields}"
    )


def _check_content(constraint: StructuredOutputs) -> None:
    if constraint.choice is not None:
        if not constraint.choice:
            raise InvalidRequestError(f"Choice '{constraint.choice}' cannot be an empty list")
        if len(constraint.choice) > MOST_CHOICES:
            raise InvalidRequestError(
                f"structured_outputs.choice must have at most {MOST_CHOICES} entries, got "
                f"{len(constraint.choice)}.",
                "structured_outputs",
            )
    for name in ("grammar", "json", "structural_tag"):
        value = getattr(constraint, name)
        if isinstance(value, str) and not value.strip():
            raise InvalidRequestError(f"structured_outputs.{name} cannot be an empty string")
    _check_nesting(constraint.json, DEEPEST_SCHEMA)
    if constraint.json_object is False:
        raise InvalidRequestError(
            "structured_outputs.json_object must be True if set; omit structured_outputs to disable "
            "structured outputs"
        )
    if constraint.regex is not None and "\0" in constraint.regex:
        raise InvalidRequestError(
            "structured_outputs.regex must not contain a NUL character ('\\x00')"
        )
    if constraint.json is not None:
        _schema(constraint.json)
    if constraint.structural_tag is not None:
        check_structural_tag(constraint.structural_tag, "structured_outputs")


def check_structural_tag(text: str, parameter: str) -> None:
    """Refuse a structural tag that is none; `parameter` is the field that it came in."""
    _check_nesting(text, DEEPEST_TAG)
    try:
        tag: object = json.loads(text)
    except ValueError:
        tag = None
    if not isinstance(tag, Mapping) or not _is_tag(tag):
        raise InvalidRequestError(f"Invalid {parameter} structural_tag specification.", parameter)


def _is_tag(tag: Mapping[str, object]) -> bool:
    if "structures" not in tag:
        return isinstance(tag.get("format"), Mapping)
    structures, triggers = tag["structures"], tag.get("triggers")
    return (
        isinstance(structures, list)
        and all(_is_structure(structure) for structure in structures)
        and isinstance(triggers, list)
        and bool(triggers)
        and all(isinstance(trigger, str) and trigger for trigger in triggers)
    )


def _is_structure(structure: object) -> bool:
    return (
        isinstance(structure, Mapping)
        and isinstance(structure.get("begin"), str)
        and isinstance(structure.get("end"), str)
        and isinstance(structure.get("schema"), Mapping)
    )


def _schema(value: str | dict[str, object]) -> object:
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except ValueError:
        raise InvalidRequestError("Invalid JSON grammar specification.") from None


def _check_nesting(value: str | dict[str, object] | None, deepest: int) -> None:
    if value and _is_deeper(value, deepest):
        raise _too_deep(deepest)


def _too_deep(deepest: int) -> InvalidRequestError:
    return InvalidRequestError(
        "The JSON schema is nested too deeply: objects and arrays may nest at most "
        f"{deepest} levels"
    )


def _is_deeper(value: str | dict[str, object], deepest: int) -> bool:
    if not isinstance(value, str):
        return is_deeper(value, deepest)
    try:
        return is_deeper(json.loads(value), deepest)
    except RecursionError:
        return True
    except ValueError:
        return False


def _check_text(constraint: StructuredOutputs) -> None:
    """Refuse what MessagePack has no room for, and what is too large altogether."""
    try:
        size = len(msgspec.msgpack.encode(constraint))
    except (UnicodeEncodeError, OverflowError, ValueError):
        raise InvalidRequestError(
            "structured_outputs must not contain lone surrogates or integers of more than 64 bits.",
            "structured_outputs",
        ) from None
    except RecursionError:
        raise _too_deep(DEEPEST_SCHEMA) from None
    if size > LARGEST_CONSTRAINT:
        raise InvalidRequestError(
            f"structured_outputs must have at most {LARGEST_CONSTRAINT} bytes, got {size}.",
            "structured_outputs",
        )
