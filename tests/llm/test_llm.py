import asyncio
import gc

import msgspec
import pytest

from umbel_engine import (
    ABORTED,
    EngineDeadError,
    EngineError,
    EngineRequestError,
    Finish,
    InvalidRankError,
    Samples,
    TokenDelta,
    TokenStage,
    merge,
)
from umbel_engine.mock import MockStep, child_index, per_child, sampled, tokens
from umbel_engine.wire import EngineCoreOutput, EngineCoreRequest, RequestFault
from umbel_llm import Llm


async def collect(
    samples: Samples[TokenDelta],
) -> tuple[list[list[int]], list[Finish | None]]:
    """Read every sample to its end; gives the token ids and the finish of each."""
    token_ids: list[list[int]] = [[] for _ in samples]
    finishes: list[Finish | None] = [None] * len(samples)
    async for index, delta in samples:
        token_ids[index] += delta.token_ids
        finishes[index] = delta.finish
    return token_ids, finishes


def prefixes(ids: list[str]) -> list[str]:
    """Internal ids without their random digits."""
    return [request_id.rpartition("-")[0] for request_id in ids]


async def settle(llm: Llm) -> None:
    """Wait until the engines have seen everything that was sent before."""
    await llm.client.call("get_supported_tasks")


# What is sent.


async def test_without_a_limit_a_sample_may_go_on_to_the_end_of_the_context(
    connect, request_of
) -> None:
    llm, (engine,) = await connect()
    request = request_of(prompt_token_ids=[1, 2, 3])
    params = msgspec.structs.replace(request.sampling_params, max_tokens=None)
    async with llm.generate(msgspec.structs.replace(request, sampling_params=params)):
        add = await engine.next_add()
    assert add.sampling_params.max_tokens == llm.client.max_model_len - 3


async def test_siblings_share_everything_but_their_id_and_seed(connect, request_of) -> None:
    llm, (engine,) = await connect()
    request = request_of(
        "cmpl-1-0",
        response_id="cmpl-1",
        prompt_token_ids=[5, 6, 7],
        arrival_time=123.5,
        cache_salt="salt",
        data_parallel_rank=0,
        priority=-2,
        session_id="session",
        trace_headers={"traceparent": "00-1"},
        seed=40,
        temperature=0.5,
        stop_token_ids=[9],
    )
    async with llm.generate_n(request, 3):
        adds = await engine.wait_adds(3)
    assert prefixes([add.request_id for add in adds]) == [
        "0_cmpl-1-0",
        "1_cmpl-1-0",
        "2_cmpl-1-0",
    ]
    assert [add.sampling_params.seed for add in adds] == [40, 41, 42]
    assert [add.external_req_id for add in adds] == ["cmpl-1-0"] * 3
    params = request.sampling_params
    shared = EngineCoreRequest(
        "",
        [5, 6, 7],
        None,
        params,
        None,
        123.5,
        cache_salt="salt",
        data_parallel_rank=0,
        priority=-2,
        trace_headers={"traceparent": "00-1"},
        external_req_id="cmpl-1-0",
        session_id="session",
    )
    for add in adds:
        assert msgspec.structs.replace(add, request_id="", sampling_params=params) == shared
        assert msgspec.structs.replace(add.sampling_params, seed=40) == params


@pytest.mark.parametrize("seed", [None, -1, 0, 7])
async def test_one_sample_is_sent_byte_for_byte_as_generate_sends_it(
    connect, request_of, monkeypatch, seed
) -> None:
    monkeypatch.setattr("secrets.token_hex", lambda size: "0" * (2 * size))
    llm, (engine,) = await connect()
    request = request_of("chatcmpl-1", seed=seed)
    for samples in (llm.generate(request), llm.generate_n(request, 1)):
        async with samples:
            await collect(samples)
    assert engine.add_frames[0] == engine.add_frames[1]
    first = engine.adds[0]
    assert first.request_id == "chatcmpl-1-00000000"
    assert first.external_req_id == "chatcmpl-1"
    assert first.sampling_params.seed == (None if seed == -1 else seed)


async def test_all_children_are_let_in_before_the_first_is_sent(
    connect, request_of, monkeypatch
) -> None:
    llm, _ = await connect()
    send = llm.client.send
    seen = []

    def record(receiver, payload, rank):
        seen.append((receiver.request_id[0], llm.admission.unfinished, len(llm.in_flight)))
        send(receiver, payload, rank)

    monkeypatch.setattr(llm.client, "send", record)
    samples = llm.generate_n(request_of(), 4)
    assert (llm.client.in_flight, len(llm.in_flight)) == (0, 0)
    async with samples:
        assert seen == [(str(index), 4, 1) for index in range(4)]
        await collect(samples)


