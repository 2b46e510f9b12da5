"""What a piece of a grammar matches, and how hard it is to follow.

The measures were taken of xgrammar 0.2.8: a parser that has to keep k ways of reading a text open
needs about k times as long for each step, and a compiler that has to look at k places as long to
compile them.
"""

from collections.abc import Iterable, Sequence
from functools import reduce
from operator import or_
from typing import NamedTuple

from umbel_text.grammars.errors import UnservableError
from umbel_text.grammars.heads import (
    EVERYTHING,
    Head,
    Heads,
    any_of,
    bit,
    common,
    cut,
    first_of,
    gone_on,
    merged,
)

ENDLESS = 1 << 40
"""A length or a measure that is as good as infinite."""

STEP = 16
"""The ways of a piece that becomes a rule of its own, such as a repeated group; a plain one has 1."""

ENDLESS_TURNS = 12
"""What an ambiguous loop without limit multiplies the ways by, at most; as measured."""

WAYS_PER_TURN = 6
"""What each turn of an ambiguous loop with a limit adds to what that multiplies the ways by."""

GROWTH = 8
"""What following a loop over what may be nothing multiplies the ways by."""

FEW = 16
"""A border that only so many characters can stand at is seldom met in a text."""

SELDOM_TURNS = 2
"""What an ambiguous loop multiplies the ways by if its border is seldom met."""

UNROLLED = 256
"""The copies that the compiler makes of what is repeated; beyond those it counts."""

WIDE = 100
WIDE_WAYS = 4
"""Of a set of more characters than that, nearly every token is tried, which takes as much longer."""

UNROLLED_EFFORT = 60
"""What the square of the work for the copies of an ambiguous loop is divided by, as measured."""

MOST_WAYS = 80 * STEP
"""A step of the engine takes a second or so of a constraint that has as many."""

MOST_WORK = 400_000
"""About the tenths of milliseconds that compiling takes, for a vocabulary of 50 000 tokens."""


class Form(NamedTuple):
    """What a piece of a grammar matches, and what it costs.

    `heads` is how it can begin, `rest` how it can go on where it could also be over.  `final` and
    `inner` are sets of characters, as bits: those that can be its last, and those that more can come
    after.  `shortest` and `longest` are lengths in characters.  `ways` is how many readings of a
    text it may keep open, `work` what compiling it takes.  `opens` and `closes` are the rules that it
    may begin or end with, as bits, of those that need each other.  `grows` says that it ends with a
    loop over what may be nothing: what follows such a loop makes the number of its readings grow with
    the text.
    """

    heads: Heads = ()
    rest: Heads = ()
    inner: int = 0
    final: int = 0
    shortest: int = 0
    longest: int = 0
    ways: int = 1
    work: int = 0
    opens: int = 0
    closes: int = 0
    grows: bool = False

    @property
    def first(self) -> int:
        """The characters that it can begin with."""
        return first_of(self.heads)

    @property
    def alphabet(self) -> int:
        """The characters that it can have anywhere."""
        return self.inner | self.final

    @property
    def text(self) -> str | None:
        """What it matches if that is one text."""
        if not self.longest:
            return ""
        is_text = len(self.heads) == 1 and len(self.heads[0].text) == self.longest
        return self.heads[0].text if is_text and self.is_fixed else None

    @property
    def is_fixed(self) -> bool:
        """Whether all that it matches is of one length, so that its end is never in question."""
        return self.shortest == self.longest


NOTHING = Form()

ANYTHING = Form(
    any_of(EVERYTHING), any_of(EVERYTHING), EVERYTHING, EVERYTHING, 0, ENDLESS, STEP, 50
)
"""Any text at all."""


