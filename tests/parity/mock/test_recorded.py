"""umbel's answers and vLLM's: the same requests, in front of the same scripted engine.

The reference is recorded (`record.py`); bytes are equal but for what `observed.py` puts aside, for
the order of chunks of different choices, and for what `differences.py` lists.
"""

import asyncio
import difflib
from typing import NamedTuple

import pytest

from . import recorded
from .differences import DIFFERENCES, asked
from .differences_tools import TOOL_DIFFERENCES
from .driver import Driver
from .model import write_models
from .observed import events_of
from .servers import SERVERS, umbel
from .table import TABLE
from .words import said

pytestmark = pytest.mark.timeout(300)

ROWS = {row.name: row for rows in TABLE.values() for row in rows}

IN_BOTH_FORMS = [
    row.name for row in TABLE["tools"] if f"{row.name}, streamed" in ROWS and row.samples
]

ALL_DIFFERENCES = [*DIFFERENCES, *TOOL_DIFFERENCES]

SERVERS_AT_ONCE = 3


@pytest.fixture(scope="module")
def reference():
    """The recorded answers by row."""
    found = {}
    for path in sorted(recorded.FOLDER.glob("*.json")):
        found |= recorded.read(path)
    return found


@pytest.fixture(scope="module")
def given(request, tmp_path_factory):
    """Ask umbel all rows whose tests run; gives answers, or why there is none, by row."""
    names = {
        name
        for item in request.session.items
        if item.parent is request.node and "given" in item.fixturenames
        for name in (item.callspec.params["name"], f"{item.callspec.params['name']}, streamed")
    }
    folder = write_models(tmp_path_factory.mktemp("models"))
    return asyncio.run(ask_all([row for row in ROWS.values() if row.name in names], folder))


async def ask_all(rows, folder):
    at_once = asyncio.Semaphore(SERVERS_AT_ONCE)
    answers = {}

    async def ask_server(group):
        mine = [row for row in rows if row.server == group]
        async with at_once:
            try:
                async with (
                    umbel(group, folder) as (base, engine),
                    Driver.connect(base, engine) as driver,
                ):
                    for row in mine:
                        answers[row.name] = await answer(driver, row)
            except Exception as error:
                answers.update({row.name: error for row in mine if row.name not in answers})

    await asyncio.gather(*map(ask_server, dict.fromkeys(row.server for row in rows)))
    return answers


async def answer(driver, row):
    try:
        return await driver.ask(row)
    except Exception as error:
        return error


def pair(name, reference, given):
    assert name in reference, "no answer of the reference is recorded: see record.py"
    if isinstance(given[name], Exception):
        pytest.fail(f"{type(given[name]).__name__}: {given[name]}", pytrace=False)
    return reference[name], given[name]


def listed(name, answers):
    """Give the differences that are listed for a row."""
    return [item for item in ALL_DIFFERENCES if item.concerns(ROWS[name], answers[0])]


def settled(answers, differences):
    for difference in differences:
        answers = difference.settle(*answers)
    return [Seen(lines(answer), asked_of(answer)) for answer in answers]


class Seen(NamedTuple):
    """What is compared of an answer: what the client gets, and what the engine is told."""

    answer: list[str]
    engine: list[object]


def lines(answer):
    """Give an answer as lines, one per event."""
    events = events_of(answer.text, answer.headers)
    return [f"{answer.status} {answer.headers}", *(events or [answer.text])]


def asked_of(answer):
    """Give what the engine was asked for each sample, and which samples it was to drop."""
    return [*map(asked, answer.wire), {"aborted": answer.aborted}]


@pytest.mark.parametrize("name", ROWS)
def test_the_answer_is_the_same(name, reference, given):
    answers = pair(name, reference, given)
    differences = listed(name, answers)
    expected, got = settled(answers, differences)
    assert_equal(ROWS[name], expected.answer, got.answer)
    for difference in differences:
        others = [item for item in differences if item is not difference]
        expected, got = settled(answers, others)
        assert expected != got, f"listed, and no longer there: {difference.reason}"


@pytest.mark.parametrize("name", ROWS)
def test_the_engine_is_told_the_same(name, reference, given):
    answers = pair(name, reference, given)
    expected, got = settled(answers, listed(name, answers))
    assert_equal(ROWS[name], expected.engine, got.engine)


@pytest.mark.parametrize("name", IN_BOTH_FORMS)
def test_a_stream_says_what_a_whole_answer_says(name, reference, given):
    whole, stream = (pair(form, reference, given)[1] for form in (name, f"{name}, streamed"))
    assert said(whole) == said(stream)


@pytest.mark.parametrize(
    "name", ["chat: tools: no arguments", "chat: tools: no arguments, streamed"]
)
def test_a_call_without_arguments_has_an_empty_object(name, reference, given):
    call = {"name": "now", "arguments": "{}"}
    assert said(pair(name, reference, given)[1]) == [("", "", [call], "tool_calls")] * 2


def test_every_row_has_a_recorded_answer_and_every_answer_a_row(reference):
    assert list(ROWS) == [name for rows in TABLE.values() for name in [row.name for row in rows]]
    assert sorted(ROWS) == sorted(reference)


def test_more_than_half_of_the_table_asks_for_several_samples():
    assert len(ROWS) >= 120
    assert sum(row.n > 1 for row in ROWS.values()) > len(ROWS) / 2


def test_every_difference_is_met_by_a_row(reference):
    for difference in ALL_DIFFERENCES:
        assert any(difference.concerns(ROWS[name], answer) for name, answer in reference.items()), (
            difference.reason
        )


def test_every_server_is_asked():
    assert {row.server for row in ROWS.values()} == SERVERS.keys()


def assert_equal(row, expected, got):
    if expected == got:
        return
    body = (row.content or b"").decode(errors="replace")[:500]
    difference = difflib.ndiff(
        [recorded.short(item)[:3000] for item in expected],
        [recorded.short(item)[:3000] for item in got],
    )
    pytest.fail(
        f"{row.method} {row.path} {body}\n- vLLM, + umbel\n" + "\n".join(difference), pytrace=False
    )