async def test_a_rank_takes_all_children_to_its_engine(connect, request_of) -> None:
    llm, engines = await connect(engines=2)
    async with llm.generate_n(request_of(data_parallel_rank=1), 3) as samples:
        await collect(samples)
    assert [len(engine.adds) for engine in engines] == [0, 3]


async def test_children_without_a_rank_are_spread_over_the_engines(connect, request_of) -> None:
    llm, engines = await connect(engines=2)
    async with llm.generate_n(request_of(), 4) as samples:
        await collect(samples)
    assert [len(engine.adds) for engine in engines] == [2, 2]


@pytest.mark.parametrize("n", [0, -1])
async def test_less_than_one_sample_is_refused(connect, request_of, n) -> None:
    llm, (engine,) = await connect()
    with pytest.raises(ValueError, match=f"n must be at least 1, got {n}."):
        llm.generate_n(request_of(), n)
    await settle(llm)
    assert engine.adds == []


@pytest.mark.parametrize("rank", [2, -1])
async def test_a_rank_without_an_engine_is_refused_at_once(connect, request_of, rank) -> None:
    llm, _ = await connect(engines=2)
    with pytest.raises(
        InvalidRankError, match=rf"data_parallel_rank {rank} is out of range \[0, 2\)."
    ):
        llm.generate_n(request_of(data_parallel_rank=rank), 2)


async def test_a_cancelled_fan_out_is_rolled_back(connect, request_of) -> None:
    llm, (engine,) = await connect(paused=True)
    entering = asyncio.create_task(llm.generate_n(request_of(), 150).__aenter__())
    # The fan-out gives the loop a turn after 64 children; here it is cancelled.
    await asyncio.sleep(0)
    assert len(llm.in_flight.fanouts("x")) == 1
    assert llm.admission.unfinished == 150
    entering.cancel()
    with pytest.raises(asyncio.CancelledError):
        await entering
    assert (llm.client.in_flight, len(llm.in_flight), llm.admission.unfinished) == (0, 0, 0)
    (aborted,) = await engine.wait_aborts()
    assert prefixes(aborted) == [f"{index}_x" for index in range(64)]
    await settle(llm)
    assert [add.request_id for add in engine.adds] == aborted


async def test_children_aborted_before_they_were_sent_are_not_sent(connect, request_of) -> None:
    llm, (engine,) = await connect(paused=True)
    samples = llm.generate_n(request_of(), 150)
    entering = asyncio.create_task(samples.__aenter__())
    await asyncio.sleep(0)
    assert llm.abort(["x"]) == 150
    await entering
    assert [sample.finish for sample in samples] == [ABORTED] * 150
    samples.close()
    (aborted,) = await engine.wait_aborts()
    assert prefixes(aborted) == [f"{index}_x" for index in range(64)]
    await settle(llm)
    assert len(engine.adds) == 64


# What comes back.


async def test_samples_are_told_apart_and_come_in_index_order(connect, request_of) -> None:
    llm, _ = await connect(per_child(tokens(1, 2), tokens(3, finish="stop"), tokens(4, 5, 6)))
    async with llm.generate_n(request_of(), 3) as samples:
        token_ids, finishes = await collect(samples)
    assert token_ids == [[1, 2], [3], [4, 5, 6]]
    assert finishes == [Finish("length"), Finish("stop"), Finish("length")]


async def test_the_samples_of_a_seeded_request_are_those_of_its_seeds(connect, request_of) -> None:
    llm, _ = await connect(sampled())
    async with llm.generate_n(request_of("a", seed=7), 3) as samples:
        together, _ = await collect(samples)
    alone = []
    for index in range(3):
        async with llm.generate(request_of("b", seed=7 + index)) as samples:
            alone += (await collect(samples))[0]
    assert together == alone
    assert len(set(map(tuple, together))) == 3


async def test_samples_of_different_requests_do_not_disturb_each_other(connect, request_of) -> None:
    llm, _ = await connect(
        lambda request: tokens(*(request.prompt_token_ids or ()), child_index(request))
    )
    # One id for two requests is allowed: the engine is told another.
    groups = [
        llm.generate_n(request_of("same", prompt_token_ids=prompt), n)
        for prompt, n in (([10, 11], 3), ([20], 2), ([30, 31, 32], 1))
    ]
    async with groups[0], groups[1], groups[2]:
        answers = await asyncio.gather(*map(collect, groups))
    assert [token_ids for token_ids, _ in answers] == [
        [[10, 11, 0], [10, 11, 1], [10, 11, 2]],
        [[20, 0], [20, 1]],
        [[30, 31, 32, 0]],
    ]


