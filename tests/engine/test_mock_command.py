import asyncio
import json
import signal
import sys
from pathlib import Path

import msgspec
import numpy as np
import pytest
import zmq

from umbel_engine import (
    EngineClient,
    EngineCoreOutputs,
    EngineCoreRequest,
    EngineDeadError,
    EngineOptions,
    Finish,
    PrefillStats,
    SamplingParams,
)
from umbel_engine.mock_batch import Batch
from umbel_engine.mock_command import main
from umbel_engine.mock_plan import POOL_SIZE, Planner
from umbel_engine.mock_scenario import RANDOM, Rule, Scenario
from umbel_engine.tensors import to_array, token_id_rows
from umbel_engine.wire import ADD

COMMAND = Path(sys.executable).parent / "umbel-mock-engine"


def ask(request_id="r", prompt=(1, 2, 3), **params):
    return EngineCoreRequest(
        request_id, list(prompt), None, SamplingParams(**params), None, 1.0, external_req_id="r"
    )


# The parts, in this process.


@pytest.fixture(scope="module")
def planner():
    return Planner(vocab_size=50, chunk_size=1, seed="0 0", max_model_len=100)


def play(plan):
    """Run a plan alone, through to the decoded outputs."""
    batch, outputs = Batch(3), []
    batch.add("r", plan)
    while len(batch):
        if (message := batch.step(1.5, None)) is not None:
            decoded = msgspec.msgpack.decode(message, type=EngineCoreOutputs)
            assert (decoded.engine_index, decoded.timestamp) == (3, 1.5)
            outputs += decoded.outputs
    return outputs


def token_ids(outputs):
    return [token_id for output in outputs for token_id in output.new_token_ids]


def planned(planner, rule=RANDOM, **request):
    request = ask(**request)
    return play(planner.plan(request, request.sampling_params, rule))


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_a_plan_is_max_tokens_long(planner, count):
    outputs = planned(planner, max_tokens=count)
    assert len(outputs) == len(token_ids(outputs)) == count
    assert {*token_ids(outputs)} <= {*range(50)}
    assert [output.finish_reason for output in outputs] == [None] * (count - 1) + [1]
    assert outputs[0].prefill_stats == PrefillStats(3, 3)
    assert [event.type for event in outputs[0].events] == [1, 2]
    assert all(output.prefill_stats is None for output in outputs[1:])


def test_a_plan_without_max_tokens_ends_at_the_longest_length(planner):
    assert len(planned(planner)) == 97
    assert len(planned(planner, max_tokens=1000)) == 97


def test_a_plan_may_be_longer_than_the_pool(planner):
    long = Planner(vocab_size=50, chunk_size=1, seed="0 0", max_model_len=10**6)
    plan = long.plan(ask(), SamplingParams(max_tokens=2 * POOL_SIZE + 5, seed=1), RANDOM)
    assert plan.step_count == 2 * POOL_SIZE + 5
    assert sum(1 for _ in plan.bodies) == plan.step_count


@pytest.mark.parametrize(("count", "sizes"), [(6, [3, 3]), (7, [3, 3, 1]), (2, [2])])
def test_chunks_are_tokens_of_one_step(count, sizes):
    planner = Planner(vocab_size=50, chunk_size=3, seed="0 0", max_model_len=100)
    outputs = planned(planner, max_tokens=count)
    assert [len(output.new_token_ids) for output in outputs] == sizes


def test_token_ids_depend_on_the_seed_or_the_id(planner):
    def answer(planner=planner, **request):
        return tuple(token_ids(planned(planner, max_tokens=20, **request)))

    assert answer(request_id="a", seed=1) == answer(request_id="b", seed=1)
    assert len({answer(seed=seed) for seed in range(10)}) == 10
    assert len({answer(request_id=str(name)) for name in range(10)}) == 10
    assert answer() != answer(Planner(50, 1, "1 0", 100))


def test_made_up_log_probabilities_come_inline(planner):
    outputs = planned(planner, max_tokens=2, logprobs=40, prompt_logprobs=1)
    assert outputs[1].new_logprobs.token_ids.shape == (1, 41)
    assert isinstance(outputs[1].new_logprobs.token_ids.data, msgspec.msgpack.Ext)
    prompt = outputs[0].new_prompt_logprobs_tensors
    assert prompt.token_ids.shape == (2, 2)
    # They are torch's in the real engine, whose own clients insist on its names.
    assert (prompt.token_ids.dtype, prompt.logprobs.dtype) == ("int64", "float32")
    assert outputs[1].new_prompt_logprobs_tensors is None


