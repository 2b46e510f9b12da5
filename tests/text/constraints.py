"""Asking whether a constraint is taken."""

from umbel_engine import StructuredOutputs
from umbel_text import InvalidRequestError
from umbel_text.structured_outputs import check_structured_outputs


def refusal(**fields: object) -> str | None:
    """Give why a constraint is refused, None if it is not."""
    constraint = StructuredOutputs(**fields)  # type: ignore[arg-type]
    try:
        check_structured_outputs(constraint, "xgrammar")
    except InvalidRequestError as error:
        return str(error)
    return None
