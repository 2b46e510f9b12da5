"""Structured outputs: a constraint on the form of an answer, checked before an engine sees it."""

import msgspec

from umbel_engine import StructuredOutputs


def check_structured_outputs(constraint: StructuredOutputs, backend: str) -> StructuredOutputs:
    """Check a constraint for a backend; gives it as the engine wants it."""
    return msgspec.structs.replace(constraint, backend=backend)