def test_named_tokens_of_the_prompt_are_scored(planner):
    rows = token_id_rows([[7, 1], [14]])
    outputs = planned(planner, max_tokens=2, prompt_logprob_token_ids=rows)
    scores = to_array(outputs[0].prompt_token_id_logprobs, ())
    np.testing.assert_allclose(scores, [[-0.1, -0.2], [-0.1, -np.inf]], rtol=1e-6)
    assert outputs[1].prompt_token_id_logprobs is None


def test_a_rule_s_tokens_are_given_and_cut_at_max_tokens(planner):
    rule = Rule(token_ids=[5, 6, 7], finish="repetition", stop_reason="again", cached_tokens=2)
    outputs = planned(planner, rule, max_tokens=9)
    assert token_ids(outputs) == [5, 6, 7]
    assert (outputs[-1].finish_reason, outputs[-1].stop_reason) == (4, "again")
    assert outputs[0].prefill_stats == PrefillStats(3, 1, 2, 2)
    outputs = planned(planner, rule, max_tokens=2)
    assert token_ids(outputs) == [5, 6]
    assert (outputs[-1].finish_reason, outputs[-1].stop_reason) == (1, None)


def test_a_rule_s_end_of_sequence_comes_where_it_says(planner):
    rule = Rule(eos_after=3)
    outputs = planned(planner, rule, max_tokens=9, eos_token_id=99)
    assert (len(outputs), token_ids(outputs)[-1], outputs[-1].finish_reason) == (4, 99, 0)
    assert len(planned(planner, rule, max_tokens=9, eos_token_id=99, min_tokens=6)) == 7
    outputs = planned(planner, rule, max_tokens=3, eos_token_id=99)
    assert (len(outputs), outputs[-1].finish_reason) == (3, 1)
    assert len(planned(planner, rule, max_tokens=9)) == 9


def test_a_rule_s_delay_passes_before_the_first_token(planner):
    batch = Batch(0)
    late, early = ask("late", max_tokens=2), ask("early", max_tokens=4)
    batch.add("late", planner.plan(late, late.sampling_params, Rule(delay_steps=2)))
    assert batch.step(1.0, None) is None
    batch.add("early", planner.plan(early, early.sampling_params, RANDOM))
    seen = []
    while len(batch):
        message = msgspec.msgpack.decode(batch.step(1.0, None), type=EngineCoreOutputs)
        seen.append([output.request_id for output in message.outputs])
    assert seen == [["early"], ["late", "early"], ["late", "early"], ["early"]]


def test_a_dropped_request_gets_nothing_and_its_id_may_come_back(planner):
    batch = Batch(0)
    first, second = ask("r", max_tokens=3), ask("r", max_tokens=5)
    batch.add("r", planner.plan(first, first.sampling_params, RANDOM))
    batch.step(1.0, None)
    assert batch.drop("r")
    assert not batch.drop("r")
    assert batch.step(1.0, None) is None
    batch.add("r", planner.plan(second, second.sampling_params, RANDOM))
    steps = 0
    while "r" in batch:
        batch.step(1.0, None)
        steps += 1
    assert steps == 5


@pytest.mark.parametrize(
    ("rule", "matches"),
    [
        (Rule(), True),
        (Rule(prompt_token_ids=[1, 2, 3]), True),
        (Rule(prompt_token_ids=[1, 2]), False),
        (Rule(prompt_contains=[2, 3]), True),
        (Rule(prompt_contains=[1, 3]), False),
        (Rule(prompt_contains=[1, 2, 3, 4]), False),
        (Rule(child=2), True),
        (Rule(child=0), False),
        (Rule(request_id="chat*-7"), True),
        (Rule(request_id="chat"), False),
        (Rule(child=2, prompt_contains=[9]), False),
    ],
)
def test_a_rule_matches_when_everything_it_names_does(rule, matches):
    request = msgspec.structs.replace(ask("2_chatcmpl-7-abcd"), external_req_id="chatcmpl-7")
    assert rule.matches(request) is matches


