"""Who is let in, and what is counted of whoever is."""

import asyncio

import pytest

from umbel_engine import EngineCoreOutput, Finish, Step, TokenStage, merge
from umbel_engine.mock import MockStep, per_child, tokens
from umbel_llm import AdmissionLimits, Llm, QueueFullError

BUSY = (
    "The engine is currently busy and cannot accept new requests. Please try again later or on a "
    "different instance."
)
BACKLOG = (
    "The engine has reached its prefill token backlog limit. Please try again later or on a "
    "different instance."
)


def limited(llm: Llm, counters: list[int] | None = None, **limits: int) -> Llm:
    """The same, with limits."""
    return Llm(llm.client, llm.metrics, AdmissionLimits(**limits), counters)


async def test_n_samples_are_let_in_up_to_the_limit_and_not_beyond(connect, request_of) -> None:
    llm, (engine,) = await connect(paused=True)
    llm = limited(llm, max_num_queued_reqs=8)
    with pytest.raises(QueueFullError, match=BUSY) as caught:
        await llm.generate_n(request_of(), 9).__aenter__()
    assert caught.value.reason == "max_num_queued_reqs"
    async with llm.generate_n(request_of(), 8):
        assert (await engine.wait_adds(8))[0].prompt_token_ids == [1, 2, 3]
        with pytest.raises(QueueFullError):
            await llm.generate(request_of("y")).__aenter__()
    async with llm.generate(request_of("y")):
        pass
    assert len(await engine.wait_adds(9)) == 9


async def test_a_sample_that_has_ended_makes_room_at_once(connect, request_of, step) -> None:
    llm, (engine,) = await connect(per_child(tokens(1), tokens(1, 2)), paused=True)
    llm = limited(llm, max_num_queued_reqs=2)
    async with llm.generate_n(request_of(), 2):
        await engine.wait_adds(2)
        with pytest.raises(QueueFullError):
            llm.admission.check(1)
        await step(llm, engine)
        llm.admission.check(1)
        with pytest.raises(QueueFullError):
            llm.admission.check(2)


async def test_prompts_of_one_answer_are_let_in_together_or_not_at_all(connect, request_of) -> None:
    llm, (engine,) = await connect(paused=True)
    llm = limited(llm, max_num_queued_reqs=5)
    parts = [llm.generate_n(request_of(name), 2) for name in "abc"]
    with pytest.raises(QueueFullError):
        await merge(*parts).__aenter__()
    assert llm.admission.unfinished == 0
    assert llm.client.in_flight == 0
    # What the engine has seen by the time it answers is all that was sent.
    await llm.client.call("is_sleeping")
    assert (engine.adds, engine.aborts) == ([], [])


async def test_prompts_without_a_first_token_fill_the_queue_of_tokens(
    connect, request_of, step
) -> None:
    llm, (engine,) = await connect(lambda request: tokens(1, 2, 3), paused=True)
    llm = limited(llm, max_num_queued_tokens=6)
    # It is full when the limit is reached; whoever is let in before may go beyond it.
    async with (
        llm.generate_n(request_of(prompt_token_ids=[1, 2, 3, 4, 5]), 1),
        llm.generate_n(request_of("y", prompt_token_ids=[1, 2, 3]), 2),
    ):
        await engine.wait_adds(3)
        assert llm.admission.queued_tokens == 11
        with pytest.raises(QueueFullError, match=BACKLOG) as caught:
            llm.admission.check(1)
        assert caught.value.reason == "max_num_queued_tokens"
        await step(llm, engine)
        assert llm.admission.queued_tokens == 0
        llm.admission.check(1)


async def test_prompts_of_one_answer_do_not_fill_the_queue_for_each_other(
    connect, request_of
) -> None:
    llm, (engine,) = await connect(paused=True)
    llm = limited(llm, max_num_queued_tokens=4)
    parts = [llm.generate_n(request_of(name, prompt_token_ids=[1] * 9), 2) for name in "ab"]
    async with merge(*parts):
        await engine.wait_adds(4)
        with pytest.raises(QueueFullError, match=BACKLOG):
            await llm.generate(request_of("y")).__aenter__()


async def test_a_stage_that_cannot_be_made_holds_no_place(connect, request_of) -> None:
    llm, (engine,) = await connect(paused=True)
    made = []

    def stage(stats):
        if made:
            raise ZeroDivisionError
        made.append(TokenStage())
        return made[0]

    with pytest.raises(ZeroDivisionError):
        await llm.generate_with(request_of(), 3, stage).__aenter__()
    assert (llm.admission.unfinished, llm.admission.queued_tokens) == (0, 0)
    assert [len(aborted) for aborted in await engine.wait_aborts()] == [1]