async def test_stages_of_the_callers_get_the_statistics_of_one_child_each(
    connect, request_of
) -> None:
    llm, _ = await connect(per_child(tokens(1, 2), tokens(3)))
    given = []

    def stage(stats):
        given.append(stats)
        return TokenStage()

    async with llm.generate_with(request_of(), 2, stage) as samples:
        await collect(samples)
    assert [stats.num_generation_tokens for stats in given] == [2, 1]


async def test_hand_overs_keep_to_the_stream_interval(connect, request_of, step) -> None:
    llm, (engine,) = await connect(lambda request: tokens(*range(7)), paused=True)
    sizes: list[int] = []
    async with llm.generate(request_of(stream_interval=3)) as samples:
        samples.sink = lambda ready: sizes.extend(
            len(delta.token_ids) for sample in ready if (delta := sample.take())
        )
        for _ in range(7):
            await step(llm, engine)
    assert sizes == [1, 3, 3]


# Aborting by the caller's id.


async def test_abort_reaches_all_children_of_all_fan_outs_under_the_id(
    connect, request_of, step
) -> None:
    llm, (engine,) = await connect(lambda request: tokens(1, 2), paused=True)
    first = llm.generate_n(request_of("cmpl-1-0", response_id="cmpl-1"), 2)
    second = llm.generate_n(request_of("cmpl-1-1", response_id="cmpl-1"), 2)
    other = llm.generate_n(request_of("cmpl-2-0", response_id="cmpl-2"), 2)
    async with merge(first, second) as samples, other:
        await engine.wait_adds(6)
        await step(llm, engine)
        assert llm.in_flight.response_ids == ["cmpl-1", "cmpl-2"]
        assert llm.abort(["cmpl-1"]) == 4
        assert llm.in_flight.response_ids == ["cmpl-2"]
        token_ids, finishes = await collect(samples)
        assert token_ids == [[1]] * 4
        assert finishes == [ABORTED] * 4
        (aborted,) = await engine.wait_aborts()
        assert prefixes(aborted) == ["0_cmpl-1-0", "1_cmpl-1-0", "0_cmpl-1-1", "1_cmpl-1-1"]
        engine.resume()
        assert await collect(other) == ([[1, 2]] * 2, [Finish("length")] * 2)
    assert len(engine.aborts) == 1


async def test_abort_takes_the_request_id_where_no_response_id_was_given(
    connect, request_of
) -> None:
    llm, (engine,) = await connect(paused=True)
    async with llm.generate_n(request_of("a"), 2), llm.generate_n(request_of("a"), 1):
        assert llm.abort(["a"]) == 3
        (aborted,) = await engine.wait_aborts()
    assert prefixes(aborted) == ["0_a", "1_a", "a"]


async def test_abort_leaves_out_what_has_ended(connect, request_of, step) -> None:
    llm, (engine,) = await connect(per_child(tokens(1, 2), tokens(3), tokens(4, 5)), paused=True)
    async with llm.generate_n(request_of("a"), 3) as samples:
        await engine.wait_adds(3)
        await step(llm, engine)
        assert llm.abort(["a"]) == 2
        assert (await collect(samples))[1] == [ABORTED, Finish("length"), ABORTED]
    assert [prefixes(aborted) for aborted in await engine.wait_aborts()] == [["0_a", "2_a"]]
    await settle(llm)
    assert len(engine.aborts) == 1


async def test_several_responses_are_aborted_in_one_message(connect, request_of) -> None:
    llm, (engine,) = await connect(paused=True)
    async with llm.generate_n(request_of("a"), 2), llm.generate(request_of("b")):
        assert llm.abort(["b", "nobody", "a", "b"]) == 3
        (aborted,) = await engine.wait_aborts()
    assert prefixes(aborted) == ["b", "0_a", "1_a"]


async def test_every_engine_is_told_of_its_own_children(connect, request_of) -> None:
    llm, engines = await connect(engines=2, paused=True)
    async with llm.generate_n(request_of("a"), 4):
        llm.abort(["a"])
        for engine in engines:
            (aborted,) = await engine.wait_aborts()
            assert aborted == [add.request_id for add in engine.adds]
            assert len(aborted) == 2


async def test_ids_of_nothing_that_runs_are_ignored(connect, request_of) -> None:
    llm, (engine,) = await connect()
    async with llm.generate_n(request_of("done"), 2) as samples:
        await collect(samples)
        assert llm.abort(["done", "nobody", ""]) == 0
    assert llm.abort(["done"]) == 0
    assert llm.abort([]) == 0
    await settle(llm)
    assert engine.aborts == []


