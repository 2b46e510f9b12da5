"""Tokens that mean something to whoever reads the text: where in it their own text ends."""

from collections import deque
from collections.abc import Container, Sequence

import msgspec


class Piece(msgspec.Struct, frozen=True):
    """Text of a sample and the tokens that came with it.

    Where a watched token is among them it is the last one, and its text ends the text.
    """

    text: str
    token_ids: Sequence[int]


class EveryToken:
    """Stands for all tokens there are."""

    def __contains__(self, token_id: object) -> bool:
        return True


class WatchedTokens:
    """Cuts the text of one sample into pieces that end where watched tokens do.

    Text may come out later than its tokens, held back for stop strings; a watched token waits for
    its text, and the tokens after it do, too.
    """

    __slots__ = ("_cut", "_decoded", "_ends", "_given", "_held", "_token_ids")

    def __init__(self, token_ids: Container[int]) -> None:
        self._token_ids = token_ids
        # Characters that were decoded, and that came out.
        self._decoded = 0
        self._given = 0
        # Watched tokens whose text is not out: how many tokens there are up to each, and where in
        # the text it ends.
        self._ends: deque[tuple[int, int]] = deque()
        # Tokens that are in pieces, and those that came and are not.
        self._cut = 0
        self._held: list[int] = []

    def note(self, token_id: int, text: str, count: int) -> None:
        """Take in the text of the next token; `count` tokens have come with it."""
        self._decoded += len(text)
        if token_id in self._token_ids and text:
            self._ends.append((count, self._decoded))

    def cut(self, text: str, token_ids: list[int], is_last: bool) -> list[Piece] | None:
        """Cut text that comes out and tokens that have come, all that is left if these are last.

        None says that they are one piece as they stand.
        """
        base = self._given
        self._given += len(text)
        if not self._ends and not self._held:
            self._cut += len(token_ids)
            return None
        self._held += token_ids
        pieces: list[Piece] = []
        start = taken = 0
        while self._ends and self._ends[0][1] <= self._given:
            count, end = self._ends.popleft()
            upto = taken + count - self._cut
            pieces.append(Piece(text[start : end - base], self._held[taken:upto]))
            start, taken, self._cut = end - base, upto, count
        if is_last:
            self._ends.clear()
        upto = taken + self._ends[0][0] - 1 - self._cut if self._ends else len(self._held)
        if start < len(text) or taken < upto:
            pieces.append(Piece(text[start:], self._held[taken:upto]))
        self._cut += upto - taken
        del self._held[:upto]
        return pieces
