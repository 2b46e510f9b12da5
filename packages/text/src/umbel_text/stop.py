"""Stop strings: find the first one that completes, hold back what may become one."""

from collections.abc import Sequence


class StopMatcher:
    """Search the text of one sample for stop strings, token by token.

    The text of every token is fed in order, empty texts included, because `min_tokens` counts
    tokens.  A stop string counts when it completes in the text of a token after the first
    `min_tokens`; it may begin before.  Where several complete in one token, the one that completes
    earliest wins, then the one that stands first in the list.

    Unless stop strings are included in the output, the last `max(len(stop)) - 1` characters are
    held back, because they may be the beginning of one.  Only that many characters are kept.

    The rules are those of vllm/v1/engine/detokenizer.py.  Raises ValueError for an empty stop
    string.
    """

    __slots__ = (
        "_has_matched",
        "_include_in_output",
        "_stop",
        "_tokens_to_skip",
        "_window",
        "_window_size",
    )

    def __init__(
        self, stop: Sequence[str], include_in_output: bool = False, min_tokens: int = 0
    ) -> None:
        if not all(stop):
            raise ValueError("a stop string must not be empty")
        self._stop = stop
        self._has_matched = False
        self._include_in_output = include_in_output
        self._tokens_to_skip = min_tokens
        self._window_size = max(map(len, stop), default=1) - 1
        # The end of the text so far: a match may begin in it.  It is also what is held back.
        self._window = ""

    def feed(self, text: str) -> tuple[str, str | None]:
        """Take in the text of the next token.

        Gives the text that is released by it, and the stop string that was found, with which the
        text has ended: tokens fed after it are ignored.
        """
        if self._has_matched:
            return "", None
        is_searched = self._tokens_to_skip <= 0
        self._tokens_to_skip -= 1
        if not text:
            return "", None
        window = self._window
        joined = window + text
        if is_searched:
            stop, end = self._find(joined, len(window))
            if stop is not None:
                self._has_matched = True
                self._window = ""
                if self._include_in_output:
                    return joined[len(window) : end], stop
                return joined[: end - len(stop)], stop
        kept_from = max(len(joined) - self._window_size, 0)
        self._window = joined[kept_from:]
        return (text if self._include_in_output else joined[:kept_from]), None

    def _find(self, joined: str, searched: int) -> tuple[str | None, int]:
        """Find the stop string that completes first after `searched` characters, and its end."""
        first: str | None = None
        first_end = len(joined) + 1
        for stop in self._stop:
            index = joined.find(stop, max(searched + 1 - len(stop), 0))
            if index != -1 and index + len(stop) < first_end:
                first = stop
                first_end = index + len(stop)
        return first, first_end

    def finish(self) -> str:
        """Release what is held back, because no more text comes."""
        held = "" if self._include_in_output else self._window
        self._window = ""
        return held
