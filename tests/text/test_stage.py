from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import pre_tokenizers

from umbel_engine import (
    ABORTED,
    EngineCoreOutput,
    Extras,
    Finish,
    Logprobs,
    PrefillStats,
    Step,
)
from umbel_engine.mock import made_up_logprobs
from umbel_engine.tensors import from_array
from umbel_engine.wire import EVENT_QUEUED, EVENT_SCHEDULED, EngineEvent, LogprobsArrays
from umbel_llm import ChildStats, LlmMetrics, ParentStats, RequestTiming
from umbel_text.defaults import SamplingDefaults
from umbel_text.detokenizer import left_context
from umbel_text.request import SamplingOptions
from umbel_text.sampling import resolve
from umbel_text.stage import TextDelta, TextStage
from umbel_text.tokenizer import Tokenizer

STOP, LENGTH, ERROR = 0, 1, 3

Spell = Callable[[str], list[int]]


@pytest.fixture(scope="session")
def spell(byte_level: Tokenizer) -> Spell:
    """Write a text as tokens of one byte each."""
    bytes_of = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)

    def spell(text: str) -> list[int]:
        pieces = bytes_of.pre_tokenize_str(text)
        ids = [byte_level.backend.token_to_id(byte) for piece, _ in pieces for byte in piece]
        assert byte_level.decode(ids) == text
        return ids

    return spell


class Sampled:
    """A stage and the engine outputs that go into it."""

    def __init__(self, tokenizer: Tokenizer, log_stats: bool = False, **options: object) -> None:
        sampling = resolve(SamplingOptions(**options), SamplingDefaults(), 16)
        metrics = LlmMetrics("m", [], 64, log_stats=log_stats)
        stats = ChildStats(metrics, ParentStats(metrics, 1), 0.0, 1, 16)
        context = left_context(tokenizer, tokenizer.encode("prompt "), sampling.skip_special_tokens)
        self._stats = stats
        self.stage = TextStage(sampling, tokenizer, context, stats)

    def feed(
        self,
        token_ids: Sequence[int],
        finish: int | None = None,
        stop_reason: int | None = None,
        logprobs: Logprobs | None = None,
        at: float = 1.0,
        **fields: object,
    ) -> Finish | None:
        frames: list[bytes] = []
        arrays = None
        if logprobs is not None:
            arrays = LogprobsArrays(
                from_array(logprobs.token_ids, frames),
                from_array(logprobs.logprobs, frames),
                from_array(logprobs.ranks, frames),
            )
        output = EngineCoreOutput(
            "x",
            list(token_ids),
            arrays,
            finish_reason=finish,
            stop_reason=stop_reason,
            **fields,
        )
        step = Step(0, at, 0.0, [b"the message", *frames])
        self._stats.feed(output, step)
        return self.stage.feed(output, step)

    def take(self) -> TextDelta:
        return self.stage.take()

    def text(self) -> str:
        return self.take().text


@pytest.fixture
def start(byte_level: Tokenizer) -> Callable[..., Sampled]:
    """Begin a sample with these options."""

    def start(**options: object) -> Sampled:
        return Sampled(byte_level, **options)

    return start


# Text.


def test_text_comes_with_the_token_that_completes_its_character(
    start: Callable[..., Sampled], spell: Spell
) -> None:
    sample = start()
    texts = []
    for token_id in spell("a学🎉"):
        assert sample.feed([token_id]) is None
        texts.append(sample.text())
    assert texts == ["a", "", "", "学", "", "", "", "🎉"]


def test_what_was_not_taken_is_merged(start: Callable[..., Sampled], spell: Spell) -> None:
    sample = start()
    ids = spell("merged")
    prefill = PrefillStats(3, 1, 2)
    sample.feed(ids[:2], prefill_stats=prefill)
    sample.feed(ids[2:5])
    sample.feed(ids[5:], finish=LENGTH)
    delta = sample.take()
    assert (delta.text, delta.token_ids, delta.prefill) == ("merged", ids, prefill)
    assert delta.finish == Finish("length")


def test_what_was_taken_does_not_come_again(start: Callable[..., Sampled], spell: Spell) -> None:
    sample = start()
    first, second = spell("ab")
    sample.feed([first], prefill_stats=PrefillStats(3, 3))
    assert (delta := sample.take()).token_ids == [first]
    assert (delta.finish, delta.timing) == (None, None)
    sample.feed([second])
    delta = sample.take()
    assert (delta.text, delta.token_ids, delta.prefill) == ("b", [second], None)


def test_a_character_that_never_completes_is_not_shown(
    start: Callable[..., Sampled], spell: Spell
) -> None:
    sample = start()
    ids = spell("a学")[:-1]
    sample.feed(ids, finish=LENGTH)
    delta = sample.take()
    assert (delta.text, delta.token_ids) == ("a", ids)


