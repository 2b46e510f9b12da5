"""What a piece of a grammar matches, and how hard it is to follow.

The measures were taken of xgrammar 0.2.8: a parser that has to keep k ways of reading a text open
needs about k times as long for each step, and a compiler that has to look at k places as long to
compile them.
"""

from collections.abc import Iterable
from typing import NamedTuple

from umbel_text.grammars.errors import TooComplexError

OTHERS = 1 << 128
"""The bit of every character that is not ASCII; the others are those of the ASCII codes."""

EVERYTHING = (OTHERS << 1) - 1
ENDLESS = 1 << 40
"""A length or a measure that is as good as infinite."""

STEP = 16
"""The ways of a piece that becomes a rule of its own, such as a repeated group; a plain one has 1."""

ENDLESS_TURNS = 12
"""The ways that an ambiguous loop without limit multiplies by, as measured."""

WAYS_PER_TURN = 8
"""The ways that each turn of an ambiguous loop with a limit adds, as measured."""

UNROLLED = 256
"""The copies that the compiler makes of what is repeated; beyond those it counts."""

MOST_WAYS = 64 * STEP
"""A step of the engine takes a second or so of a constraint that has as many."""

MOST_WORK = 400_000
"""About the tenths of milliseconds that compiling takes, for a vocabulary of 50 000 tokens."""


class Form(NamedTuple):
    """What a piece of a grammar matches, and what it costs.

    `first`, `rest` and `alphabet` are sets of characters, as bits: those that it can begin with,
    those that can go on where it could also be over, and all of them.  `shortest` and `longest` are
    lengths in characters.  `ways` is how many readings of a text it may keep open, `work` what
    compiling it takes.  `opens` and `closes` say that it may begin or end with the rule that is
    being looked at itself.
    """

    first: int = 0
    rest: int = 0
    alphabet: int = 0
    shortest: int = 0
    longest: int = 0
    ways: int = 1
    work: int = 0
    opens: bool = False
    closes: bool = False

    @property
    def is_fixed(self) -> bool:
        """Whether all that it matches is of one length, so that its end is never in question."""
        return self.shortest == self.longest


NOTHING = Form()

ANYTHING = Form(EVERYTHING, EVERYTHING, EVERYTHING, 0, ENDLESS, 1, 50)
"""Any text at all."""


def characters(bits: int) -> Form:
    """Give the form of one character out of a set."""
    width = bits.bit_count()
    return Form(bits, 0, bits, 1, 1, 1, 1 + width * 3 // 8)


def literal(text: str) -> Form:
    """Give the form of a text."""
    if not text:
        return NOTHING
    alphabet = 0
    for character in set(text):
        alphabet |= bit(ord(character))
    return Form(bit(ord(text[0])), 0, alphabet, len(text), len(text), 1, 2 * len(text))


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


def sequence(forms: Iterable[Form]) -> Form:
    """Put pieces one after the other."""
    whole = NOTHING
    for form in forms:
        whole = _followed(whole, form)
    return whole


def _followed(one: Form, two: Form) -> Form:
    if not one.longest:
        return two._replace(work=one.work + two.work, ways=max(one.ways, two.ways))
    meets = one.rest | (one.first if not one.shortest else 0)
    is_blurred = not one.is_fixed and bool(meets & two.first)
    rest = two.rest
    if is_blurred:
        rest = one.alphabet | two.alphabet
    elif not two.shortest:
        rest |= one.rest | two.first
    if is_blurred and one.closes and two.opens:
        raise TooComplexError("a rule is followed by itself with nothing in between")
    return Form(
        one.first | (0 if one.shortest else two.first),
        rest,
        one.alphabet | two.alphabet,
        one.shortest + two.shortest,
        min(ENDLESS, one.longest + two.longest),
        min(ENDLESS, one.ways + two.ways) if is_blurred else max(one.ways, two.ways),
        min(ENDLESS, one.work + two.work + (one.ways * two.work // STEP if is_blurred else 0)),
        one.opens or (two.opens and not one.shortest),
        two.closes or (one.closes and not two.shortest),
    )


def choice(forms: Iterable[Form]) -> Form:
    """Leave the choice between pieces, of which there must be one."""
    every = list(forms)
    if len(every) == 1:
        return every[0]
    first = rest = alphabet = work = plain = ways = overlapping = 0
    for form in every:
        if first & form.first:
            overlapping += 1
        first |= form.first
        rest |= form.rest
        alphabet |= form.alphabet
        work += form.work
        ways = max(ways, form.ways)
        plain += form.ways
    shortest = min(form.shortest for form in every)
    longest = max(form.longest for form in every)
    if overlapping:
        rest = rest if shortest == longest else alphabet
        many = sum(form.ways for form in every if form.ways > STEP)
        ways = max(ways, many) + plain // STEP
    return Form(
        first,
        rest,
        alphabet,
        shortest,
        longest,
        min(ENDLESS, ways),
        min(ENDLESS, work),
        any(form.opens for form in every),
        any(form.closes for form in every),
    )


def repeated(form: Form, low: int, high: int | None) -> Form:
    """Repeat a piece at least `low` times and at most `high`, without a limit if that is None."""
    if high == 0 or not form.longest:
        return NOTHING
    is_looping = high is None or high > 1
    is_blurred = is_looping and not form.is_fixed and bool(form.rest & form.first)
    if is_blurred and form.closes and form.opens:
        raise TooComplexError("a rule is followed by itself with nothing in between")
    counted = low if high is None else high
    copies = min(UNROLLED, counted) if counted > 1 else 0
    is_rule = copies or form.longest > 1 or (high is not None and low != high)
    rest = form.rest
    if is_looping:
        rest = form.alphabet if is_blurred else rest | form.first
    return Form(
        form.first,
        rest,
        form.alphabet,
        low * form.shortest,
        ENDLESS if high is None else min(ENDLESS, high * form.longest),
        min(ENDLESS, (max(form.ways, STEP) if is_rule else form.ways) * _turns(form, low, high)),
        min(ENDLESS, form.work + copies * (2 + form.first.bit_count() * 2)),
        form.opens,
        form.closes,
    )


def _turns(form: Form, low: int, high: int | None) -> int:
    """Give how many ways there are to tell the turns of a loop apart."""
    counted = low if high is None else high
    turns = 1
    if counted > 1 and (not form.shortest or (not form.is_fixed and form.rest & form.first)):
        turns = counted * max(1, min(WAYS_PER_TURN, form.longest // 2))
    if high is None and form.longest > 1 and form.rest & form.first and not form.is_fixed:
        turns = max(turns, ENDLESS_TURNS)
    return min(ENDLESS, turns)


def check_bearable(form: Form) -> None:
    """Refuse what an engine could not bear, with TooComplexError."""
    if form.ways > MOST_WAYS:
        raise TooComplexError("a text can match it in too many ways")
    if form.work > MOST_WORK:
        raise TooComplexError("it would take too long to compile")
