"""Faults in the log: where they happened, and nothing of what was asked or answered.

The text of an exception may quote a prompt, an answer or a key: JSON and type errors do.  So it is
left out; its type and the lines of code that it passed say where to look.
"""

import logging
import traceback


def log_fault(logger: logging.Logger, error: BaseException, message: str, *args: object) -> None:
    """Log an exception that is nobody's but this program's, with its traceback, as an error."""
    logger.error(f"{message}: %s", *args, "\n".join(_described(error)))


def _described(error: BaseException) -> list[str]:
    """Give an exception and those that led to it, the first one first."""
    cause = error.__cause__
    if cause is None and not error.__suppress_context__:
        cause = error.__context__
    earlier = [] if cause is None else [*_described(cause), "which led to"]
    lines = "".join(traceback.format_tb(error.__traceback__)).rstrip()
    return [*earlier, type(error).__qualname__, *([lines] if lines else [])]