# The token that ends a sample.


@pytest.mark.parametrize("stop_reason", [None, 5])
@pytest.mark.parametrize("before", ["", "a", "ab"])
def test_a_token_that_ends_the_sample_is_in_the_ids_but_not_in_the_text(
    start: Callable[..., Sampled], spell: Spell, before: str, stop_reason: int | None
) -> None:
    # It may be a token like any other: what counts is that the engine stopped for it.
    sample = start()
    ids = spell(before + "Z")
    assert sample.feed(ids, STOP, stop_reason) == Finish("stop", stop_reason)
    delta = sample.take()
    assert (delta.text, delta.token_ids) == (before, ids)
    assert delta.finish == Finish("stop", stop_reason)


def test_it_is_in_the_text_where_what_stops_is_to_be_included(
    start: Callable[..., Sampled], spell: Spell
) -> None:
    sample = start(include_stop_str_in_output=True)
    sample.feed(spell("abZ"), STOP, 5)
    assert sample.text() == "abZ"


def test_special_tokens_show_where_they_are_not_skipped(
    start: Callable[..., Sampled], spell: Spell, byte_level: Tokenizer
) -> None:
    assert byte_level.eos_token_id is not None
    ids = [*spell("a"), byte_level.eos_token_id, *spell("b")]
    for skip, expected in ((True, "ab"), (False, "a<|end|>b")):
        sample = start(skip_special_tokens=skip)
        sample.feed(ids, finish=LENGTH)
        assert sample.text() == expected


def test_the_last_token_shows_when_the_limit_ended_the_sample(
    start: Callable[..., Sampled], spell: Spell
) -> None:
    sample = start()
    sample.feed(spell("ab"), finish=LENGTH)
    assert sample.text() == "ab"


def test_a_finish_may_come_without_a_token(start: Callable[..., Sampled], spell: Spell) -> None:
    sample = start(stop=["xyz"])
    sample.feed(spell("abx"))
    assert sample.text() == "a"
    assert sample.feed([], finish=STOP) == Finish("stop")
    delta = sample.take()
    assert (delta.text, delta.token_ids) == ("bx", [])


# Stop strings.


def test_what_may_become_a_stop_string_is_held_back(
    start: Callable[..., Sampled], spell: Spell
) -> None:
    # As many characters as the longest stop string has, less one, whatever they are.
    sample = start(stop=["EN", "STOP"])
    texts = []
    for token_id in spell("abcdef"):
        sample.feed([token_id])
        texts.append(sample.text())
    assert texts == ["", "", "", "a", "b", "c"]
    sample.feed(spell("g"), finish=LENGTH)
    assert sample.text() == "defg"


def test_a_stop_string_across_tokens_ends_the_sample_with_its_own_finish(
    start: Callable[..., Sampled], spell: Spell
) -> None:
    sample = start(stop=["END"])
    ids = spell("abEND")
    finishes = [sample.feed([token_id]) for token_id in ids]
    assert finishes == [None] * 4 + [Finish("stop", "END")]
    delta = sample.take()
    assert (delta.text, delta.token_ids, delta.finish) == ("ab", ids, Finish("stop", "END"))


def test_it_is_shown_and_nothing_held_back_where_it_is_to_be_included(
    start: Callable[..., Sampled], spell: Spell
) -> None:
    sample = start(stop=["END"], include_stop_str_in_output=True)
    texts = []
    for token_id in spell("abEND"):
        sample.feed([token_id])
        texts.append(sample.text())
    assert texts == list("abEND")


@pytest.mark.parametrize(
    ("stop", "expected_stop", "expected_text"),
    [
        (["d", "bc"], "bc", "a"),  # completes first
        (["abc", "bc"], "abc", ""),  # stands first
        (["bc", "abc"], "bc", "a"),
        (["x", "c"], "c", "ab"),
    ],
)
def test_of_several_stop_strings_the_first_to_complete_wins(
    start: Callable[..., Sampled],
    spell: Spell,
    stop: list[str],
    expected_stop: str,
    expected_text: str,
) -> None:
    sample = start(stop=stop)
    assert sample.feed(spell("abcdef")) == Finish("stop", expected_stop)
    assert sample.text() == expected_text


