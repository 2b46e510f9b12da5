"""The text of one sample as it comes, for parsers that read it like a file.

A parser is a generator: where it needs text that is not there yet it yields, and goes on when there
is more.  So it is written as if the whole text were there, and cannot depend on how it was cut.
"""

import re
from collections.abc import Callable, Generator
from collections.abc import Set as AbstractSet
from typing import TypeAlias, TypeVar

ResultT = TypeVar("ResultT")

Steps: TypeAlias = Generator[None, None, ResultT]
"""A part of a parser: it yields where it waits for text, and gives a result."""

Emit: TypeAlias = Callable[[str], object]
"""Takes text as it is read; the pieces mean nothing, only what they are together."""

SPACE = re.compile(r"\s+")


class MarkerSearch:
    """Finds the first of some markers; none of them may begin with another.

    `tokens` are those that count only where their own token was sampled.
    """

    __slots__ = ("_heads", "_longest", "_markers", "_pattern", "_tokens")

    def __init__(self, markers: tuple[str, ...], tokens: AbstractSet[str]) -> None:
        for marker in markers:
            if any(other != marker and other.startswith(marker) for other in markers):
                raise ValueError(f"another marker begins with {marker!r}")
        self._markers = markers
        self._pattern = re.compile("|".join(map(re.escape, markers)))
        self._heads = frozenset(marker[0] for marker in markers)
        self._longest = max(map(len, markers))
        self._tokens = tokens

    def find(
        self, text: str, start: int, base: int, ends: AbstractSet[int]
    ) -> re.Match[str] | None:
        """Find the first marker from `start` on.

        `base` is the place of the text in the whole output, `ends` are the places there at which
        tokens end that are markers.
        """
        match = self._pattern.search(text, start)
        while (
            match is not None and match.group() in self._tokens and base + match.end() not in ends
        ):
            match = self._pattern.search(text, match.start() + 1)
        return match

    def open_at(self, text: str, start: int) -> int:
        """Give the place from which on the text may be the beginning of a marker."""
        for place in range(max(start, len(text) - self._longest + 1), len(text)):
            if text[place] in self._heads:
                rest = text[place:]
                if any(
                    len(marker) > len(rest) and marker.startswith(rest) for marker in self._markers
                ):
                    return place
        return len(text)


class Markers:
    """The markers of a model's protocol, shared by all samples.

    `tokens` are the markers that are one token each of the model's tokenizer.
    """

    def __init__(self, tokens: AbstractSet[str] = frozenset()) -> None:
        self.tokens = tokens
        self._searches: dict[tuple[str, ...], MarkerSearch] = {}

    def search(self, markers: tuple[str, ...]) -> MarkerSearch:
        """Give what finds these markers."""
        search = self._searches.get(markers)
        if search is None:
            search = self._searches[markers] = MarkerSearch(markers, self.tokens)
        return search


