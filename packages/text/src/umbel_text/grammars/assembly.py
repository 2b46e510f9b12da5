"""Grammars as programs for a stack machine, so that no nesting of theirs is a recursion of ours."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from umbel_text.grammars.errors import GrammarSyntaxError, UnservableError
from umbel_text.grammars.forms import NOTHING, Form, choice, repeated, sequence

DEEPEST_GROUP = 200
"""How deep groups may nest, as in xgrammar's Lark; its other languages have room for 1000."""

MOST_TURNS = 2**31 - 1
"""The largest limit of a repetition; xgrammar keeps it in 32 bits, and not always looks."""

LONGEST_GRAMMAR = 64 * 1024
"""Characters of a grammar; one that is longer takes noticeable time to read."""

LONGEST_REGEX = 16 * 1024
"""Characters of a regular expression; the compiler is not stopped while it is at a longer one."""


def check_length(text: str, largest: int) -> None:
    """Refuse a text that is too long to be read."""
    if len(text) > largest:
        raise UnservableError(f"it has {len(text)} characters, more than {largest}")


class Repeat(NamedTuple):
    """Repeat the last form."""

    low: int
    high: int | None


class Join(NamedTuple):
    """Put the last forms one after the other."""

    parts: int


class Choose(NamedTuple):
    """Leave the choice between the last forms."""

    parts: int


class Reference(NamedTuple):
    """Put the form of a rule."""

    rule: str


Instruction = Form | Repeat | Join | Choose | Reference
Program = Sequence[Instruction]


class Assembler:
    """Writes the program of a body while that is read from left to right."""

    def __init__(self) -> None:
        self.program: list[Instruction] = []
        self.has_item = False
        self._items = [0]
        self._alternatives = [0]

    @property
    def depth(self) -> int:
        """How many groups are open."""
        return len(self._items) - 1

    @property
    def is_empty(self) -> bool:
        """Whether the alternative that is being written has nothing yet."""
        return not self._items[-1]

    def add(self, item: Form | Reference) -> None:
        """Write an item, which a repetition may follow."""
        self.program.append(item)
        self._items[-1] += 1
        self.has_item = True

    def repeat(self, low: int, high: int | None, again: bool = False) -> None:
        """Repeat the last item, which another repetition may follow if `again` says so."""
        if not self.has_item:
            raise GrammarSyntaxError("There is nothing to repeat")
        for limit in (low, high or 0):
            if limit > MOST_TURNS:
                raise GrammarSyntaxError(f"The repetition count {limit} is too large")
        if high is not None and low > high:
            raise GrammarSyntaxError(f"Lower bound is larger than upper bound: {low} > {high}")
        self.program.append(Repeat(low, high))
        self.has_item = again

    def alternative(self) -> None:
        """Begin another alternative."""
        if self._items[-1] != 1:
            self.program.append(Join(self._items[-1]))
        self._items[-1] = 0
        self._alternatives[-1] += 1
        self.has_item = False

    def open(self) -> None:
        """Open a group."""
        if self.depth >= DEEPEST_GROUP:
            raise GrammarSyntaxError(f"Groups are nested deeper than {DEEPEST_GROUP} levels")
        self._items.append(0)
        self._alternatives.append(0)
        self.has_item = False

    def close(self) -> None:
        """Close a group, which is then an item."""
        self.alternative()
        self._choose(self._alternatives.pop())
        self._items.pop()
        self._items[-1] += 1
        self.has_item = True

    def finish(self) -> Program:
        """End the body; gives its program."""
        self.alternative()
        self._choose(self._alternatives[-1])
        return self.program

    def _choose(self, alternatives: int) -> None:
        if alternatives > 1:
            self.program.append(Choose(alternatives))


def references(program: Program) -> Iterable[str]:
    """Give the names of the rules that a program needs."""
    return (item.rule for item in program if isinstance(item, Reference))


def evaluate(program: Program, rules: Mapping[str, Form], unrolls: bool = False) -> Form:
    """Give the form of a body, out of those of the rules that it needs.

    `unrolls` says that its repetitions are unrolled, as those of automata are.
    """
    stack: list[Form] = []
    for instruction in program:
        match instruction:
            case Form():
                stack.append(instruction)
            case Reference(rule):
                stack.append(rules[rule])
            case Repeat(low, high):
                stack.append(repeated(stack.pop(), low, high, unrolls))
            case Join(0):
                stack.append(NOTHING)
            case Join(count):
                stack[-count:] = [sequence(stack[-count:])]
            case Choose(count):
                stack[-count:] = [choice(stack[-count:])]
    (whole,) = stack
    return whole
