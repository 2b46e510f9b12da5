"""What the backends besides xgrammar take, as far as it can be told without their libraries.

The rules are those of vllm/v1/structured_output/backend_guidance.py, backend_outlines.py and
backend_lm_format_enforcer.py.
"""

import json
import re
import warnings
from collections.abc import Iterable, Mapping
from re import _constants as words  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

from umbel_engine import StructuredOutputs
from umbel_text.errors import InvalidRequestError
from umbel_text.grammars.schemas import objects_in


def check_for_guidance(constraint: StructuredOutputs) -> None:
    """Refuse what guidance has no grammar for."""
    try:
        if constraint.json is not None:
            schema: object = constraint.json
            if isinstance(schema, str):
                schema = json.loads(schema)
            if not isinstance(schema, Mapping):
                raise ValueError("Expecting object schema to apply options")
        elif constraint.structural_tag is not None:
            _check_triggers(json.loads(constraint.structural_tag))
    except (ValueError, KeyError, TypeError) as error:
        raise InvalidRequestError(f"Invalid grammar specification: {error}") from None


def _check_triggers(tag: Any) -> None:
    """Refuse a structural tag in which nothing triggers a structure."""
    triggers = tag["triggers"]
    structures = tag["structures"]
    for structure in structures:
        begin = structure["begin"]
        if not any(begin.startswith(trigger) for trigger in triggers):
            raise InvalidRequestError(f"Trigger {begin} not found in triggers {triggers}")
        _ = structure["schema"], structure["end"]
    if not structures:
        raise InvalidRequestError("No structural tags found in the grammar spec.")


def is_for_outlines(schema: object) -> bool:
    """Say whether a JSON schema has patterns for names, which guidance does not know."""
    return any("patternProperties" in node for node in objects_in(schema))


def check_for_outlines(constraint: StructuredOutputs) -> None:
    """Refuse what outlines has no regular expression for, or cannot begin to match."""
    if constraint.regex is not None:
        _check_buildable(constraint.regex)
    elif constraint.json is not None:
        _check_json(constraint.json)
    elif not constraint.choice:
        raise InvalidRequestError(
            f"Outlines structured outputs backend does not support {_unsupported(constraint)}"
        )


def check_for_enforcer(constraint: StructuredOutputs) -> None:
    """Refuse what LM Format Enforcer does not know."""
    if constraint.json is not None:
        _check_json(constraint.json)
    elif constraint.regex is None and not constraint.choice and not constraint.json_object:
        raise InvalidRequestError(
            "LM Format Enforcer structured outputs backend does not support "
            f"{_unsupported(constraint)}"
        )


def _unsupported(constraint: StructuredOutputs) -> str:
    for kind in ("json_object", "grammar", "structural_tag"):
        if getattr(constraint, kind):
            return f"{kind} specifications"
    return "this structured outputs specification"


def _check_json(schema: str | dict[str, object]) -> None:
    if isinstance(schema, str):
        try:
            json.loads(schema)
        except ValueError:
            raise InvalidRequestError("Invalid JSON grammar specification.") from None


def _check_buildable(pattern: str) -> None:
    """Refuse a regular expression that is none, or that has no beginning of its own."""
    try:
        with warnings.catch_warnings(action="ignore"):
            parsed = parser.parse(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        raise InvalidRequestError(f"Error parsing regex: {error}") from None
    if (unsupported := _unsupported_feature(parsed)) is not None:
        raise InvalidRequestError(
            f"Regex uses unsupported feature for structured outputs: {unsupported}. Only basic "
            "matching constructs are supported—lookarounds, backreferences, and unicode boundaries "
            "are not."
        )
    if _needs_context(parsed):
        raise InvalidRequestError(
            "Regex does not have a anchored universal start stateThis means that the Regex uses "
            "anchors (^) or look-arounds in a way which requires context before any token is "
            "matched.structured outputs needs regexes that can match without needing that context. "
            f"Try rewriting the pattern without using these constructs. Pattern:\n{pattern}"
        )


def _unsupported_feature(parsed: Iterable[tuple[object, Any]]) -> str | None:
    for kind, value in parsed:
        inner: Iterable[object] = value if isinstance(value, tuple) else (value,)
        if kind in (parser.GROUPREF, parser.GROUPREF_EXISTS):
            return "Backreferences are unsupported."
        if kind in (words.ASSERT, words.ASSERT_NOT):
            return "Look-Around assertion are unsupported."
        if kind == parser.AT and value in (words.AT_BOUNDARY, words.AT_NON_BOUNDARY):
            return "Unicode word boundaries are unsupported."
        if kind == parser.BRANCH:
            inner = value[1]
        for part in inner:
            if isinstance(part, parser.SubPattern):
                found = _unsupported_feature(part)
                if found is not None:
                    return found
    return None


CONSUMERS = (parser.LITERAL, parser.IN, parser.ANY)


def _needs_context(parsed: Iterable[tuple[object, Any]]) -> bool:
    """Say whether an anchor comes before the first character."""
    for kind, value in parsed:
        if kind in (parser.AT, words.ASSERT, words.ASSERT_NOT):
            return True
        if kind in CONSUMERS:
            return False
        for part in _parts(kind, value):
            if _needs_context(part):
                return True
        if any(_consumes(part) for part in _parts(kind, value)):
            return False
    return False


def _consumes(parsed: Iterable[tuple[object, Any]]) -> bool:
    return any(
        kind in CONSUMERS
        or (
            (kind != parser.MAX_REPEAT or value[1] != 0)
            and any(map(_consumes, _parts(kind, value)))
        )
        for kind, value in parsed
    )


def _parts(kind: object, value: Any) -> list[Any]:
    """Give the patterns within a group, a choice or a repetition."""
    if kind == parser.SUBPATTERN:
        return [value[3]]
    if kind == parser.MAX_REPEAT:
        return [value[2]]
    return list(value[1]) if kind == parser.BRANCH else []