class Source:
    """The text of one sample, or of a part of it, as it comes.

    A marker that is a token counts only where that token was sampled: the same characters may be
    part of an answer.
    """

    __slots__ = ("_at", "_base", "_ends", "_held", "_kept", "_markers", "_text", "ended")

    def __init__(self, markers: Markers, base: int = 0, ends: set[int] | None = None) -> None:
        self._markers = markers
        self._text = ""
        # Where reading goes on, and from where on the text is kept, in `_text`; the text that was
        # kept before that is in pieces, so that keeping takes no longer the more there is.
        self._at = 0
        self._kept: int | None = None
        # What is kept and no longer in `_text`, which would grow with it.
        self._held: list[str] = []
        # The place of `_text` in the whole output.
        self._base = base
        self._ends: set[int] = set() if ends is None else ends
        self.ended = False

    def push(self, text: str, ends_with_marker: bool = False) -> None:
        """Append text; `ends_with_marker` says that a token ends with it which may be a marker."""
        if self._kept is not None:
            self._held.append(self._text[self._kept : self._at])
            self._kept = 0
        self._text = self._text[self._at :] + text
        self._base += self._at
        self._at = 0
        if ends_with_marker:
            self._ends.add(self._base + len(self._text))

    def end(self) -> None:
        """Say that no more text comes."""
        self.ended = True

    @property
    def is_empty(self) -> bool:
        """Whether all text that has come is read."""
        return self._at == len(self._text)

    def until(self, markers: tuple[str, ...], emit: Emit) -> Steps[str | None]:
        """Read up to the first of the markers and past it; gives it, or None at the end."""
        marker = yield from self.before(markers, emit)
        if marker is not None:
            self._at += len(marker)
        return marker

    def before(self, markers: tuple[str, ...], emit: Emit) -> Steps[str | None]:
        """Read up to the first of the markers, but not past it; gives it, or None at the end."""
        search = self._markers.search(markers)
        while True:
            text, at = self._text, self._at
            match = search.find(text, at, self._base, self._ends)
            # What may become a longer marker comes first if it begins first.
            stop = len(text) if self.ended else search.open_at(text, at)
            if match is not None and match.start() <= stop:
                self._pass_on(match.start(), emit)
                return match.group()
            self._pass_on(stop, emit)
            if self.ended:
                return None
            yield

    def _pass_on(self, stop: int, emit: Emit) -> None:
        if stop > self._at:
            text = self._text[self._at : stop]
            self._at = stop
            emit(text)

    def rest(self, emit: Emit) -> Steps[None]:
        """Read all that comes."""
        while True:
            self._pass_on(len(self._text), emit)
            if self.ended:
                return
            yield

    def take(self, *options: str) -> Steps[str]:
        """Read past the longest of some texts that comes next; gives it, "" when none does."""
        while True:
            text, at, ended = self._text, self._at, self.ended
            best = ""
            waits = False
            for option in options:
                if text.startswith(option, at) and self._counts(option, at + len(option)):
                    best = max(best, option, key=len)
                elif not ended and len(text) - at < len(option) and option.startswith(text[at:]):
                    waits = True
            if not waits:
                self._at += len(best)
                return best
            yield

    def _counts(self, text: str, end: int) -> bool:
        return text not in self._markers.tokens or self._base + end in self._ends

    def peek(self) -> Steps[str]:
        """Give the next character without reading past it; "" at the end."""
        while self._at == len(self._text):
            if self.ended:
                return ""
            yield
        return self._text[self._at]

    def advance(self) -> None:
        """Read past the character that `peek` gave."""
        self._at += 1

    def run(self, pattern: re.Pattern[str], emit: Emit) -> Steps[None]:
        """Read as far as a pattern matches, which must match every part of what it matches."""
        while True:
            match = pattern.match(self._text, self._at)
            if match is not None:
                self._pass_on(match.end(), emit)
            if self._at < len(self._text) or self.ended:
                return
            yield

    def space(self) -> Steps[None]:
        """Read past whitespace."""
        yield from self.run(SPACE, ignore)

    def keep(self) -> None:
        """Keep what is read from here on, for `kept`."""
        self._kept = self._at
        self._held.clear()

    def kept(self) -> str:
        """Give what was read since `keep`, which ends with this."""
        text = "".join(self._held) + self._text[self._kept : self._at]
        self._kept = None
        self._held.clear()
        return text

    def part(self) -> "Source":
        """Give a source for a part that begins here; see `within`."""
        return Source(self._markers, self._base + self._at, self._ends)


def within(
    source: Source, markers: tuple[str, ...], read: Callable[[Source], Steps[ResultT]]
) -> Steps[tuple[ResultT, str | None]]:
    """Read a part of the text that ends before the first of the markers, and past that.

    `read` gets a source that ends there, so nothing malformed in the part reaches beyond it.  Gives
    its result and the marker, None when the text ended first.
    """
    part = source.part()
    steps = read(part)
    results: list[ResultT] = []

    def resume() -> None:
        try:
            if not results:
                next(steps)
        except StopIteration as stop:
            results.append(stop.value)

    def emit(text: str) -> None:
        part.push(text)
        resume()

    resume()
    marker = yield from source.until(markers, emit)
    part.end()
    resume()
    return results[0], marker


def collect(read: Callable[[Emit], Steps[ResultT]]) -> Steps[tuple[str, ResultT]]:
    """Read something as a whole; gives the text and the result."""
    pieces: list[str] = []
    result = yield from read(pieces.append)
    return "".join(pieces), result


def ignore(text: str) -> None:
    """Do nothing with text."""
