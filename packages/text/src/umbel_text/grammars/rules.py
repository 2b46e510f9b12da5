"""Rules that refer to each other."""

from collections import ChainMap
from collections.abc import Iterable, Iterator, Mapping, Sequence

from umbel_text.grammars.assembly import Program, evaluate, references
from umbel_text.grammars.errors import GrammarSyntaxError, UnservableError
from umbel_text.grammars.forms import ENDLESS, STEP, Form, check_bearable, members

MOST_RULES = 2048
"""The rules of a grammar; with 10 000 in a row the engine stands still for seconds."""

MOST_ROUNDS = 8
"""How often rules that need each other are gone through; more than a few are never needed."""


def check_rules(rules: Mapping[str, Program], root: str) -> Form:
    """Refuse rules that an engine could not bear; gives what the root matches.

    Raises GrammarSyntaxError for a name without a rule, UnservableError for the rest.
    """
    if len(rules) > MOST_RULES:
        raise UnservableError(f"it has more than {MOST_RULES} rules")
    forms: dict[str, Form] = {}
    work = 0
    for group in _groups(rules):
        for name, form in _evaluate(group, rules, forms).items():
            check_bearable(form)
            # A rule is compiled once, however often it is named.
            work += form.work
            forms[name] = form._replace(opens=False, closes=False, alone=0, work=0)
    check_bearable(Form(work=work))
    if not forms[root].first and forms[root].shortest:
        raise UnservableError("no text can begin it")
    return forms[root]._replace(work=work)


def _evaluate(
    group: Sequence[str], rules: Mapping[str, Program], forms: dict[str, Form]
) -> dict[str, Form]:
    """Give the forms of rules that need each other, out of those of the rules below them."""
    if len(group) == 1 and group[0] not in references(rules[group[0]]):
        return {group[0]: evaluate(rules[group[0]], forms)}
    # From below: nothing is known to be possible until a rule shows it.
    nothing = Form(shortest=ENDLESS)
    own = {name: _as_seen(nothing, index) for index, name in enumerate(group)}
    for _ in range(MOST_ROUNDS):
        known = ChainMap(own, forms)
        whole = {name: evaluate(rules[name], known) for name in group}
        before = own
        own = {name: _as_seen(whole[name], index) for index, name in enumerate(group)}
        if own == before:
            _check_distinct([form.alone for form in whole.values()])
            return whole
    raise UnservableError("its rules are too entangled")


def _as_seen(form: Form, index: int) -> Form:
    """Give what the other rules of a group see of one."""
    shortest = form.shortest if form.shortest in (0, ENDLESS) else 1
    return Form(
        form.first,
        form.rest,
        form.alphabet,
        shortest,
        ENDLESS,
        STEP,
        0,
        True,
        True,
        1 << index,
        form.second,
    )


def _check_distinct(alone: Sequence[int]) -> None:
    """Refuse rules that may be each other and nothing more: xgrammar's stack overflows at some."""
    left = [bits.bit_count() for bits in alone]
    needing: list[list[int]] = [[] for _ in alone]
    for index, bits in enumerate(alone):
        for other in members(bits):
            needing[other].append(index)
    ends = [index for index, count in enumerate(left) if not count]
    for index in ends:
        for other in needing[index]:
            left[other] -= 1
            if not left[other]:
                ends.append(other)
    if len(ends) < len(alone):
        raise UnservableError("a rule may be nothing but itself")


class _Visit:
    """A rule on the way to those that it needs."""

    def __init__(self, name: str, needs: Iterable[str], number: int) -> None:
        self.name = name
        self.needs = iter(needs)
        self.number = number
        self.lowest = number


def _groups(rules: Mapping[str, Program]) -> Iterator[list[str]]:
    """Give the rules in groups that need each other, after the groups that those need (Tarjan)."""
    numbers: dict[str, int] = {}
    ungrouped: list[str] = []
    grouped: set[str] = set()
    for root in rules:
        path = [] if root in numbers else [_begin(root, rules, numbers, ungrouped)]
        while path:
            visit = path[-1]
            for other in visit.needs:
                if other not in numbers:
                    path.append(_begin(other, rules, numbers, ungrouped))
                    break
                if other not in grouped:
                    visit.lowest = min(visit.lowest, numbers[other])
            else:
                path.pop()
                if path:
                    path[-1].lowest = min(path[-1].lowest, visit.lowest)
                if visit.lowest == visit.number:
                    group = [ungrouped.pop()]
                    while group[-1] != visit.name:
                        group.append(ungrouped.pop())
                    grouped.update(group)
                    yield group


def _begin(
    name: str, rules: Mapping[str, Program], numbers: dict[str, int], ungrouped: list[str]
) -> _Visit:
    if name not in rules:
        raise GrammarSyntaxError(f'Rule "{name}" is not defined')
    numbers[name] = len(numbers)
    ungrouped.append(name)
    return _Visit(name, references(rules[name]), numbers[name])