@pytest.mark.parametrize("include", [False, True])
def test_surplus_tokens_of_the_step_are_dropped_with_their_logprobs(
    start: Callable[..., Sampled], spell: Spell, include: bool
) -> None:
    sample = start(stop=["END"], include_stop_str_in_output=include, logprobs=2)
    ids = spell("abENDxyz")
    finish = sample.feed(ids, logprobs=made_up_logprobs(ids, 2))
    assert finish == Finish("stop", "END")
    delta = sample.take()
    assert delta.text == ("abEND" if include else "ab")
    assert delta.token_ids == ids[:5]
    assert delta.logprobs is not None
    assert [position[0].token_id for position in delta.logprobs] == ids[:5]


def test_surplus_tokens_of_the_step_take_their_experts_with_them(
    start: Callable[..., Sampled], spell: Spell
) -> None:
    sample = start(stop=["END"])
    ids = spell("abENDxyz")
    sample.feed(ids, routed_experts=from_array(np.arange(8).reshape(8, 1, 1), []))
    extras = sample.take().extras
    assert extras is not None
    assert extras.routed_experts is not None
    assert extras.routed_experts.ravel().tolist() == [0, 1, 2, 3, 4]


def test_extras_come_with_the_finish_that_is_a_stop_string(
    start: Callable[..., Sampled], spell: Spell
) -> None:
    sample = start(stop=["END"])
    sample.feed(spell("EN"), kv_transfer_params={"block": 3})
    assert sample.take().extras is None
    sample.feed(spell("D"))
    assert sample.take().extras == Extras({"block": 3})


def test_named_tokens_come_with_every_sampled_one(
    start: Callable[..., Sampled], spell: Spell
) -> None:
    sample = start(logprob_token_ids=spell("xyz"))
    (token_id,) = spell("a")
    # A neighbour in the batch may have asked for more.
    row = np.array([[token_id, *spell("xyz"), *spell("q")]])
    sample.feed([token_id], logprobs=Logprobs(row, -row / 1000, np.array([5])))
    delta = sample.take()
    assert delta.logprobs is not None
    (position,) = delta.logprobs
    assert [entry.text for entry in position] == ["a", "x", "y", "z"]
    assert position[0].rank == 5


def test_log_probabilities_of_the_prompt_come_once_as_the_engine_has_them(
    start: Callable[..., Sampled], spell: Spell
) -> None:
    sample = start(prompt_logprobs=1)
    prompt = made_up_logprobs(spell("rompt "), 1)
    arrays = LogprobsArrays(
        from_array(prompt.token_ids, []),
        from_array(prompt.logprobs, []),
        from_array(prompt.ranks, []),
    )
    sample.feed(spell("a"), new_prompt_logprobs_tensors=arrays)
    delta = sample.take()
    assert delta.prompt_logprobs is not None
    assert delta.prompt_logprobs.token_ids[:, 0].tolist() == spell("rompt ")
    assert delta.logprobs is None
    sample.feed(spell("b"), finish=LENGTH)
    assert sample.take().prompt_logprobs is None


def test_text_of_a_token_after_the_stop_string_is_cut_off(
    start: Callable[..., Sampled], byte_level: Tokenizer
) -> None:
    (token_id,) = byte_level.encode(" answers")
    for include, expected in ((False, " ans"), (True, " answe")):
        sample = start(stop=["we"], include_stop_str_in_output=include)
        assert sample.feed([token_id]) == Finish("stop", "we")
        delta = sample.take()
        assert (delta.text, delta.token_ids) == (expected, [token_id])


def test_stop_strings_before_min_tokens_do_not_count(
    start: Callable[..., Sampled], spell: Spell
) -> None:
    sample = start(stop=["b"], min_tokens=2)
    assert sample.feed(spell("ab")) is None
    assert sample.feed(spell("cb")) == Finish("stop", "b")
    delta = sample.take()
    assert (delta.text, delta.token_ids) == ("abc", spell("abcb"))


def test_a_stop_string_comes_before_what_ended_the_sample_later_in_the_step(
    start: Callable[..., Sampled], spell: Spell
) -> None:
    for engine_finish in (STOP, LENGTH):
        sample = start(stop=["b"])
        assert sample.feed(spell("abcd"), engine_finish) == Finish("stop", "b")
        delta = sample.take()
        assert (delta.text, delta.token_ids) == ("a", spell("ab"))


def test_the_token_that_ended_the_sample_completes_no_stop_string(
    start: Callable[..., Sampled], spell: Spell
) -> None:
    sample = start(stop=["aZ"])
    assert sample.feed(spell("aZ"), STOP, 5) == Finish("stop", 5)
    assert sample.text() == "a"


# Ends from this side, and errors.


def test_the_end_of_a_sample_releases_what_was_held_back(
    start: Callable[..., Sampled], spell: Spell
) -> None:
    sample = start(stop=["STOP"])
    sample.feed(spell("abcST"))
    assert sample.text() == "ab"
    sample.stage.end(ABORTED)
    delta = sample.take()
    assert (delta.text, delta.token_ids, delta.finish) == ("cST", [], ABORTED)