def test_the_first_rule_that_matches_answers():
    first, second = Rule(child=1, token_ids=[1]), Rule(token_ids=[2])
    scenario = Scenario([first, second])
    assert scenario.rule(ask("1_r-a")) is first
    assert scenario.rule(ask("0_r-a")) is second
    assert Scenario([first]).rule(ask("0_r-a")) is RANDOM


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[{", "truncated"),
        ("{}", "Expected `array`"),
        ('[{"tokens": [1]}]', "unknown field `tokens`"),
        ('[{"finish": "done"}]', "Invalid enum value 'done'"),
        ('[{"token_ids": []}]', "token_ids must not be empty"),
        ('[{"delay_steps": -1}]', "numbers must not be negative"),
    ],
)
def test_a_scenario_that_cannot_be_used_stops_the_start(tmp_path, capsys, caplog, text, reason):
    path = tmp_path / "scenario.json"
    path.write_text(text)
    assert main(["--scenario", str(path)]) == 2
    assert f"the scenario cannot be used: {path}: " in caplog.text
    assert reason in caplog.text


def test_a_scenario_that_is_not_there_stops_the_start(tmp_path, caplog):
    assert main(["--scenario", str(tmp_path / "no.json")]) == 2
    assert "No such file" in caplog.text


@pytest.mark.parametrize(
    "arguments", [["--engine-count", "0"], ["--step-ms", "-1"], ["--step-ms", "nan"], ["--what"]]
)
def test_a_wrong_flag_stops_the_start(arguments, capsys):
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    assert "umbel-mock-engine: error:" in capsys.readouterr().err


def test_help_describes_the_flags_and_the_scenario(capsys):
    with pytest.raises(SystemExit):
        main(["--help"])
    text = capsys.readouterr().out
    for word in (
        "--handshake-address",
        "--output-token-chunk-size",
        "--step-ms",
        "prompt_contains",
    ):
        assert word in text


# The process.


@pytest.fixture
async def start():
    """Start the command; gives the process, whose log can be read from `stderr`."""
    processes = []

    async def start(*flags):
        process = await asyncio.create_subprocess_exec(
            COMMAND, *flags, stderr=asyncio.subprocess.PIPE
        )
        processes.append(process)
        return process

    yield start
    for process in processes:
        if process.returncode is None:
            process.kill()
        await process.communicate()


@pytest.fixture
async def served(start, address):
    """A client and the process of its engines; takes the flags."""
    clients = []

    async def served(*flags, engines=1):
        client = EngineClient(EngineOptions(address, engines, ready_timeout=30))
        clients.append(client)
        flags = ("--handshake-address", client.handshake_address, *flags)
        process = await start(*flags, "--engine-count", str(engines))
        await client.wait_ready()
        return client, process

    yield served
    for client in clients:
        client.close()


async def line(process, text):
    """Read the process's log up to a line with this text."""
    async with asyncio.timeout(20):
        async for found in process.stderr:
            if text in found.decode():
                return found.decode()
    raise AssertionError(f"the log ended without {text!r}")


async def read(samples):
    ids, finishes, logprobs = [[] for _ in samples], [None] * len(samples), [0] * len(samples)
    async with asyncio.timeout(20):
        async for index, delta in samples:
            ids[index] += delta.token_ids
            finishes[index] = delta.finish
            logprobs[index] += len(delta.logprobs.ranks) if delta.logprobs else 0
    return ids, finishes, logprobs