# Ends of other kinds.


async def give_up(samples: Samples[TokenDelta], how: str) -> None:
    if how == "dropped":
        held = [samples]
        del samples
        await held[0].__aenter__()
        with pytest.warns(ResourceWarning, match="samples were dropped without being closed"):
            held.clear()
    elif how == "closed":
        async with samples:
            samples.close()
    elif how == "left early":
        async with samples:
            await anext(aiter(samples))
    else:
        with pytest.raises(ZeroDivisionError):
            async with samples:
                raise ZeroDivisionError


@pytest.mark.parametrize("how", ["dropped", "closed", "left early", "left by an exception"])
async def test_however_samples_are_given_up_their_children_are_aborted_once(
    connect, request_of, how, scrape
) -> None:
    llm, (engine,) = await connect(lambda request: tokens(1, finish=None))
    await give_up(llm.generate_n(request_of("a"), 3), how)
    assert (llm.client.in_flight, len(llm.in_flight)) == (0, 0)
    (aborted,) = await engine.wait_aborts()
    assert prefixes(aborted) == ["0_a", "1_a", "2_a"]
    await settle(llm)
    assert len(engine.aborts) == 1
    metrics = scrape(llm.metrics)
    assert metrics.finished() == {}
    assert metrics.histogram("request_params_n") == (0, 0)


async def test_samples_that_were_never_entered_leave_nothing_behind(connect, request_of) -> None:
    llm, (engine,) = await connect()
    samples = llm.generate_n(request_of(), 2)
    del samples
    gc.collect()
    await settle(llm)
    assert engine.adds == []


async def test_engine_death_ends_all_samples_of_all_requests(connect, request_of, step) -> None:
    llm, (engine,) = await connect(lambda request: tokens(1, 2), paused=True)
    async with llm.generate_n(request_of("a"), 2) as a, llm.generate(request_of("b")) as b:
        await engine.wait_adds(3)
        await step(llm, engine)
        engine.send_dead()
        for samples in (a, b):
            token_ids, finishes = await collect(samples)
            assert token_ids == [[1]] * len(samples)
            for finish in finishes:
                assert finish is not None
                assert finish.reason == "error"
                assert isinstance(finish.error, EngineDeadError)
    assert (llm.client.in_flight, len(llm.in_flight)) == (0, 0)
    assert engine.aborts == []
    late = llm.generate_n(request_of("c"), 2)
    with pytest.raises(EngineDeadError, match="the engine core has died"):
        await late.__aenter__()
    assert llm.abort(["a", "b", "c"]) == 0


async def test_closing_the_client_ends_all_samples(connect, request_of) -> None:
    llm, (engine,) = await connect(paused=True)
    async with llm.generate_n(request_of("a"), 2) as samples:
        await engine.wait_adds(2)
        llm.client.close()
        assert [sample.finish for sample in samples] == [ABORTED] * 2
        assert len(llm.in_flight) == 0


class Failing(TokenStage):
    def feed(self, output, step):
        raise ZeroDivisionError("no such token")


async def test_a_stage_that_fails_ends_its_own_sample_alone(
    connect, request_of, scrape, caplog
) -> None:
    llm, (engine,) = await connect(per_child(tokens(1, 2), tokens(3, 4)))
    stages = iter([Failing(), TokenStage()])
    async with llm.generate_with(request_of("a"), 2, lambda stats: next(stages)) as samples:
        token_ids, (failed, finished) = await collect(samples)
    assert failed is not None
    assert type(failed.error) is EngineError
    assert (token_ids[1], finished) == ([3, 4], Finish("length"))
    assert [prefixes(aborted) for aborted in await engine.wait_aborts()] == [["0_a"]]
    assert scrape(llm.metrics).finished() == {"length": 1}
    assert "could not be processed" in caplog.text


# What is counted.


async def test_n_is_counted_once_per_request_and_the_rest_per_child(
    connect, request_of, scrape
) -> None:
    llm, _ = await connect(per_child(tokens(1, 2), tokens(3, finish="stop"), tokens(4, 5, 6)))
    async with llm.generate_n(request_of("a", max_tokens=9), 3) as samples:
        await collect(samples)
    async with llm.generate(request_of("b", max_tokens=9)) as samples:
        await collect(samples)
    metrics = scrape(llm.metrics)
    assert metrics.histogram("request_params_n") == (2, 3 + 1)
    assert metrics.histogram("request_max_num_generation_tokens") == (2, 3 + 2)
    assert metrics.finished() == {"length": 3, "stop": 1}
    assert metrics.histogram("request_prompt_tokens") == (4, 4 * 3)
    assert metrics.histogram("request_generation_tokens") == (4, 2 + 1 + 3 + 2)
    assert metrics.histogram("request_params_max_tokens") == (4, 4 * 9)
    assert metrics.value("prompt_tokens_total") == 4 * 3
    assert metrics.value("generation_tokens_total") == 2 + 1 + 3 + 2
    for name in ("time_to_first_token_seconds", "e2e_request_latency_seconds"):
        assert metrics.value(f"{name}_count") == 4


