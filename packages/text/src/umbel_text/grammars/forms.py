"""What a piece of a grammar matches, and how hard it is to follow.

The measures were taken of xgrammar 0.2.8: a parser that has to keep k ways of reading a text open
needs about k times as long for each step, and a compiler that has to look at k places as long to
compile them.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
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
"""The ways that an ambiguous loop without limit multiplies by, as measured."""

WAYS_PER_TURN = 8
"""The ways that each turn of an ambiguous loop with a limit adds, as measured."""

UNROLLED = 256
"""The copies that the compiler makes of what is repeated; beyond those it counts."""

DOUBLED = "a rule is followed by itself with nothing in between"

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
    return Form(
        one.first | (0 if one.shortest else two.first),
        rest,
        one.alphabet | two.alphabet,
        min(ENDLESS, one.shortest + two.shortest),
        min(ENDLESS, one.longest + two.longest),
        _ways_of_both(one, two) if is_blurred else max(one.ways, two.ways),
        min(ENDLESS, one.work + two.work + (one.ways * two.work // STEP if is_blurred else 0)),
        one.opens or (two.opens and not one.shortest),
        two.closes or (one.closes and not two.shortest),
        (0 if two.shortest else one.alone) | (0 if one.shortest else two.alone),
        one.second | (two.first if one.shortest <= 1 else 0) | (0 if one.shortest else two.second),
    )


def _ways_of_both(one: Form, two: Form) -> int:
    """Give the ways of two pieces whose border is in question."""
    if one.closes and two.opens:
        raise UnservableError(DOUBLED)
    factor = 1
    if two.opens:
        # A rule that goes on with itself is a loop; one that also begins so has an operator.
        factor = 2 if one.opens else ENDLESS_TURNS // 2
    return min(ENDLESS, (one.ways + two.ways) * factor)


def choice(forms: Sequence[Form]) -> Form:
    """Leave the choice between pieces, of which there must be one."""
    if len(forms) == 1:
        return forms[0]
    first = second = alphabet = alone = ways = work = plain = many = 0
    for form in forms:
        first |= form.first
        second |= form.second
        alphabet |= form.alphabet
        alone |= form.alone
        ways = max(ways, form.ways)
        work += form.work
        plain += form.ways
        many += form.ways if form.ways > STEP else 0
    beginnings, are_alike = _beginnings(forms)
    rest = _rest_of_choice(forms, beginnings)
    if are_alike:
        ways = max(ways, many) + plain // STEP
    return Form(
        first,
        alphabet if rest is None else rest,
        alphabet,
        min(form.shortest for form in forms),
        max(form.longest for form in forms),
        min(ENDLESS, ways),
        min(ENDLESS, work),
        any(form.opens for form in forms),
        any(form.closes for form in forms),
        alone,
        second,
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
    for form in forms:
        is_text = form.text is not None
        are_alike = are_alike or bool(form.first & (others if is_text else others | texts))
        texts |= form.first if is_text else 0
        others |= 0 if is_text else form.first
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
    counted = low if high is None else high
    copies = min(UNROLLED, counted) if counted > 1 else 0
    width = 2 + form.first.bit_count() * 2
    is_rule = copies or form.longest > 1 or (high is not None and low != high)
    rest = form.rest
    if is_looping:
        rest = form.alphabet if is_blurred else rest | (form.first if low != high else 0)
    return Form(
        form.first,
        rest,
        form.alphabet,
        min(ENDLESS, low * form.shortest),
        ENDLESS if high is None else min(ENDLESS, high * form.longest),
        min(ENDLESS, (max(form.ways, STEP) if is_rule else form.ways) * _turns(form, low, high)),
        min(ENDLESS, form.work * (copies if unrolls and copies else 1) + copies * width),
        form.opens,
        form.closes,
        form.alone,
        form.second | (form.first if is_looping and form.shortest <= 1 else 0),
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
    """Refuse what an engine could not bear, with UnservableError."""
    if form.ways > MOST_WAYS:
        raise UnservableError("a text can match it in too many ways")
    if form.work > MOST_WORK:
        raise UnservableError("it would take too long to compile")
