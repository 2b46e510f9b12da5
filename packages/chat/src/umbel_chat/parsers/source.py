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

Find: TypeAlias = Callable[[str], object | None]
"""Finds what a parser has to see in a text; None says that there is nothing of it.

Such text is not shown to it again, so it may have taken note of it.
"""

NOT_SPACE = re.compile(r"\S")

LONGEST_WAIT = 4096
"""Characters that are waited for to see what comes next."""


Lane: TypeAlias = tuple[tuple[Find, ...], Emit | None, int]
"""What becomes of text that has nothing of what is to be found: something takes it.

Where that is None the parser waits, for so much text at most.
"""


class MarkerSearch:
    """Finds the first of some markers; none of them may begin with another.

    `tokens` are those that count only where their own token was sampled.
    """

    __slots__ = ("_beginnings", "_longest", "_pattern", "_tokens", "find_head")

    def __init__(self, markers: tuple[str, ...], tokens: AbstractSet[str]) -> None:
        for marker in markers:
            if any(other != marker and other.startswith(marker) for other in markers):
                raise ValueError(f"another marker begins with {marker!r}")
        self._beginnings = frozenset(
            marker[:size] for marker in markers for size in range(1, len(marker))
        )
        self._pattern = re.compile("|".join(map(re.escape, markers)))
        heads = "".join({marker[0] for marker in markers})
        self.find_head = re.compile(f"[{re.escape(heads)}]").search
        """Finds a character with which a marker begins; most text has none."""
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
        head = self.find_head(text, max(start, len(text) - self._longest + 1))
        while head is not None:
            if self.is_open(text[head.start() :]):
                return head.start()
            head = self.find_head(text, head.end())
        return len(text)

    def is_open(self, text: str) -> bool:
        """Say whether a marker begins with the text and goes on."""
        return text in self._beginnings


