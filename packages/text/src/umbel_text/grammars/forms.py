"""What a piece of a grammar matches, and how hard it is to follow.

The measures were taken of xgrammar 0.2.8: a parser that has to keep k ways of reading a text open
needs about k times as long for each step, and a compiler that has to look at k places as long to
compile them.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import reduce
from operator import or_
from typing import NamedTuple

from umbel_text.grammars.errors import UnservableError

OTHERS = 1 << 128
"""The bit of every character that is not ASCII; the others are those of the ASCII codes."""

EVERYTHING = (OTHERS << 1) - 1
ENDLESS = 1 << 40
"""A length or a measure that is as good as infinite."""

STEP = 16
"""The ways of a piece that becomes a rule of its own, such as a repeated group; a plain one has 1."""

ENDLESS_TURNS = 12
"""What an ambiguous loop without limit multiplies the ways by, at most; as measured."""

WAYS_PER_TURN = 6
"""What each turn of an ambiguous loop with a limit multiplies the ways by, at most."""

GROWTH = 8
"""What following a loop over what may be nothing multiplies the ways by."""

UNROLLED = 256
"""The copies that the compiler makes of what is repeated; beyond those it counts."""

MOST_BEGINNINGS = 30_000
"""The first characters of the pieces of a choice that are looked at; of more, the worst is taken."""

DOUBLED = "a rule is followed by itself with nothing in between"

WIDE = 100
WIDE_WAYS = 3
"""Of a set of more characters than that, nearly every token is tried, which takes as much longer."""

UNROLLED_EFFORT = 60
"""What the square of the work for the copies of an ambiguous loop is divided by, as measured."""

MOST_WAYS = 64 * STEP
"""A step of the engine takes a second or so of a constraint that has as many."""

MOST_WORK = 400_000
"""About the tenths of milliseconds that compiling takes, for a vocabulary of 50 000 tokens."""


class Form(NamedTuple):
    """What a piece of a grammar matches, and what it costs.

    `first`, `second`, `rest` and `alphabet` are sets of characters, as bits: those that it can begin
    with, those that can come next, those that can go on where it could also be over, and all of
    them.  `shortest` and `longest` are lengths in characters.  `text` is what it matches if that is
    one text.  `ways` is how many readings of a text it may keep open, `work` what
    compiling it takes.  Of rules that need each other, `opens` and `closes` say that it may begin
    or end with one of them, and `alone` has those that it may be and nothing more, as bits.
    `grows` says that it ends with a loop over what may be nothing: what follows such a loop makes
    the number of its readings grow with the text.
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
    alone: int = 0
    second: int = 0
    text: str | None = None
    grows: bool = False

    @property
    def is_fixed(self) -> bool:
        """Whether all that it matches is of one length, so that its end is never in question."""
        return self.shortest == self.longest


NOTHING = Form(text="")

ANYTHING = Form(EVERYTHING, EVERYTHING, EVERYTHING, 0, ENDLESS, 1, 50, second=EVERYTHING)
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
    second = bit(ord(text[1])) if len(text) > 1 else 0
    return Form(
        bit(ord(text[0])),
        0,
        alphabet,
        len(text),
        len(text),
        work=2 * len(text),
        second=second,
        text=text,
    )


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
        return two._replace(
            work=one.work + two.work, ways=max(one.ways, two.ways), alone=one.alone | two.alone
        )
    meets = one.rest | (one.first if not one.shortest else 0)
    is_blurred = not one.is_fixed and bool(meets & two.first)
    rest = two.rest
    if is_blurred:
        rest = one.alphabet | two.alphabet
    elif not two.shortest:
        rest |= one.rest | two.first
    work = one.work + two.work
    if is_blurred:
        work += one.ways * two.work // STEP
    return Form(
        first=one.first | (0 if one.shortest else two.first),
        second=one.second
        | (two.first if one.shortest <= 1 else 0)
        | (0 if one.shortest else two.second),
        rest=rest,
        alphabet=one.alphabet | two.alphabet,
        shortest=min(ENDLESS, one.shortest + two.shortest),
        longest=min(ENDLESS, one.longest + two.longest),
        ways=min(ENDLESS, _ways_of_both(one, two, is_blurred)),
        work=min(ENDLESS, work),
        opens=one.opens or (two.opens and not one.shortest),
        closes=two.closes or (one.closes and not two.shortest),
        alone=(0 if two.shortest else one.alone) | (0 if one.shortest else two.alone),
        grows=two.grows or (one.grows and not two.shortest),
    )


