"""Requests that would be too much: turned away at once, all of their samples or none."""

import asyncio

import aiohttp
import pytest

from umbel_llm import AdmissionLimits

from .commands import CHAT, COMPLETIONS, MESSAGES, open_stream, rest_of

BUSY = (
    "The engine is currently busy and cannot accept new requests. Please try again later or on a "
    "different instance."
)


def check_turned_away(answer, message):
    assert answer.status == 503
    assert answer.headers["Retry-After"] == "1"
    assert answer.error == {
        "message": message,
        "type": "Service Unavailable",
        "param": None,
        "code": 503,
    }


@pytest.fixture
def limited(serve):
    """Start a server whose engine steps only when told to, with limits."""

    async def limited(script=None, limits=None, **options):
        return await serve(script, engine_options={"paused": True}, limits=limits, **options)

    return limited


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_n_beyond_the_limit_is_refused_before_it_is_rendered_or_sent(limited, stream):
    served = await limited(limits=AdmissionLimits(max_num_queued_reqs=8))
    check_turned_away(await served.ask(n=9, stream=stream), BUSY)
    check_turned_away(await served.complete(n=9, stream=stream), BUSY)
    # Rendering this would be refused for another reason.
    check_turned_away(await served.ask(n=9, stream=stream, max_tokens=10**6), BUSY)
    assert served.engine.adds == []
    text = (await served.get("/metrics")).text
    name = 'vllm:admission_rejections_total{model_name="smollm2",reason="max_num_queued_reqs"}'
    assert f"{name} 3.0" in text


async def test_a_huge_n_is_refused_without_making_anything_of_it(limited, monkeypatch):
    served = await limited(limits=AdmissionLimits(max_num_queued_reqs=8))

    def render(*args, **kwargs):
        raise AssertionError("it was rendered")

    monkeypatch.setattr(served.chat, "lower", render)
    check_turned_away(await served.ask(n=16384), BUSY)
    check_turned_away(await served.ask(n=16384, stream=True), BUSY)
    assert served.engine.adds == []


async def test_every_prompt_of_a_list_counts_n_times(limited, say):
    served = await limited(lambda request: say("hi"), limits=AdmissionLimits(max_num_queued_reqs=8))
    check_turned_away(await served.complete(prompt=["Hello"] * 3, n=3), BUSY)
    check_turned_away(await served.complete(prompt=["Hello"] * 3, n=1, best_of=3, logprobs=1), BUSY)
    answer = await served.in_steps(8, served.complete(prompt=["Hello"] * 4, n=2))
    assert len(answer.json()["choices"]) == 8


async def test_a_busy_server_turns_away_and_lets_in_again(limited, say):
    served = await limited(lambda request: say("hi"), limits=AdmissionLimits(max_num_queued_reqs=2))
    first = asyncio.ensure_future(served.ask(n=2))
    await served.engine.wait_adds(2)
    check_turned_away(await served.ask(), BUSY)
    served.engine.resume()
    assert (await first).status == 200
    assert (await served.ask(n=2)).status == 200


async def test_a_backlog_of_prompt_tokens_turns_away(limited, say):
    served = await limited(
        lambda request: say("hi", "yo"), limits=AdmissionLimits(max_num_queued_tokens=2)
    )
    async with served.stream(COMPLETIONS, prompt=["Hello", "Hello"]) as stream:
        await served.engine.wait_adds(2)
        refused = await served.complete()
        check_turned_away(
            refused,
            "The engine has reached its prefill token backlog limit. Please try again later or on a "
            "different instance.",
        )
        await served.step()
        await stream.next()
        # What has its first token waits no more.
        served.engine.resume()
        assert (await served.complete()).status == 200
        await stream.rest()


async def test_samples_count_until_their_answer_is_sent(limited):
    served = await limited(max_concurrent_sequences=3)
    async with served.stream(CHAT, messages=MESSAGES, n=2):
        await served.engine.wait_adds(2)
        check_turned_away(
            await served.ask(n=2),
            "This server answers at most 3 sequences at once: 2 are being answered, and 2 were "
            "asked for. Please try again later or on a different instance.",
        )
        one = asyncio.ensure_future(served.ask(max_tokens=1))
        await served.engine.wait_adds(3)
    served.engine.resume()
    assert (await one).status == 200
    text = (await served.get("/metrics")).text
    assert 'reason="max_concurrent_sequences"} 1.0' in text


async def test_generate_is_admitted_like_the_others(limited, say):
    served = await limited(limits=AdmissionLimits(max_num_queued_reqs=1), enable_scale_out=True)
    body = {"token_ids": [300], "sampling_params": {"max_tokens": 1, "n": 2}}
    check_turned_away(await served.post("/inference/v1/generate", **body), BUSY)


async def test_others_get_their_turn_while_very_many_samples_are_sent(serve, say):
    served = await serve(lambda request: say("hi"), engine_options={"paused": True})
    large = await served.raw(CHAT, messages=MESSAGES, n=4096, stream=True)
    await served.engine.wait_adds(64)
    assert (await served.get("/health")).status == 200
    # Most are not even made yet.
    assert served.client.in_flight < 4096
    assert served.llm.admission.unfinished == 4096
    large.close()
    await served.engine.wait_aborts()
    (aborted,) = served.engine.aborts
    assert len(aborted) == len(served.engine.adds) < 4096


async def test_limits_are_flags_and_hold_for_all_processes_together(umbel, say):
    served = await umbel(
        lambda request: say("hi", "yo"),
        "--max-num-queued-reqs",
        "2",
        "--api-server-count",
        "2",
        paused=True,
    )
    response = await open_stream(served)
    # Whichever process a connection gets to, it knows of the other's samples.
    for _ in range(8):
        async with (
            aiohttp.ClientSession() as session,
            session.post(f"{served.url}{CHAT}", json={"messages": MESSAGES}) as refused,
        ):
            assert (refused.status, refused.headers["Retry-After"]) == (503, "1")
    served.engine.resume()
    await rest_of(response)
    status, _ = await served.ask(n=2)
    assert status == 200
    served.tell()
    assert await served.exit() == 0


async def test_nobody_is_let_in_while_the_server_ends(umbel, say):
    served = await umbel(lambda request: say("hi", "yo"), paused=True)
    connection = aiohttp.TCPConnector(limit=1, keepalive_timeout=60)
    async with aiohttp.ClientSession(connector=connection) as session:
        async with session.get(f"{served.url}/health") as answer:
            assert answer.status == 200
        response = await open_stream(served)
        served.tell()
        await served.line("1 requests get 10 s to finish")
        # On a connection that was open before.
        async with session.get(f"{served.url}/health") as answer:
            assert answer.status == 503
        async with session.post(f"{served.url}{CHAT}", json={"messages": MESSAGES}) as answer:
            assert answer.status == 503
            assert (await answer.json())["error"]["message"].startswith(
                "The server is shutting down."
            )
    served.engine.resume()
    await rest_of(response)
    assert await served.exit() == 0
