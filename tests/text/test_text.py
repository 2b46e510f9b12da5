import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import pre_tokenizers

from umbel_engine import (
    ABORTED,
    EngineClient,
    EngineDeadError,
    EngineOptions,
    EngineRequestError,
    Finish,
    FinishReason,
    InvalidRankError,
    Samples,
    merge,
)
from umbel_engine.mock import MockEngine, MockStep, made_up_logprobs, per_child, sampled
from umbel_llm import Llm
from umbel_text.defaults import SamplingDefaults
from umbel_text.errors import InvalidRequestError
from umbel_text.model import TextModel
from umbel_text.request import SamplingOptions, TextRequest
from umbel_text.stage import TextDelta
from umbel_text.text import TextLlm
from umbel_text.tokenizer import Tokenizer

Spell = Callable[[str], list[int]]
Connect = Callable[..., Awaitable[tuple[TextLlm, MockEngine]]]
Step = Callable[[TextLlm, MockEngine], Awaitable[None]]


@pytest.fixture(scope="session")
def spell(byte_level: Tokenizer) -> Spell:
    """Write a text as tokens of one byte each."""
    bytes_of = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)

    def spell(text: str) -> list[int]:
        pieces = bytes_of.pre_tokenize_str(text)
        return [byte_level.backend.token_to_id(byte) for piece, _ in pieces for byte in piece]

    return spell


@pytest.fixture
async def connect(byte_level: Tokenizer) -> AsyncIterator[Connect]:
    """Connect a TextLlm to a mock engine, whose tables must be empty in the end."""
    model = TextModel(byte_level, 64, byte_level.max_token_id + 1, SamplingDefaults())
    connected = []
    async with AsyncExitStack() as stack:

        async def connect(script=None, **options):
            client = await stack.enter_async_context(EngineClient(EngineOptions(ready_timeout=20)))
            engine = MockEngine(script, **options)
            await stack.enter_async_context(engine.serve(client))
            connected.append(TextLlm(model, Llm(client)))
            return connected[-1], engine

        yield connect
        for text_llm in connected:
            assert text_llm.llm.client.in_flight == 0
            assert text_llm.llm.in_flight.response_ids == []


@pytest.fixture
def step() -> Step:
    """Let the engine make one step, and wait until it has been handed over."""

    async def step(text_llm: TextLlm, engine: MockEngine) -> None:
        client = text_llm.llm.client
        arrived = asyncio.Event()
        client.step_listener = lambda outputs, step: arrived.set()
        await engine.step()
        await asyncio.wait_for(arrived.wait(), 10)

    return step


def make_request(prompt: str | list[int] = "a prompt", **fields: object) -> TextRequest:
    """Make a request; what is not a field of it is a sampling option."""
    own = {name: fields.pop(name) for name in set(TextRequest.__struct_fields__) & set(fields)}
    own = {"request_id": "x", "arrival_time": 0.0, **own}
    return TextRequest(prompt=prompt, sampling=SamplingOptions(**fields), **own)


def one_by_one(
    ids: Sequence[int], finish: FinishReason | None = "length", logprobs: int | None = None
) -> list[MockStep]:
    return in_steps([[token_id] for token_id in ids], finish, logprobs)


def in_steps(
    pieces: Sequence[Sequence[int]],
    finish: FinishReason | None = "length",
    logprobs: int | None = None,
) -> list[MockStep]:
    return [
        MockStep(
            token_ids=piece,
            logprobs=None if logprobs is None else made_up_logprobs(piece, logprobs),
            finish=finish if index == len(pieces) - 1 else None,
        )
        for index, piece in enumerate(pieces)
    ]


class Answer(msgspec.Struct):
    """All that a sample brought."""

    text: str = ""
    token_ids: list[int] = []
    logprobs: list[object] = []
    finish: Finish | None = None


async def collect(samples: Samples[TextDelta]) -> list[Answer]:
    """Read every sample to its end."""
    answers = [Answer() for _ in samples]
    async for index, delta in samples:
        answer = answers[index]
        answer.text += delta.text
        answer.token_ids += delta.token_ids
        answer.logprobs += delta.logprobs or ()
        answer.finish = delta.finish
    return answers


async def settle(text_llm: TextLlm) -> None:
    """Wait until the engine has seen everything that was sent before."""
    await text_llm.llm.client.call("get_supported_tasks")


# One prompt, n answers.


