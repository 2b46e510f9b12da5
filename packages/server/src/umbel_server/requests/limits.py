"""The limits on how much one request may ask for, and on n above all."""

from collections.abc import Mapping

from umbel_server.errors import OptionError, bad_request, display, validation_error

MAX_N_OPTION = "--max-n-sequences"
MAX_N_VARIABLE = "VLLM_MAX_N_SEQUENCES"
DEFAULT_MAX_N = 16384
MAX_PROMPTS_VARIABLE = "VLLM_MAX_COMPLETION_PROMPTS"
DEFAULT_MAX_PROMPTS = 1024
DEFAULT_MAX_SEQUENCES = 65536


def read_max_n(option: str | None, environ: Mapping[str, str]) -> int:
    """Give the largest n that is served: the option, else the environment variable, else 16384.

    Both are read like Python's `int()` does; raises OptionError when that fails.
    """
    if option is not None:
        return parse_limit(option, MAX_N_OPTION)
    return parse_limit(environ.get(MAX_N_VARIABLE, str(DEFAULT_MAX_N)), MAX_N_VARIABLE)


def read_max_prompts(environ: Mapping[str, str]) -> int:
    """Give the largest number of prompts in one completion; raises OptionError like `read_max_n`."""
    text = environ.get(MAX_PROMPTS_VARIABLE, str(DEFAULT_MAX_PROMPTS))
    return parse_limit(text, MAX_PROMPTS_VARIABLE)


def parse_limit(text: str, source: str) -> int:
    """Parse a limit; raises OptionError, in one line, naming the source."""
    try:
        return int(text)
    except ValueError:
        shown = text if len(text) <= 40 else text[:40] + "..."
        raise OptionError(f"{source} must be an integer, got {shown!r}.") from None


def check_n(n: int | None, limit: int) -> int:
    """Give the number of answers that a request asks for; None stands for one.

    Raises ApiError with the messages of vllm/sampling_params.py when it is out of range.  Any
    integer is fine: nothing is made n times here.
    """
    if n is None:
        n = 1
    if n < 1:
        raise bad_request(f"n must be at least 1, got {display(n)}.")
    if n > limit:
        raise bad_request(
            f"n must be at most {limit}, got {display(n)}. To increase this limit, set the "
            f"{MAX_N_VARIABLE} environment variable."
        )
    return n


def check_best_of(best_of: int | None, n: int, stream: bool | None, limit: int) -> int:
    """Give the number of samples to choose n answers from; None stands for n.

    Raises ApiError in OpenAI's sense: at least n, and not for a stream, which would have to know
    the best before the end.
    """
    if best_of is None:
        return n
    if best_of < n:
        raise validation_error(
            "You requested that the server return more choices than it will generate: `n` must be "
            "at most `best_of`, or omit either.",
            "best_of",
            best_of,
        )
    if best_of > limit:
        raise validation_error(f"best_of must be at most {limit}.", "best_of", best_of)
    if stream and best_of > n:
        raise validation_error(
            "Results cannot be streamed when `best_of` is greater than `n`.", "best_of", best_of
        )
    return best_of