async def test_samples_that_were_never_sent_are_no_aborts(connect, request_of) -> None:
    llm, _ = await connect(paused=True)
    entering = asyncio.create_task(llm.generate_n(request_of(), 150).__aenter__())
    await asyncio.sleep(0)
    assert llm.abort(["x"]) == 150
    (await entering).close()
    assert llm.client.aborted_samples == {"stop_string": 0, "abandoned": 64}


@pytest.mark.parametrize("ending", ["abort", "error", "cancelled"])
async def test_whatever_ends_a_sample_makes_room(connect, request_of, ending) -> None:
    script = [MockStep(finish="error")] if ending == "error" else []
    llm, _ = await connect(lambda request: script)
    llm = limited(llm, max_num_queued_reqs=200, max_num_queued_tokens=600)
    samples = llm.generate_n(request_of(), 200)
    if ending == "cancelled":
        entering = asyncio.create_task(samples.__aenter__())
        await asyncio.sleep(0)
        assert llm.admission.unfinished == 200
        entering.cancel()
        await asyncio.wait((entering,))
    else:
        async with samples:
            if ending == "abort":
                assert llm.abort(["x"]) == 200
            await asyncio.wait_for(_all_ended(samples), 10)
    assert llm.admission.unfinished == 0
    assert llm.admission.queued_tokens == 0


async def _all_ended(samples) -> None:
    async for _ in samples:
        pass


async def test_clients_that_share_counters_share_the_limit(connect, request_of) -> None:
    one, _ = await connect(paused=True)
    two, _ = await connect(paused=True)
    counters = [0, 0]
    one = limited(one, counters, max_num_queued_reqs=3)
    two.client.index = 1
    two = limited(two, counters, max_num_queued_reqs=3)
    async with one.generate_n(request_of(), 2):
        assert counters == [2, 0]
        two.admission.check(1)
        with pytest.raises(QueueFullError):
            two.admission.check(2)
    assert counters == [0, 0]


async def test_rejections_are_counted_by_reason(connect, request_of, scrape) -> None:
    llm, _ = await connect(paused=True)
    llm = limited(llm, max_num_queued_reqs=1, max_num_queued_tokens=1)
    for _ in range(2):
        with pytest.raises(QueueFullError):
            llm.admission.check(2)
    async with llm.generate(request_of()):
        llm = limited(llm, max_num_queued_tokens=1)
        llm.admission.enter(1, 1)
        with pytest.raises(QueueFullError):
            llm.admission.check(1)
    exposed = scrape(llm.metrics)
    rejected = "admission_rejections_total"
    assert exposed.value(rejected, None, reason="max_num_queued_reqs") == 2
    assert exposed.value(rejected, None, reason="max_num_queued_tokens") == 1


class StopsAtOnce(TokenStage):
    """Ends with its first output, as at a stop string."""

    def feed(self, output: EngineCoreOutput, step: Step) -> Finish:
        super().feed(output, step)
        self._finish = Finish("stop", "stop string")
        return self._finish


async def test_aborted_samples_are_counted_by_reason(connect, request_of, step, scrape) -> None:
    llm, (engine,) = await connect(per_child(tokens(1), tokens(1, 2, 3), []), paused=True)
    stages = iter((TokenStage, StopsAtOnce, TokenStage))
    async with llm.generate_with(request_of(), 3, lambda stats: next(stages)()):
        await engine.wait_adds(3)
        await step(llm, engine)
    counted = {
        sample.labels["reason"]: sample.value
        for family in scrape(llm.metrics).registry.collect()
        for sample in family.samples
        if sample.name == "umbel:aborted_samples_total"
    }
    assert counted == {"stop_string": 1, "abandoned": 1}


async def test_a_listener_is_told_what_became_of_a_request(connect, request_of) -> None:
    llm, _ = await connect(per_child(tokens(1, 2, finish="stop"), tokens(1, 2, 3)))
    told = []
    llm.listener = told.append
    async with llm.generate_n(request_of(response_id="r"), 3) as samples:
        await _all_ended(samples)
        assert told == []
    (summary,) = told
    assert (summary.response_id, summary.n, summary.num_prompt_tokens) == ("r", 3, 3)
    assert summary.num_generation_tokens == 7
    assert summary.finish_reasons == {"stop": 2, "length": 1}
    assert summary.time_to_first_token is not None
    assert summary.time_to_first_token <= summary.duration


async def test_a_listener_is_told_of_a_request_that_was_given_up(connect, request_of) -> None:
    llm, (engine,) = await connect(paused=True)
    told = []
    llm.listener = told.append
    async with llm.generate_n(request_of(), 2):
        await engine.wait_adds(2)
    (summary,) = told
    assert summary.finish_reasons == {"abort": 2}
    assert (summary.num_generation_tokens, summary.time_to_first_token) == (0, None)