class Growing:
    """Unread text that something waits for to grow."""

    __slots__ = ("_is_open", "_stop", "_text")

    def __init__(self, text: str, is_open: Callable[[str], object], stop: Find | None) -> None:
        self._text = text
        self._is_open = is_open
        self._stop = stop

    def find(self, text: str) -> str | None:
        """Give the next piece of text if with it the whole cannot grow any more."""
        self._text += text
        if self._stop is not None and self._stop(text) is None:
            return None
        return None if self._is_open(self._text) else text


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

    __slots__ = (
        "_at",
        "_base",
        "_ends",
        "_held",
        "_kept",
        "_markers",
        "_part",
        "_pass_through",
        "_text",
        "_waits_for",
        "ended",
        "is_in_string",
    )

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
        self.is_in_string: Callable[[], bool] = is_in_none
        """Says whether what was read ends in the midst of a string of JSON."""
        # While the parser waits to pass text on: what finds the text that it must see itself, and
        # what takes all other.  Most tokens so cost no turn of the parser.
        self._pass_through: tuple[Find, Emit] | None = None
        # While it waits for something: what finds that, and how much text it waits for at most.
        self._waits_for: tuple[Find, int] | None = None
        # While a part of the text has a source of its own.
        self._part: Source | None = None

    def push(self, text: str, ends_with_marker: bool = False) -> bool:
        """Append text; says whether the parser has to go on for it.

        `ends_with_marker` says that a token ends with it which may be a marker.
        """
        if self._pass_through is not None and not ends_with_marker:
            find, emit = self._pass_through
            if find(text) is None:
                self._base += len(text)
                emit(text)
                return False
        elif self._waits_for is not None and not ends_with_marker:
            find, most = self._waits_for
            if find(text) is None and len(self._text) < most:
                self._text += text
                return False
        self._append(text)
        if ends_with_marker:
            self._ends.add(self._base + len(self._text))
        return True

    def _append(self, text: str) -> None:
        if self._kept is not None:
            self._held.append(self._text[self._kept : self._at])
            self._kept = 0
        at = self._at
        self._base += at
        self._text = text if at == len(self._text) else self._text[at:] + text
        self._at = 0

    def end(self) -> None:
        """Say that no more text comes."""
        self.ended = True

    def leave(self) -> None:
        """Say that the parser reads no more, wherever it was; the rest is unread."""
        self._pass_through = self._waits_for = None
        self.forget()
        if (part := self._part) is not None:
            part.leave()
            self._text, self._at = part.unread + self.unread, 0
            self._part = None

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
            stop = len(text)
            if search.find_head(text, at) is not None:
                match = search.find(text, at, self._base, self._ends)
                if not self.ended:
                    stop = search.open_at(text, at)
                # What may become a longer marker comes first if it begins first.
                if match is not None and match.start() <= stop:
                    self._pass_on(match.start(), emit)
                    return match.group()
            self._pass_on(stop, emit)
            if self.ended:
                return None
            if stop < len(text):
                yield from self.wait_while(search.is_open)
            else:
                yield from self.wait(search.find_head, emit)

    def wait(self, find: Find, emit: Emit) -> Steps[None]:
        """Wait for text that has what is to be found; other text is passed on meanwhile."""
        if self._at == len(self._text) and self._kept is None:
            self._append("")
            self._pass_through = (find, emit)
        yield
        self._pass_through = None

    def lane(self) -> Lane | None:
        """Give what becomes of text now that the parser need not see; None when it must see all.

        Whoever hands text over past `push` has to let the source `catch_up` before the next.
        """
        finds: tuple[Find, ...] = ()
        source = self
        while (passing := source._pass_through) is not None:
            finds += (passing[0],)
            if source._part is None:
                return finds, passing[1], 0
            source = source._part
        if source._waits_for is None:
            return None
        find, most = source._waits_for
        return (*finds, find), None, most - len(source._text)

    def catch_up(self, passed: int, waiting: str) -> None:
        """Take in what went past: so many characters were passed on, others wait."""
        source = self
        while source._pass_through is not None and source._part is not None:
            source._base += passed + len(waiting)
            source = source._part
        source._base += passed
        source._text += waiting

    def wait_while(self, is_open: Callable[[str], object], stop: Find | None = None) -> Steps[None]:
        """Wait as long as the unread text may grow, for the end, or until it is long.

        Text without what `stop` finds changes nothing of that.  Nothing is read.
        """
        self._waits_for = Growing(self.unread, is_open, stop).find, LONGEST_WAIT
        yield
        self._waits_for = None

    @property
    def unread(self) -> str:
        """The text that has come and is not read."""
        return self._text[self._at :]

    def look(self, most: int) -> str:
        """Give so many characters of the unread text, or all of it."""
        return self._text[self._at : self._at + most]

    def read(self, count: int, emit: Emit) -> None:
        """Read so many characters of the unread text."""
        self._pass_on(self._at + count, emit)

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
            yield from self.wait(find_nothing, emit)

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

    def precedes(self, *options: str) -> Steps[bool]:
        """Tell whether one of some texts comes next, after whitespace, or nothing; reads nothing."""
        most = LONGEST_WAIT + max(map(len, options))
        while True:
            unread = self.look(most)
            rest = unread.lstrip()
            start = self._at + len(unread) - len(rest)
            if any(
                rest.startswith(option) and self._counts(option, start + len(option))
                for option in options
            ):
                return True
            # At the end, what begins like one is one that is cut off.
            may_be = any(len(rest) < len(option) and option.startswith(rest) for option in options)
            if self.ended or not may_be or len(unread) == most:
                return may_be and self.ended
            yield

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

    def up_to(self, stop: re.Pattern[str], emit: Emit) -> Steps[None]:
        """Read up to the first character that a pattern matches, which must match single ones."""
        find = stop.search
        while True:
            match = find(self._text, self._at)
            self._pass_on(len(self._text) if match is None else match.start(), emit)
            if match is not None or self.ended:
                return
            yield from self.wait(find, emit)

    def space(self) -> Steps[None]:
        """Read past whitespace."""
        yield from self.up_to(NOT_SPACE, ignore)

    def keep(self) -> None:
        """Keep what is read from here on, for `kept`."""
        self._kept = self._at
        self._held.clear()

    def forget(self) -> None:
        """Keep no more."""
        self._kept = None
        self._held.clear()

    def kept(self) -> str:
        """Give what was read since `keep`, which ends with this; "" if it has ended before."""
        if self._kept is None:
            return ""
        text = "".join(self._held) + self._text[self._kept : self._at]
        self.forget()
        return text

    def begin_part(self) -> "Source":
        """Give a source for a part that begins here; see `within`."""
        self._part = Source(self._markers, self._base + self._at, self._ends)
        return self._part

    def end_part(self) -> None:
        """Say that the part has ended."""
        self._part = None


def within(
    source: Source,
    markers: tuple[str, ...],
    read: Callable[[Source], Steps[ResultT]],
    followers: tuple[str, ...] = (),
) -> Steps[tuple[ResultT, str | None]]:
    """Read a part of the text that ends before the first of the markers, and past that.

    `read` gets a source that ends there, so nothing malformed in the part reaches beyond it.  Gives
    its result and the marker, None when the text ended first.  With `followers`, a marker in a
    string of JSON is part of it unless one of these comes next, or nothing.
    """
    part = source.begin_part()
    steps = read(part)
    results: list[ResultT] = []

    def resume() -> None:
        try:
            if not results:
                next(steps)
        except StopIteration as stop:
            results.append(stop.value)

    def emit(text: str) -> None:
        if part.push(text):
            resume()

    resume()
    while True:
        marker = yield from source.until(markers, emit)
        if marker is None or not followers or not part.is_in_string():
            break
        if (yield from source.precedes(*followers)):
            break
        emit(marker)
    source.end_part()
    part.end()
    resume()
    return results[0], marker


def collect(read: Callable[[Emit], Steps[ResultT]]) -> Steps[tuple[str, ResultT]]:
    """Read something as a whole; gives the text and the result."""
    pieces: list[str] = []
    result = yield from read(pieces.append)
    return "".join(pieces), result


def find_nothing(text: str) -> None:
    """Find nothing in a text."""


def is_in_none() -> bool:
    """Say that there is no string."""
    return False


def ignore(text: str) -> None:
    """Do nothing with text."""