def test_an_end_without_any_token_has_no_text(start: Callable[..., Sampled]) -> None:
    sample = start()
    sample.stage.end(ABORTED)
    delta = sample.take()
    assert (delta.text, delta.token_ids, delta.finish) == ("", [], ABORTED)


def test_an_error_of_the_engine_is_the_finish(start: Callable[..., Sampled]) -> None:
    sample = start()
    finish = sample.feed([], finish=ERROR)
    assert finish is not None
    assert (finish.reason, str(finish.error)) == ("error", "Internal server error")
    assert sample.take().finish is finish


# Logprobs and timing.


def test_every_token_has_its_logprobs(start: Callable[..., Sampled], spell: Spell) -> None:
    sample = start(logprobs=1)
    ids = spell("abcd")
    sample.feed(ids[:3], logprobs=made_up_logprobs(ids[:3], 1))
    sample.feed(ids[3:], logprobs=made_up_logprobs(ids[3:], 1))
    delta = sample.take()
    assert delta.logprobs is not None
    assert [position[0].token_id for position in delta.logprobs] == ids
    assert [position[0].text for position in delta.logprobs] == list("abcd")


def test_logprobs_come_with_their_tokens_while_the_text_is_held_back(
    start: Callable[..., Sampled], spell: Spell
) -> None:
    sample = start(logprobs=0, stop=["STOP"])
    for token_id in spell("ab"):
        sample.feed([token_id], logprobs=made_up_logprobs([token_id], 0))
        delta = sample.take()
        assert (delta.text, delta.token_ids) == ("", [token_id])
        assert delta.logprobs is not None
        assert [len(position) for position in delta.logprobs] == [1]


def test_logprobs_that_were_not_asked_for_are_left_out(
    start: Callable[..., Sampled], spell: Spell
) -> None:
    sample = start()
    sample.feed(spell("a"), logprobs=made_up_logprobs(spell("a"), 1))
    assert sample.take().logprobs is None


def test_timing_counts_the_tokens_that_are_shown(
    start: Callable[..., Sampled], spell: Spell
) -> None:
    sample = start(log_stats=True, stop=["c"])
    events = [EngineEvent(EVENT_QUEUED, 1.0), EngineEvent(EVENT_SCHEDULED, 2.0)]
    sample.feed(spell("a"), at=3.0, events=events)
    assert sample.take().timing is None
    sample.feed(spell("bcxyz"), at=5.0)
    assert sample.take().timing == RequestTiming(
        time_to_first_token_ms=1000.0,
        generation_time_ms=2000.0,
        queue_time_ms=1000.0,
        mean_itl_ms=1000.0,
        tokens_per_second=1.0,
    )


# Any cut.

texts = st.text("abc é学🎉", max_size=16)
stops = st.lists(st.text("abc é学", min_size=1, max_size=3), max_size=3)


@given(texts, stops, st.booleans(), st.integers(0, 6), st.sampled_from([STOP, LENGTH]), st.data())
def test_the_same_tokens_cut_in_any_way_give_the_same_in_the_end(
    byte_level: Tokenizer,
    spell: Spell,
    text: str,
    stop: list[str],
    include: bool,
    min_tokens: int,
    engine_finish: int,
    data: st.DataObject,
) -> None:
    ids = [*spell(text), *spell("Z")]

    def run(sizes: Callable[[int], int], takes: Callable[[], bool]) -> tuple[object, ...]:
        sample = Sampled(
            byte_level,
            stop=stop,
            include_stop_str_in_output=include,
            min_tokens=min_tokens,
            logprobs=1,
        )
        deltas = []
        place, finish = 0, None
        while finish is None:
            end = min(place + sizes(len(ids) - place), len(ids))
            piece = ids[place:end]
            finish = sample.feed(
                piece,
                engine_finish if end == len(ids) else None,
                logprobs=made_up_logprobs(piece, 1),
            )
            place = end
            if finish is not None or takes():
                deltas.append(sample.take())
        token_ids = [token_id for delta in deltas for token_id in delta.token_ids]
        positions = [position for delta in deltas for position in delta.logprobs or ()]
        assert [position[0].token_id for position in positions] == token_ids
        return "".join(delta.text for delta in deltas), token_ids, positions, deltas[-1].finish

    token_by_token = run(lambda rest: 1, lambda: True)
    at_once = run(lambda rest: rest, lambda: True)
    somehow = run(
        lambda rest: data.draw(st.integers(1, rest)),
        lambda: data.draw(st.booleans()),
    )
    assert at_once == token_by_token
    assert somehow == token_by_token
