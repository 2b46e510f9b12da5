"""How a piece of a grammar can begin, and the sets of characters that that is told in."""

from collections.abc import Iterable
from functools import reduce
from operator import or_
from typing import NamedTuple

OTHERS = 1 << 128
"""The bit of every character that is not ASCII; the others are those of the ASCII codes."""

EVERYTHING = (OTHERS << 1) - 1

LONGEST_HEAD = 256
"""The characters of the beginning of a piece that are kept once it is part of another."""


class Head(NamedTuple):
    """How a piece can begin: a text, the characters that can follow it, and whether it may be over."""

    text: str
    next: int
    may_end: bool = False

    @property
    def first(self) -> int:
        """The characters that it can begin with."""
        return bit(ord(self.text[0])) if self.text else self.next

    def after(self, length: int) -> int:
        """Give the characters that can follow the first `length` ones of the text."""
        return bit(ord(self.text[length])) if len(self.text) > length else self.next


Heads = tuple[Head, ...]
"""How a piece can begin, with at most one head for each first character of a text."""


def bit(code: int) -> int:
    """Give the set of one character, by its code point."""
    return 1 << code if code < 128 else OTHERS


def span(low: int, high: int) -> int:
    """Give the set of the characters between two code points, both included."""
    bits = OTHERS if high >= 128 else 0
    if low < 128:
        top = min(high, 127)
        bits |= ((1 << (top - low + 1)) - 1) << low
    return bits


def any_of(bits: int) -> Heads:
    """Give the heads of what begins with any character of a set."""
    return (Head("", bits),) if bits else ()


def first_of(heads: Heads) -> int:
    """Give the characters that any of the heads begins with."""
    return reduce(or_, (head.first for head in heads), 0)


def gone_on(head: Head, first: int, may_end: bool) -> Head:
    """Give a head after which more may come, where its piece is over, that begins with `first`."""
    return head._replace(next=head.next | first, may_end=may_end) if head.may_end else head


def cut(head: Head) -> Head:
    """Keep the beginning of a text that is too long to be looked at again and again."""
    if len(head.text) <= LONGEST_HEAD:
        return head
    return Head(head.text[:LONGEST_HEAD], head.after(LONGEST_HEAD))


def common(one: Head, two: Head) -> int:
    """Give the characters that both can have where the text that they share is over."""
    length = shared_length(one.text, two.text)
    return one.after(length) & two.after(length)


def shared_length(one: str, two: str) -> int:
    """Give how many characters two texts have in common before they differ."""
    length = min(len(one), len(two))
    if one[:length] == two[:length]:
        return length
    return next(index for index in range(length) if one[index] != two[index])


def merged(heads: Iterable[Head]) -> Heads:
    """Make one head of those whose texts begin alike."""
    by_start: dict[str, Head] = {}
    for head in dict.fromkeys(heads):
        key = head.text[:1]
        old = by_start.get(key)
        if old is None:
            by_start[key] = head
            continue
        text = head.text[: shared_length(old.text, head.text)]
        may_end = any(one.may_end and one.text == text for one in (old, head))
        by_start[key] = Head(text, old.after(len(text)) | head.after(len(text)), may_end)
    return tuple(by_start[key] for key in sorted(by_start))