def _ways_of_both(one: Form, two: Form, is_blurred: bool) -> int:
    """Give the ways of two pieces, whose border may be in question."""
    before = one.ways * (GROWTH if one.grows and two.longest else 1)
    if not is_blurred:
        return max(before, two.ways)
    if one.closes and two.opens:
        raise UnservableError(DOUBLED)
    if not two.opens:
        return before + two.ways
    # A rule that goes on with itself is a loop; one that also begins so has an operator.
    return (before + two.ways) * (2 if one.opens else ENDLESS_TURNS // 2)


def choice(forms: Sequence[Form]) -> Form:
    """Leave the choice between pieces, of which there must be one."""
    if len(forms) == 1:
        return forms[0]
    alphabet = reduce(or_, (form.alphabet for form in forms))
    beginnings, are_alike = _beginnings(forms)
    rest = _rest_of_choice(forms, beginnings)
    ways = max(form.ways for form in forms)
    if are_alike:
        many = sum(form.ways for form in forms if form.ways > STEP)
        ways = max(ways, many) + sum(form.ways for form in forms) // STEP
    return Form(
        first=reduce(or_, (form.first for form in forms)),
        second=reduce(or_, (form.second for form in forms)),
        rest=alphabet if rest is None else rest,
        alphabet=alphabet,
        shortest=min(form.shortest for form in forms),
        longest=max(form.longest for form in forms),
        ways=min(ENDLESS, ways),
        work=min(ENDLESS, sum(form.work for form in forms)),
        opens=any(form.opens for form in forms),
        closes=any(form.closes for form in forms),
        alone=reduce(or_, (form.alone for form in forms)),
        grows=any(form.grows for form in forms),
    )


class _Beginning(NamedTuple):
    """What can follow a first character, by one piece or more."""

    second: int
    is_over: bool
    is_doubtful: bool = False


def _beginnings(forms: Sequence[Form]) -> tuple[dict[int, _Beginning], bool]:
    """Give what can follow each first character, and whether pieces other than texts share one."""
    beginnings: dict[int, _Beginning] = {}
    texts = others = 0
    are_alike = False
    budget = MOST_BEGINNINGS
    for form in forms:
        is_text = form.text is not None
        are_alike = are_alike or bool(form.first & (others if is_text else others | texts))
        texts |= form.first if is_text else 0
        others |= 0 if is_text else form.first
        budget -= form.first.bit_count()
        if budget < 0:
            return {0: _Beginning(0, is_over=False, is_doubtful=True)}, True
        for character in members(form.first):
            old = beginnings.get(character)
            if old is None:
                beginnings[character] = _Beginning(form.second, form.shortest <= 1)
                continue
            # Texts are told apart by all of their characters.
            is_doubtful = not is_text and bool(old.second & form.second)
            beginnings[character] = _Beginning(
                old.second | form.second,
                old.is_over or form.shortest <= 1,
                old.is_doubtful or is_doubtful,
            )
    return beginnings, are_alike


def _rest_of_choice(forms: Sequence[Form], beginnings: Mapping[int, _Beginning]) -> int | None:
    """Give what can go on where one of the pieces could be over, None if that is unknown."""
    rest = 0
    for form in forms:
        rest |= form.rest
    if forms[0].is_fixed and all(form[3:5] == forms[0][3:5] for form in forms):
        return rest
    for beginning in beginnings.values():
        if beginning.is_doubtful:
            return None
        rest |= beginning.second if beginning.is_over else 0
    above: list[str] = []
    for text in sorted({form.text for form in forms if form.text}):
        while above and not text.startswith(above[-1]):
            above.pop()
        if above:
            rest |= bit(ord(text[len(above[-1])]))
        above.append(text)
    return rest


def members(bits: int) -> Iterator[int]:
    """Give the members of a set, as indices."""
    while bits:
        last = bits & -bits
        yield last.bit_length() - 1
        bits ^= last


def repeated(form: Form, low: int, high: int | None, unrolls: bool = False) -> Form:
    """Repeat a piece at least `low` times and at most `high`, without a limit if that is None.

    `unrolls` says that the compiler makes copies of the whole piece.
    """
    if high == 0 or not form.longest:
        return NOTHING._replace(alone=form.alone)
    is_looping = high is None or high > 1
    is_blurred = is_looping and not form.is_fixed and bool(form.rest & form.first)
    if is_blurred and form.closes and form.opens:
        raise UnservableError(DOUBLED)
    copies = _copies(low, high)
    longest = ENDLESS if high is None else min(ENDLESS, high * form.longest)
    rest = form.rest
    if is_looping:
        rest = form.alphabet if is_blurred else rest | (form.first if low != high else 0)
    if unrolls:
        work = form.work * max(1, copies)
        work += work**2 // UNROLLED_EFFORT if copies and (is_blurred or not form.shortest) else 0
    else:
        work = form.work + copies * (2 + form.first.bit_count() * 2)
    return Form(
        first=form.first,
        second=form.second | (form.first if is_looping and form.shortest <= 1 else 0),
        rest=rest,
        alphabet=form.alphabet,
        shortest=min(ENDLESS, low * form.shortest),
        longest=longest,
        ways=min(ENDLESS, _ways_of_turns(form, low, high)),
        work=min(ENDLESS, work),
        opens=form.opens,
        closes=form.closes,
        alone=form.alone,
        grows=form.grows or (is_looping and not form.shortest and longest == ENDLESS),
    )


def _copies(low: int, high: int | None) -> int:
    counted = low if high is None else high
    return min(UNROLLED, counted) if counted > 1 else 0


def _ways_of_turns(form: Form, low: int, high: int | None) -> int:
    copies = _copies(low, high)
    turns = _turns(form, low, high)
    ways = 1
    if copies or form.longest > 1 or (high is not None and low != high):
        ways = STEP
        if turns == 1:
            # In a loop around this one, the copies go on from every place that it may begin at.
            ways *= max(1, copies.bit_length() // 2)
        if copies and form.first.bit_count() > WIDE:
            ways *= WIDE_WAYS
    return max(form.ways, ways) * turns


def _turns(form: Form, low: int, high: int | None) -> int:
    """Give how many ways there are to tell the turns of a loop apart."""
    is_blurred = not form.is_fixed and bool(form.rest & form.first)
    is_rule = form.longest > 1 or form.ways >= STEP
    counted = low if high is None else high
    turns = 1
    if counted > 1 and (is_blurred or not form.shortest):
        least = 1 if form.shortest else WAYS_PER_TURN // 2
        turns = counted * max(least, min(WAYS_PER_TURN, form.longest // 4))
    if high is None and is_rule and (is_blurred or not form.shortest):
        endless = min(ENDLESS_TURNS, form.longest)
        turns = max(turns, endless if form.shortest else 2 * ENDLESS_TURNS)
    if high != 1 and form.grows:
        turns *= GROWTH
    return min(ENDLESS, turns)


def check_bearable(form: Form) -> None:
    """Refuse what an engine could not bear, with UnservableError."""
    if form.ways > MOST_WAYS:
        raise UnservableError("a text can match it in too many ways")
    if form.work > MOST_WORK:
        raise UnservableError("it would take too long to compile")
