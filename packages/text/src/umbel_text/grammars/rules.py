"""Rules that refer to each other."""

from collections import ChainMap
from collections.abc import Iterable, Iterator, Mapping, Sequence

from umbel_text.grammars.assembly import Program, evaluate, references
from umbel_text.grammars.errors import GrammarSyntaxError, UnservableError
from umbel_text.grammars.forms import ENDLESS, STEP, Form, check_bearable
from umbel_text.grammars.heads import any_of, first_of

MOST_RULES = 2048
"""The rules of a grammar; with 10 000 in a row the engine stands still for seconds."""

MOST_STEPS = 60_000
"""The instructions that going through rules that need each other may take."""


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
            forms[name] = form._replace(opens=0, closes=0, work=0)
    check_bearable(Form(work=work))
    if not forms[root].heads and forms[root].shortest:
        raise UnservableError("no text can begin it")
    return forms[root]._replace(work=work)


def _evaluate(
    group: Sequence[str], rules: Mapping[str, Program], forms: dict[str, Form]
) -> dict[str, Form]:
    """Give the forms of rules that need each other, out of those of the rules below them."""
    if len(group) == 1 and group[0] not in references(rules[group[0]]):
        return {group[0]: evaluate(rules[group[0]], forms)}
    numbers = {name: index for index, name in enumerate(group)}
    # From below: nothing is known to be possible until a rule shows it.
    own = {name: _as_seen(Form(shortest=ENDLESS), 1 << numbers[name]) for name in group}
    whole = _settled(own, rules, forms)
    if not all(form.heads for form in whole.values()):
        # The stack of the compiler overflows at some of those.
        raise UnservableError("a rule that needs itself has no text")
    opening = _reaching_themselves([whole[name].opens for name in group])
    closing = _reaching_themselves([whole[name].closes for name in group])
    for name, index in numbers.items():
        own[name] = own[name]._replace(opens=opening & 1 << index, closes=closing & 1 << index)
    known = ChainMap(own, forms)
    return {name: evaluate(rules[name], known) for name in group}


def _settled(
    own: dict[str, Form], rules: Mapping[str, Program], forms: dict[str, Form]
) -> dict[str, Form]:
    """Go through rules that need each other until none changes, which `own` has as others see them."""
    whole: dict[str, Form] = {}
    known = ChainMap(own, forms)
    needed = {name: set(references(rules[name])) & own.keys() for name in own}
    changed = set(own)
    steps = 0
    while changed:
        before, changed = changed, set()
        for name, needs in needed.items():
            if name in whole and needs.isdisjoint(before | changed):
                continue
            steps += len(rules[name])
            if steps > MOST_STEPS:
                raise UnservableError("its rules are too entangled")
            whole[name] = evaluate(rules[name], known)
            seen = _as_seen(whole[name], own[name].opens)
            if seen != own[name]:
                own[name] = seen
                changed.add(name)
    return whole


def _as_seen(form: Form, itself: int) -> Form:
    """Give what the other rules of a group see of one, which is the only one in the set `itself`."""
    return Form(
        heads=any_of(form.first),
        rest=any_of(first_of(form.rest)),
        inner=form.inner,
        final=form.final,
        shortest=form.shortest if form.shortest in (0, ENDLESS) else 1,
        longest=ENDLESS,
        ways=STEP,
        opens=itself,
        closes=itself,
    )


def _reaching_themselves(edges: Sequence[int]) -> int:
    """Give the members of a graph that lie on a way back to themselves."""
    reached = list(edges)
    for middle, beyond in enumerate(reached):
        for index, bits in enumerate(reached):
            if bits >> middle & 1:
                reached[index] |= beyond
    return sum(1 << index for index, bits in enumerate(reached) if bits >> index & 1)


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