def characters(bits: int) -> Form:
    """Give the form of one character out of a set."""
    return Form(any_of(bits), (), 0, bits, 1, 1, work=1 + bits.bit_count() * 3 // 8)


def literal(text: str) -> Form:
    """Give the form of a text."""
    if not text:
        return NOTHING
    inner = reduce(or_, (bit(ord(character)) for character in set(text[:-1])), 0)
    size = len(text)
    return Form((Head(text, 0, True),), (), inner, bit(ord(text[-1])), size, size, work=2 * size)


def sequence(forms: Iterable[Form]) -> Form:
    """Put pieces one after the other, of which there must be one."""
    return reduce(_followed, forms)


def _followed(one: Form, two: Form) -> Form:
    if not one.longest or not two.longest:
        whole = two if two.longest else one
        return whole._replace(work=one.work + two.work, ways=max(one.ways, two.ways))
    turns = 0 if one.is_fixed else _turns_at(one, two)
    rest = two.rest
    if not two.shortest:
        rest = merged((*rest, *one.rest, *two.heads))
    if turns and two.final & (one.inner | two.inner):
        rest = any_of(one.alphabet | two.alphabet)
    work = one.work + two.work + (one.ways * two.work // STEP if turns > SELDOM_TURNS else 0)
    return Form(
        heads=_heads_of_both(one, two),
        rest=rest,
        inner=one.alphabet | two.inner,
        final=two.final | (0 if two.shortest else one.final),
        shortest=min(ENDLESS, one.shortest + two.shortest),
        longest=min(ENDLESS, one.longest + two.longest),
        ways=min(ENDLESS, _ways_of_both(one, two, turns)),
        work=min(ENDLESS, work),
        opens=one.opens | (0 if one.shortest else two.opens),
        closes=two.closes | (0 if two.shortest else one.closes),
        grows=two.grows or (one.grows and not two.shortest),
    )


def _heads_of_both(one: Form, two: Form) -> Heads:
    if not one.shortest:
        return merged((*one.heads, *two.heads))
    text = one.text
    if text is None or not two.shortest:
        return tuple(gone_on(head, two.first, may_end=not two.shortest) for head in one.heads)
    return merged(cut(head._replace(text=text + head.text)) for head in two.heads)


def _turns_at(one: Form, two: Form) -> int:
    """Give how an ambiguous border multiplies the ways, 0 if the border is never in question."""
    meets = one.rest if one.shortest else (*one.rest, *one.heads)
    shared = 0
    for head in meets:
        shared |= reduce(or_, (common(head, other) for other in two.heads), 0)
    if not shared:
        return 0
    is_seldom = min(shared.bit_count(), one.final.bit_count()) <= FEW
    return (
        SELDOM_TURNS
        if is_seldom or all(len(head.text) > 1 for head in two.heads)
        else ENDLESS_TURNS
    )


def _ways_of_both(one: Form, two: Form, turns: int) -> int:
    """Give the ways of two pieces, whose border may be in question."""
    before = one.ways * (GROWTH if one.grows else 1)
    if not turns:
        return max(before, two.ways)
    if one.closes and two.opens:
        # A rule that is followed by itself with nothing in between.
        return ENDLESS
    if not two.opens:
        return before + two.ways
    # A rule that goes on with itself is a loop; one that also begins so has an operator.
    return (before + two.ways) * (2 if one.opens else ENDLESS_TURNS // 2)


def choice(forms: Sequence[Form]) -> Form:
    """Leave the choice between pieces, of which there must be one."""
    rest, are_alike = _compared(forms)
    ways = max(form.ways for form in forms)
    if are_alike:
        ways += sum(form.ways for form in forms) // STEP
    return Form(
        heads=merged(head for form in forms for head in form.heads),
        rest=rest,
        inner=reduce(or_, (form.inner for form in forms)),
        final=reduce(or_, (form.final for form in forms)),
        shortest=min(form.shortest for form in forms),
        longest=max(form.longest for form in forms),
        ways=min(ENDLESS, ways),
        work=min(ENDLESS, sum(form.work for form in forms)),
        opens=reduce(or_, (form.opens for form in forms)),
        closes=reduce(or_, (form.closes for form in forms)),
        grows=any(form.grows for form in forms),
    )


class _Group:
    """Pieces that begin with one text."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.next = self.inner = self.final = 0
        self.may_end = False

    def add(self, head: Head, form: Form) -> None:
        """Add a piece."""
        self.next |= head.next
        self.may_end = self.may_end or head.may_end
        self.inner |= form.inner
        self.final |= form.final


def _compared(forms: Sequence[Form]) -> tuple[Heads, bool]:
    """Give how the choice between pieces can go on where one could be over, and if any are alike.

    Pieces are alike if a text can be the beginning of both, and not the whole of either.
    """
    rest = [head for form in forms for head in form.rest]
    pieces = sorted(
        ((head, form) for form in forms for head in form.heads), key=lambda piece: piece[0].text
    )
    more = 0
    are_alike = False
    above: list[_Group] = []
    for head, form in pieces:
        while above and not head.text.startswith(above[-1].text):
            above.pop()
        for group in above:
            after = head.after(len(group.text))
            more |= after if group.may_end else 0
            if group.text == head.text and head.may_end:
                more |= group.next
            if after & group.next:
                are_alike = True
                if (group.final & form.inner) | (form.final & group.inner):
                    more |= group.inner | group.final | form.alphabet
        if not above or above[-1].text != head.text:
            above.append(_Group(head.text))
        above[-1].add(head, form)
    if forms[0].is_fixed and all(_lengths(form) == _lengths(forms[0]) for form in forms):
        more = 0
    return merged((*rest, *any_of(more))), are_alike


def _lengths(form: Form) -> tuple[int, int]:
    return form.shortest, form.longest


def repeated(form: Form, low: int, high: int | None, unrolls: bool = False) -> Form:
    """Repeat a piece at least `low` times and at most `high`, without a limit if that is None.

    `unrolls` says that the compiler makes copies of the whole piece.
    """
    if high == 0 or not form.longest:
        # What is never matched is compiled all the same.
        return NOTHING._replace(ways=form.ways, work=form.work)
    is_looping = high is None or high > 1
    turns = _turns_at(form, form) if is_looping and not form.is_fixed else 0
    copies = _copies(low, high)
    longest = ENDLESS if high is None else min(ENDLESS, high * form.longest)
    rest = form.rest
    if is_looping and low != high:
        rest = merged((*rest, *form.heads))
    if turns and form.final & form.alphabet:
        rest = any_of(form.alphabet)
    if unrolls:
        work = form.work * max(1, copies)
        work += work**2 // UNROLLED_EFFORT if copies and (turns or not form.shortest) else 0
    else:
        # The turns of a group are counted; those of a set of characters are written out.
        work = form.work + (
            copies * (2 + form.first.bit_count() * 2) if form.longest == 1 else copies
        )
    return form._replace(
        heads=tuple(gone_on(head, form.first, may_end=low < 2) for head in form.heads)
        if is_looping
        else form.heads,
        rest=rest,
        inner=form.alphabet if is_looping else form.inner,
        shortest=min(ENDLESS, low * form.shortest),
        longest=longest,
        ways=min(ENDLESS, _ways_of_turns(form, low, high, turns)),
        work=min(ENDLESS, work),
        grows=form.grows or (form.ways > 1 and not form.shortest and longest == ENDLESS),
    )


def _copies(low: int, high: int | None) -> int:
    counted = low if high is None else high
    return min(UNROLLED, counted) if counted > 1 else 0


def _ways_of_turns(form: Form, low: int, high: int | None, turns: int) -> int:
    if turns and form.closes and form.opens:
        return ENDLESS
    copies = _copies(low, high)
    multiple = _multiple(form, low, high, turns)
    ways = 1
    if copies or form.longest > 1 or (high is not None and low != high):
        ways = STEP
        if multiple == 1:
            # In a loop around this one, the copies go on from every place that it may begin at; twice
            # the copies were seen to take half as long again.
            ways *= max(1, copies.bit_length() // 2)
        if copies and form.ways == 1 and form.first.bit_count() > WIDE:
            ways *= WIDE_WAYS
    return max(form.ways, ways) * multiple


def _multiple(form: Form, low: int, high: int | None, turns: int) -> int:
    """Give how many ways there are to tell the turns of a loop apart."""
    counted = low if high is None else high
    multiple = 1
    if turns == SELDOM_TURNS:
        multiple = SELDOM_TURNS
    elif form.ways == 1 and high is None:
        # A loop over plain loops is one of their characters.
        multiple = 1
    elif turns or not form.shortest:
        if counted > 1:
            # Short turns have few places to end at: one way for each four characters.
            least = 1 if form.shortest else WAYS_PER_TURN // 2
            multiple = counted * max(least, min(WAYS_PER_TURN, form.longest // 4))
        if high is None and (form.longest > 1 or form.ways >= STEP):
            endless = min(ENDLESS_TURNS, form.longest)
            multiple = max(multiple, endless if form.shortest else 2 * ENDLESS_TURNS)
    if high != 1 and form.grows:
        multiple *= GROWTH
    if turns > SELDOM_TURNS and form.closes:
        # A rule goes on with itself from every place that a turn may end at.
        multiple *= ENDLESS_TURNS
    return min(ENDLESS, multiple)


def check_bearable(form: Form) -> None:
    """Refuse what an engine could not bear, with UnservableError."""
    if form.ways > MOST_WAYS:
        raise UnservableError("a text can match it in too many ways")
    if form.work > MOST_WORK:
        raise UnservableError("it would take too long to compile")