async def test_requests_are_answered_as_the_scenario_and_they_say(served, open_samples, tmp_path):
    scenario = tmp_path / "scenario.json"
    rules = [
        {"prompt_contains": [42], "child": 1, "error": {"message": "no memory", "code": "oom"}},
        {"prompt_contains": [42], "token_ids": [5, 6, 7]},
    ]
    scenario.write_text(json.dumps(rules))
    client, process = await served(
        "--scenario", scenario, "--vocab-size", "10", "--max-model-len", "64"
    )
    assert client.max_model_len == 64
    assert await client.call("get_supported_tasks") == [["generate"]]
    assert await client.call("sleep", 1) == [None]
    async with open_samples(client, 3, prompt=(42,), max_tokens=9) as samples:
        ids, finishes, _ = await read(samples)
    assert ids == [[5, 6, 7], [], [5, 6, 7]]
    assert [finish.reason for finish in finishes] == ["stop", "error", "stop"]
    assert (str(finishes[1].error), finishes[1].error.code) == ("no memory", "oom")
    async with open_samples(client, 4, max_tokens=20, logprobs=2) as samples:
        ids, finishes, logprobs = await read(samples)
    assert [len(tokens) for tokens in ids] == logprobs == [20] * 4
    assert {token_id for tokens in ids for token_id in tokens} <= {*range(10)}
    assert finishes == [Finish("length")] * 4
    process.send_signal(signal.SIGTERM)
    assert await asyncio.wait_for(process.wait(), 20) == 0


async def test_several_engines_share_one_process(served, open_samples):
    client, _ = await served("--log-stats", "--step-ms", "1", engines=2)
    assert [engine.index for engine in client.engines] == [0, 1]
    assert await client.call("is_sleeping") == [False, False]
    running = set()
    client.step_listener = lambda outputs, step: running.add(
        (step.engine_index, outputs.scheduler_stats and outputs.scheduler_stats.num_running_reqs)
    )
    async with open_samples(client, 6, max_tokens=50) as samples:
        _, finishes, _ = await read(samples)
    assert finishes == [Finish("length")] * 6
    assert {(0, 3), (1, 3)} <= running


async def test_an_abort_is_silent_and_the_others_go_on(served, open_samples):
    client, process = await served("--log-requests", "--step-ms", "5")
    async with open_samples(client, 1, name="other", max_tokens=400) as other:
        async with open_samples(client, 2) as samples:
            await anext(aiter(samples))
        await line(process, "abort 0_x-abcd\n")
        await line(process, "abort 1_x-abcd\n")
        before = len((await anext(other[0])).token_ids)
        assert before > 0
        assert client.in_flight == 1
    await line(process, "abort 0_other-abcd\n")


async def test_what_it_cannot_take_does_not_stop_it(served, open_samples):
    client, process = await served()
    client._send(client.engines[0].identity, ADD, b"\xc1")
    await line(process, "a message was dropped that cannot be decoded")
    client._send(client.engines[0].identity, b"\x09", b"\xc0")
    await line(process, "unknown type")
    async with open_samples(client, 1) as samples:
        assert (await read(samples))[1] == [Finish("length")]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_ends_it_cleanly_and_the_client_hears(served, open_samples, number):
    client, process = await served("--step-ms", "5")
    async with open_samples(client, 2, max_tokens=30_000) as samples:
        await anext(aiter(samples))
        process.send_signal(number)
        _, finishes, _ = await read(samples)
    assert {finish.reason for finish in finishes} <= {"abort", "error"}
    assert await asyncio.wait_for(process.wait(), 20) == 0


async def test_an_engine_process_that_is_killed_ends_everything(served, open_samples):
    client, process = await served("--step-ms", "5")
    async with open_samples(client, 2, max_tokens=30_000) as samples:
        await anext(aiter(samples))
        process.kill()
        _, finishes, _ = await read(samples)
    assert [type(finish.error) for finish in finishes] == [EngineDeadError] * 2
    assert "an engine has closed its connection" in str(client.error)
    assert client.in_flight == 0


async def test_it_goes_when_its_frontend_is_gone(served, open_samples):
    client, process = await served("--exit-after", "0.1", "--step-ms", "5")
    samples = open_samples(client, 1, max_tokens=30_000)
    async with samples:
        await anext(samples[0])
        client.close()
    await line(process, "the frontend is gone")
    assert await asyncio.wait_for(process.wait(), 20) == 0


async def test_it_can_be_stopped_while_no_frontend_answers(start, open_socket):
    frontend = open_socket(zmq.ROUTER)
    frontend.bind("tcp://127.0.0.1:0")
    process = await start("--handshake-address", frontend.get_string(zmq.LAST_ENDPOINT))
    # Its HELLO tells that it waits.
    loop = asyncio.get_running_loop()
    assert await loop.run_in_executor(None, frontend.poll, 20_000)
    process.send_signal(signal.SIGTERM)
    assert await asyncio.wait_for(process.wait(), 20) == 0
