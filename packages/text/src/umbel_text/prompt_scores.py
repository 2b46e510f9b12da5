"""Prompt scores: log-probabilities of named tokens at the positions of a prompt.

Rules and messages are those of vllm/sampling_params.py and vllm/v1/engine/input_processor.py.
"""

from collections.abc import Sequence

from umbel_text.errors import InvalidRequestError

NAME = "prompt_logprob_token_ids"
START = "prompt_logprob_start"

PADDING = -1
"""What may stand in a row for no token."""


def check_prompt_scores(
    rows: Sequence[Sequence[int]] | None,
    start: int | None,
    *,
    vocabulary_size: int,
    max_token_ids: int,
    max_rows: int,
) -> None:
    """Check rows of token ids as far as that goes without the prompt.

    Raises InvalidRequestError for the first fault.
    """
    if rows is None:
        if start is not None:
            raise InvalidRequestError(f"{START} requires {NAME}.", START, start)
        return
    width = max(map(len, rows), default=0)
    if not width:
        raise InvalidRequestError(
            f"{NAME} must be a non-empty integer array of shape [num_rows, num_ids].", NAME, "list"
        )
    if len(rows) > max_rows:
        raise InvalidRequestError(
            f"{NAME} has {len(rows)} rows, but a prompt has at most {max_rows} scored rows "
            "(max_model_len - 1).",
            NAME,
            len(rows),
        )
    if width > max_token_ids:
        raise InvalidRequestError(
            f"Requested {width} token ids per row in {NAME}, which is greater than max allowed: "
            f"{max_token_ids}. Set max_logprobs (--max-logprobs) to at least {width}.",
            NAME,
            width,
        )
    if any(not 2**63 > token_id >= -(2**63) for row in rows for token_id in row):
        raise InvalidRequestError(f"{NAME} must contain integer token ids.", NAME)
    least = min(min(row, default=PADDING) for row in rows)
    if any(len(row) < width for row in rows):
        least = min(least, PADDING)
    most = max(max(row, default=PADDING) for row in rows)
    if least < PADDING or most >= vocabulary_size:
        raise InvalidRequestError(
            f"{NAME} contain out-of-vocab token ids (-1 pads a row). Vocabulary size: "
            f"{vocabulary_size}",
            NAME,
            [least, most],
        )
    if start is not None and start < 0:
        raise InvalidRequestError(f"{START} must be non-negative.", START, start)


def check_scored_rows(
    rows: Sequence[Sequence[int]] | None, start: int | None, prompt_length: int
) -> None:
    """Refuse a number of rows that is not that of the positions to be scored."""
    if rows is None:
        return
    scored = max(prompt_length - 1 - (start or 0), 0)
    if len(rows) != scored:
        raise InvalidRequestError(
            f"{NAME} has {len(rows)} rows, but the prompt has {scored} scored rows (prompt_len - 1 "
            f"- {START}).",
            NAME,
            len(rows),
        )