async def test_a_request_whose_last_child_was_aborted_counts_no_n(
    connect, request_of, scrape, step
) -> None:
    llm, (engine,) = await connect(per_child(tokens(1, 2), tokens(3)), paused=True)
    async with llm.generate_n(request_of("a"), 2):
        await engine.wait_adds(2)
        await step(llm, engine)
        llm.abort(["a"])
    metrics = scrape(llm.metrics)
    assert metrics.finished() == {"length": 1}
    assert metrics.histogram("request_params_n") == (0, 0)
    assert metrics.value("generation_tokens_total") == 2


async def test_an_abort_of_the_engines_own_is_counted_as_a_finish(
    connect, request_of, scrape
) -> None:
    llm, _ = await connect(per_child(tokens(1, finish="abort"), tokens(2)))
    async with llm.generate_n(request_of("a"), 2) as samples:
        assert (await collect(samples))[1] == [Finish("abort"), Finish("length")]
    metrics = scrape(llm.metrics)
    assert metrics.finished() == {"abort": 1, "length": 1}
    assert metrics.histogram("request_params_n") == (1, 2)


@pytest.mark.parametrize(
    ("fault", "message", "counted"),
    [
        (None, "Internal server error", {"error": 1, "length": 1}),
        (RequestFault("paused", "engine_paused", True), "paused", {"length": 1}),
    ],
)
async def test_a_child_that_fails_in_the_engine_leaves_its_siblings_alone(
    connect, request_of, scrape, fault, message, counted
) -> None:
    failing = [MockStep(finish="error", error=fault)]
    llm, (engine,) = await connect(per_child(failing, tokens(1, 2)))
    async with llm.generate_n(request_of("a"), 2) as samples:
        token_ids, (failed, finished) = await collect(samples)
    assert failed is not None
    assert isinstance(failed.error, EngineRequestError)
    assert str(failed.error) == message
    assert (token_ids, finished) == ([[], [1, 2]], Finish("length"))
    metrics = scrape(llm.metrics)
    assert metrics.finished() == counted
    assert metrics.histogram("request_params_n") == (1, 2)
    await settle(llm)
    assert engine.aborts == []


class StopsAt2(TokenStage):
    def feed(self, output, step):
        finish = super().feed(output, step)
        if 2 in output.new_token_ids:
            finish = Finish("stop", "two")
            self.end(finish)
        return finish


async def test_a_stage_that_ends_before_the_engine_is_counted_and_aborted(
    connect, request_of, scrape
) -> None:
    llm, (engine,) = await connect(per_child(tokens(1, 2, 3, 4, finish=None), tokens(5)))
    async with llm.generate_with(request_of("a"), 2, lambda stats: StopsAt2()) as samples:
        token_ids, finishes = await collect(samples)
    assert token_ids == [[1, 2], [5]]
    assert finishes == [Finish("stop", "two"), Finish("length")]
    assert [prefixes(aborted) for aborted in await engine.wait_aborts()] == [["0_a"]]
    metrics = scrape(llm.metrics)
    assert metrics.finished() == {"stop": 1, "length": 1}
    assert metrics.histogram("request_params_n") == (1, 2)


async def test_outputs_for_nobody_are_not_counted(connect, request_of, scrape) -> None:
    llm, (engine,) = await connect()
    engine.send_outputs(EngineCoreOutput("stranger", [1, 2], finish_reason=0))
    await settle(llm)
    metrics = scrape(llm.metrics)
    assert metrics.finished() == {}
    assert metrics.value("generation_tokens_total") == 0


async def test_without_metrics_nothing_is_exposed_and_samples_run_all_the_same(
    connect, request_of
) -> None:
    connected, _ = await connect(lambda request: tokens(1, 2))
    llm = Llm(connected.client)
    async with llm.generate_n(request_of(), 2) as samples:
        assert (await collect(samples))[0] == [[1, 2]] * 2
    assert len(llm.in_flight) == 0
    assert list(llm.metrics.collect()) == []