async def test_the_prompt_is_tokenized_once_for_all_samples(
    connect: Connect, byte_level: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    text_llm, engine = await connect()
    encode, encoded = byte_level.encode, []

    def count(text: str, add_special_tokens: bool = True) -> list[int]:
        encoded.append(text)
        return encode(text, add_special_tokens)

    monkeypatch.setattr(byte_level, "encode", count)
    async with text_llm.generate_n(make_request("one prompt", max_tokens=2), 4) as samples:
        await collect(samples)
    assert encoded == ["one prompt"]
    assert [add.prompt_token_ids for add in engine.adds] == [encode("one prompt")] * 4


async def test_a_request_that_was_lowered_before_is_not_tokenized_again(
    connect: Connect, byte_level: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    text_llm, engine = await connect()
    lowered = text_llm.lower(make_request("one prompt", max_tokens=2), 2)
    monkeypatch.setattr(byte_level, "encode", pytest.fail)
    async with text_llm.generate_n(lowered, 2) as samples:
        await collect(samples)
    assert len(engine.adds) == 2


async def test_samples_are_decoded_independently(
    connect: Connect, step: Step, spell: Spell
) -> None:
    # Bytes of their characters arrive in turns, and stop strings at different times.
    answers = ("学字", "aSTOPb", "🎉", "STO")
    text_llm, engine = await connect(
        per_child(*(one_by_one(spell(text)) for text in answers)), paused=True
    )
    async with text_llm.generate_n(make_request(stop=["STOP"]), 4) as samples:
        await engine.wait_adds(4)
        for _ in range(6):
            await step(text_llm, engine)
        collected = await collect(samples)
    assert [answer.text for answer in collected] == ["学字", "a", "🎉", "STO"]
    assert [answer.finish for answer in collected] == [
        Finish("length"),
        Finish("stop", "STOP"),
        Finish("length"),
        Finish("length"),
    ]
    assert [len(answer.token_ids) for answer in collected] == [6, 5, 4, 3]


async def test_one_sample_is_what_generate_gives(connect: Connect) -> None:
    text_llm, _ = await connect(sampled())
    answers = []
    for samples in (
        text_llm.generate(make_request(seed=7, max_tokens=9)),
        text_llm.generate_n(make_request(seed=7, max_tokens=9), 1),
    ):
        async with samples:
            answers += await collect(samples)
    assert answers[0] == answers[1]
    assert len(answers[0].token_ids) == 9


async def test_the_engine_is_asked_for_what_the_request_says(connect: Connect) -> None:
    text_llm, engine = await connect()
    request = make_request(
        [5, 6],
        request_id="cmpl-1-0",
        response_id="cmpl-1",
        arrival_time=12.5,
        cache_salt="salt",
        data_parallel_rank=0,
        priority=3,
        session_id="session",
        trace_headers={"traceparent": "00"},
        seed=40,
        max_tokens=2,
        stop=["END"],
    )
    async with text_llm.generate_n(request, 2):
        adds = await engine.wait_adds(2)
        assert text_llm.llm.in_flight.response_ids == ["cmpl-1"]
    lowered = text_llm.lower(request, 2)
    for index, add in enumerate(adds):
        assert add.prompt_token_ids == [5, 6]
        assert msgspec.structs.replace(add.sampling_params, seed=40) == lowered.sampling_params
        assert add.sampling_params.seed == 40 + index
        assert (add.external_req_id, add.arrival_time) == ("cmpl-1-0", 12.5)
        assert (add.cache_salt, add.priority, add.session_id) == ("salt", 3, "session")
        assert (add.data_parallel_rank, add.trace_headers) == (0, {"traceparent": "00"})


async def test_prompts_of_a_list_are_merged_in_their_order(connect: Connect, spell: Spell) -> None:
    text_llm, _ = await connect(lambda request: one_by_one(request.prompt_token_ids or ()))
    groups = [
        text_llm.generate_n(
            make_request(spell(prompt), request_id=f"cmpl-1-{index}", response_id="cmpl-1"), 2
        )
        for index, prompt in enumerate(["ab", "学"])
    ]
    async with merge(*groups) as samples:
        answers = await collect(samples)
    assert [answer.text for answer in answers] == ["ab", "ab", "学", "学"]


async def test_greedy_needs_one_sample_however_the_request_was_lowered(connect: Connect) -> None:
    text_llm, _ = await connect()
    lowered = text_llm.lower(make_request(temperature=0.0, max_tokens=2))
    with pytest.raises(InvalidRequestError, match="n must be 1 when using greedy sampling, got 2"):
        text_llm.generate_n(lowered, 2)
    async with text_llm.generate_n(lowered, 1) as samples:
        assert len(await collect(samples)) == 1


# Stopping.


async def test_a_stop_string_aborts_its_own_child_in_the_engine(
    connect: Connect, spell: Spell
) -> None:
    text_llm, engine = await connect(
        per_child(one_by_one(spell("abENDxyz"), finish=None), one_by_one(spell("cd")))
    )
    async with text_llm.generate_n(make_request(stop=["END"]), 2) as samples:
        stopped, other = await collect(samples)
    assert (stopped.text, stopped.finish) == ("ab", Finish("stop", "END"))
    assert stopped.token_ids == spell("abEND")
    assert (other.text, other.finish) == ("cd", Finish("length"))
    ((aborted,),) = await engine.wait_aborts()
    assert aborted.startswith("0_x-")


async def test_a_stop_string_with_the_engines_last_token_aborts_nothing(
    connect: Connect, spell: Spell
) -> None:
    text_llm, engine = await connect(lambda request: one_by_one(spell("abEND")))
    async with text_llm.generate(make_request(stop=["END"])) as samples:
        (answer,) = await collect(samples)
    assert (answer.text, answer.finish) == ("ab", Finish("stop", "END"))
    await settle(text_llm)
    assert engine.aborts == []


async def test_what_may_become_a_stop_string_is_not_handed_over(
    connect: Connect, step: Step, spell: Spell
) -> None:
    text_llm, engine = await connect(lambda request: one_by_one(spell("abEND")), paused=True)
    texts = []
    async with text_llm.generate(make_request(stop=["END"])) as samples:
        samples.sink = lambda ready: texts.extend(
            delta.text for sample in ready if (delta := sample.take())
        )
        for _ in range(5):
            await step(text_llm, engine)
    # A step whose text is held back is handed over all the same, for its token.
    assert texts == ["", "", "a", "b", ""]


async def test_the_end_of_sequence_token_ends_a_sample_without_being_seen(
    connect: Connect, byte_level: Tokenizer
) -> None:
    text_llm, engine = await connect(sampled(range(40, 60), eos_after=3))
    async with text_llm.generate(make_request(skip_special_tokens=False)) as samples:
        (answer,) = await collect(samples)
    assert answer.finish == Finish("stop")
    assert len(answer.token_ids) == 4
    assert answer.token_ids[-1] == byte_level.eos_token_id
    assert answer.text == byte_level.decode(answer.token_ids[:-1])
    await settle(text_llm)
    assert engine.aborts == []


async def test_surplus_of_a_step_is_dropped_from_text_ids_and_logprobs(
    connect: Connect, spell: Spell
) -> None:
    pieces = [spell("a"), spell("bENDxyz"), spell("more")]
    text_llm, engine = await connect(lambda request: in_steps(pieces, None, logprobs=2))
    async with text_llm.generate(make_request(stop=["END"], logprobs=2)) as samples:
        (answer,) = await collect(samples)
    assert (answer.text, answer.token_ids) == ("ab", spell("abEND"))
    assert [position[0].token_id for position in answer.logprobs] == answer.token_ids
    await engine.wait_aborts()


async def test_an_abort_releases_what_was_held_back(
    connect: Connect, step: Step, spell: Spell
) -> None:
    text_llm, engine = await connect(
        per_child(one_by_one(spell("abST")), one_by_one(spell("xyzw"))), paused=True
    )
    async with text_llm.generate_n(make_request(stop=["STOP"], response_id="r"), 2) as samples:
        await engine.wait_adds(2)
        for _ in range(3):
            await step(text_llm, engine)
        assert [delta.text for sample in samples if (delta := sample.take())] == ["", ""]
        assert text_llm.llm.abort(["r"]) == 2
        answers = await collect(samples)
    assert [answer.text for answer in answers] == ["abS", "xyz"]
    assert [answer.token_ids for answer in answers] == [[], []]
    assert [answer.finish for answer in answers] == [ABORTED, ABORTED]
    assert [len(aborted) for aborted in await engine.wait_aborts()] == [2]


# Handing over.


@pytest.mark.parametrize(("interval", "expected"), [(1, [1] * 12), (5, [1, 5, 5, 1]), (None, [12])])
async def test_hand_overs_keep_to_the_stream_interval(
    connect: Connect, step: Step, spell: Spell, interval: int | None, expected: list[int]
) -> None:
    text_llm, engine = await connect(lambda request: one_by_one(spell("abcdefghijkl")), paused=True)
    deltas: list[TextDelta] = []
    async with text_llm.generate(make_request(stream_interval=interval)) as samples:
        samples.sink = lambda ready: deltas.extend(
            delta for sample in ready if (delta := sample.take())
        )
        for _ in range(12):
            await step(text_llm, engine)
    assert [len(delta.token_ids) for delta in deltas] == expected
    assert [len(delta.text) for delta in deltas] == expected
    assert "".join(delta.text for delta in deltas) == "abcdefghijkl"


async def test_a_stop_string_is_found_at_its_step_though_nobody_reads(
    connect: Connect, spell: Spell
) -> None:
    text_llm, engine = await connect(lambda request: one_by_one(spell("aENDxyz"), finish=None))
    async with text_llm.generate(make_request(stop=["END"], stream_interval=None)) as samples:
        await engine.wait_aborts()
        assert samples[0].finish == Finish("stop", "END")
        delta = samples[0].take()
    assert delta is not None
    assert (delta.text, delta.token_ids) == ("a", spell("aEND"))


# Faults.


async def test_a_refused_request_sends_nothing(connect: Connect) -> None:
    text_llm, engine = await connect()
    with pytest.raises(InvalidRequestError, match="n must be 1 when using greedy"):
        text_llm.generate_n(make_request(temperature=0.0), 2)
    with pytest.raises(InvalidRequestError, match="The decoder prompt cannot be empty"):
        text_llm.generate(make_request(""))
    with pytest.raises(ValueError, match="n must be at least 1, got 0"):
        text_llm.generate_n(make_request(), 0)
    with pytest.raises(InvalidRankError):
        text_llm.generate(make_request(data_parallel_rank=5))
    await settle(text_llm)
    assert engine.adds == []


async def test_an_error_of_one_child_leaves_the_others_alone(
    connect: Connect, spell: Spell
) -> None:
    text_llm, _ = await connect(
        per_child(
            [MockStep(token_ids=spell("a")), MockStep(finish="error")], one_by_one(spell("bc"))
        )
    )
    async with text_llm.generate_n(make_request(), 2) as samples:
        failed, other = await collect(samples)
    assert failed.finish is not None
    assert isinstance(failed.finish.error, EngineRequestError)
    assert (other.text, other.finish) == ("bc", Finish("length"))


async def test_engine_death_releases_what_was_held_back_and_ends_every_sample(
    connect: Connect, step: Step, spell: Spell
) -> None:
    text_llm, engine = await connect(lambda request: one_by_one(spell("abc")), paused=True)
    async with text_llm.generate_n(make_request(stop=["STOP"]), 2) as samples:
        await engine.wait_adds(2)
        await step(text_llm, engine)
        engine.send_dead()
        answers = await collect(samples)
    for answer in answers:
        assert answer.text == "a"
        assert answer.finish is not None
        assert isinstance(answer.finish.error, EngineDeadError)


def test_without_an_llm_requests_are_lowered_but_not_run(byte_level: Tokenizer) -> None:
    text_llm = TextLlm(TextModel(byte_level, 64, 1000, SamplingDefaults()))
    lowered = text_llm.lower(make_request("hi", max_tokens=3), 2)
    assert lowered.prompt_token_ids == byte_level.encode("hi")
    with pytest.raises(RuntimeError, match="lowers requests only"):
        text_llm.generate(lowered)


# Any cut.


@st.composite
def cut_texts(draw: st.DrawFn) -> tuple[str, list[int]]:
    """A text, and where its bytes are cut into steps."""
    text = draw(st.text("ab é学🎉", min_size=1, max_size=12))
    return text, sorted(draw(st.sets(st.integers(1, len(text.encode())))))


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(cut_texts(), min_size=1, max_size=3),
    st.lists(st.text("ab é学", min_size=1, max_size=3), max_size=2),
    st.booleans(),
    st.integers(0, 4),
    st.sampled_from([1, 3, None]),
)
async def test_the_same_tokens_cut_into_steps_in_any_way_give_the_same_answer(
    connect: Connect,
    spell: Spell,
    texts: list[tuple[str, list[int]]],
    stop: list[str],
    include: bool,
    min_tokens: int,
    interval: int | None,
) -> None:
    answers: list[list[MockStep]] = []
    for text, cuts in texts:
        ids = spell(text)
        pieces = [ids[start:end] for start, end in zip([0, *cuts], [*cuts, None], strict=True)]
        answers.append(one_by_one(ids, logprobs=1))
        answers.append(in_steps([piece for piece in pieces if piece], logprobs=1))
    text_llm, _ = await connect(per_child(*answers))
    request = make_request(
        stop=stop,
        include_stop_str_in_output=include,
        min_tokens=min_tokens,
        logprobs=1,
        stream_interval=interval,
    )
    async with text_llm.generate_n(request, len(answers)) as samples:
        collected = await collect(samples)
    for one, other in zip(collected[::2], collected[1::2], strict=True):
        assert one == other
        assert [position[0].token_id for position in one.logprobs] == one.token_ids
