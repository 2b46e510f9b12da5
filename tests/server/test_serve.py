"""The command `umbel serve`, run as the program that it is, in front of mock engines."""

import asyncio
import json
import re
import resource
import signal
import socket
import tempfile
from pathlib import Path

import aiohttp
import pytest

from umbel_engine.mock import MockEngine, MockStep
from umbel_server.cli import make_parser

from .commands import CHAT, COMPLETIONS, MESSAGES, finishes, open_stream, rest_of


async def test_both_commands_serve_together(run, model_folder):
    umbel = await run(
        *("umbel", "serve", model_folder, "--port", "0", "--enable-scale-out"),
        *("--data-parallel-size", "2", "--data-parallel-size-local", "0"),
    )
    address = (await umbel.line(r"waiting for engines at (\S+)"))[1]
    engines = await run(
        *("umbel-mock-engine", "--handshake-address", address, "--engine-count", "2"),
        *("--vocab-size", "300", "--exit-after", "0"),
    )
    match = await umbel.line(rf"umbel: {re.escape(str(model_folder))} is served at (http://\S+)")
    async with aiohttp.ClientSession(match[1]) as session:
        body = {"messages": MESSAGES, "n": 3, "max_tokens": 5}
        async with session.post(CHAT, json=body) as answer:
            whole = await answer.json()
        assert [choice["finish_reason"] for choice in whole["choices"]] == ["length"] * 3
        assert whole["usage"]["completion_tokens"] == 15
        assert re.fullmatch(r"vllm-.*-dp2-[0-9a-f]{8}", whole["system_fingerprint"])
        async with session.post(CHAT, json={**body, "stream": True}) as answer:
            assert finishes(await rest_of(answer)).count("length") == 3
        async with session.get("/health") as answer:
            assert answer.status == 200
        async with session.get("/metrics") as answer:
            text = await answer.text()
        assert sum(map(float, re.findall(r"vllm:request_params_n_sum\S+ (\S+)", text))) == 6
    umbel.tell()
    assert await umbel.exit() == 0
    await engines.exit()


async def test_it_may_have_as_many_connections_as_the_system_allows(umbel):
    served = await umbel(None)
    soft, hard = resource.prlimit(served.process.pid, resource.RLIMIT_NOFILE)
    assert soft == min(hard, 65535)


async def test_sigterm_lets_a_running_stream_end(umbel, say):
    served = await umbel(lambda request: say("hi", "yo"), paused=True)
    response = await open_stream(served)
    served.tell()
    await served.line("1 requests get 10 s to finish")
    with pytest.raises(aiohttp.ClientConnectionError):
        await served.ask()
    served.engine.resume()
    assert finishes(await rest_of(response)) == ["length", "length"]
    assert await served.exit() == 0
    assert served.engine.aborts == []


async def test_sigterm_lets_a_whole_answer_be_read(umbel, token):
    words = [token(" London")] * 200_000
    served = await umbel(lambda request: [MockStep(token_ids=words, finish="length")], paused=True)
    # What the systems hold would be read whatever the server does.
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.connect(("127.0.0.1", int(served.url.rpartition(":")[2])))
    reader, writer = await asyncio.open_connection(sock=sock, limit=4096)
    body = json.dumps({"messages": MESSAGES, "n": 3}).encode()
    head = f"POST {CHAT} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    writer.write(head.encode() + b"Content-Length: %d\r\n\r\n" % len(body) + body)
    await served.engine.wait_adds(3)
    served.tell()
    await served.line("1 requests get 10 s to finish")
    served.engine.resume()
    received = b""
    # It takes longer than the moment that connections get at the very end.
    while data := await asyncio.wait_for(reader.read(65536), 10):
        received += data
        if len(received) < 1_000_000:
            await asyncio.sleep(0.02)
    writer.close()
    head, _, content = received.partition(b"\r\n\r\n")
    assert len(content) == int(re.search(rb"Content-Length: (\d+)", head)[1]) > 4_000_000
    assert await served.exit() == 0


async def test_a_signal_that_a_wrapper_sends_once_more_is_the_same_signal(umbel, say):
    served = await umbel(lambda request: say("hi", "yo"), paused=True)
    response = await open_stream(served)
    served.tell(signal.SIGINT)
    served.tell(signal.SIGINT)
    await served.line("1 requests get 10 s to finish")
    served.engine.resume()
    assert finishes(await rest_of(response)) == ["length", "length"]
    assert await served.exit() == 0


async def test_what_does_not_end_in_time_is_aborted(umbel, say):
    served = await umbel(lambda request: say("hi", "yo"), "--shutdown-timeout", "0.1", paused=True)
    response = await open_stream(served)
    served.tell(signal.SIGINT)
    assert finishes(await rest_of(response)) == ["abort", "abort"]
    assert await served.exit() == 0
    assert await served.engine.wait_aborts() == [[add.request_id for add in served.engine.adds]]


async def test_a_second_sigterm_ends_it_at_once(umbel, say):
    served = await umbel(lambda request: say("hi", "yo"), "--shutdown-timeout", "600", paused=True)
    response = await open_stream(served)
    served.tell()
    await served.line("1 requests get 600 s to finish")
    ended = asyncio.ensure_future(served.exit())
    while not ended.done():
        served.tell()
        await asyncio.wait((ended,), timeout=0.1)
    assert ended.result() == -signal.SIGKILL
    with pytest.raises(aiohttp.ClientPayloadError):
        await rest_of(response)


async def test_sigterm_before_the_engines_are_there_ends_it(run, model_folder):
    process = await run(
        *("umbel", "serve", model_folder, "--port", "0", "--data-parallel-size-local", "0")
    )
    await process.line("waiting for engines")
    process.tell()
    assert await process.exit() == 0
    assert len(process.lines) == 1


async def test_the_death_of_the_engine_ends_it_with_an_error(umbel, say):
    served = await umbel(lambda request: say("hi", "yo"), paused=True)
    response = await open_stream(served)
    served.engine.send_dead()
    (error,) = await rest_of(response)
    assert error["error"]["message"] == "The server had an error while processing your request."
    assert await served.exit() == 1
    assert "the engine core has died" in "".join(served.lines)
    assert "Traceback" not in "".join(served.lines)


async def test_the_death_of_an_idle_engine_ends_it_with_an_error(umbel):
    served = await umbel(None)
    served.engine.kill()
    assert await served.exit() == 1
    assert "Traceback" not in "".join(served.lines)


async def test_a_unix_socket_is_served_also_where_an_old_one_is_in_the_way(umbel):
    with tempfile.TemporaryDirectory(prefix="umbel-test-") as folder:
        path = Path(folder) / "umbel.sock"
        with socket.socket(socket.AF_UNIX) as old:
            old.bind(str(path))
        served = await umbel(None, "--uds", path)
        status, text = await served.ask(n=2, max_tokens=1)
        assert status == 200
        assert len(json.loads(text)["choices"]) == 2
        served.tell()
        assert await served.exit() == 0


async def test_a_unix_socket_is_not_taken_from_a_server_that_runs(umbel, refused, model_folder):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "http.sock"
        served = await umbel(None, "--uds", path)
        line = await refused(model_folder, "--uds", path)
        assert line == f"umbel: cannot listen on {path}: another server listens there\n"
        async with served.session.get(f"{served.url}/health") as answer:
            assert answer.status == 200


async def test_flags_reach_the_answers(umbel, say, tmp_path):
    template = tmp_path / "template.jinja"
    template.write_text("{{ messages[0].content }}")
    served = await umbel(
        lambda request: say("hi"),
        *("--chat-template", template, "--max-n-sequences", "2", "--enable-scale-out"),
        *("--api-key", "one", "two", "--response-role", "oracle"),
        *("--override-generation-config", '{"temperature": 0.5}'),
        *("--enable-prompt-tokens-details",),
    )
    assert (await served.ask())[0] == 401
    served.session.headers["Authorization"] = "Bearer two"
    status, text = await served.ask(n=2)
    assert status == 200
    answer = json.loads(text)
    assert answer["choices"][0]["message"]["role"] == "oracle"
    assert answer["usage"]["prompt_tokens"] == 1
    assert answer["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
    assert served.engine.adds[0].sampling_params.temperature == 0.5
    for path in (CHAT, COMPLETIONS, f"{CHAT}/render", f"{COMPLETIONS}/render"):
        status, text = await served.ask(path, n=3)
        assert status == 400
        assert "n must be at most 2, got 3." in text
    served.tell()
    assert await served.exit() == 0


# What stops a start: one clear line, and the status 1.


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture
def refused(run):
    async def refused(*arguments, **environment):
        process = await run("umbel", "serve", *arguments, **environment)
        assert await process.exit() == 1
        (line,) = process.lines
        return line

    return refused


async def test_a_port_is_taken_before_the_engines_are_there(run, refused, model_folder):
    arguments = ("--data-parallel-size-local", "0", "--port", free_port())
    first = await run("umbel", "serve", model_folder, *arguments)
    await first.line("waiting for engines")
    assert "Address already in use" in await refused(model_folder, *arguments)
    first.tell()
    assert await first.exit() == 0


async def test_a_taken_port_stops_the_start(refused, model_folder):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        line = await refused(model_folder, "--port", port, "--data-parallel-size-local", "0")
    assert line == f"umbel: cannot listen on 127.0.0.1:{port}: Address already in use\n"


@pytest.mark.parametrize(
    ("arguments", "environment", "line"),
    [
        (
            [],
            {"VLLM_MAX_N_SEQUENCES": "many"},
            "VLLM_MAX_N_SEQUENCES must be an integer, got 'many'.",
        ),
        (["--max-n-sequences", "1.5"], {}, "--max-n-sequences must be an integer, got '1.5'."),
        (
            ["--data-parallel-size-local", "2"],
            {},
            "--data-parallel-size-local must be between 0 and --data-parallel-size.",
        ),
        (
            ["--disable-log-stats", "--enable-per-request-metrics"],
            {},
            "--enable-per-request-metrics needs statistics: drop --disable-log-stats.",
        ),
        (["--chat-template", "{% if %}"], {}, "the chat template is not valid: .*"),
        (["--tokenizer", "{folder}/none"], {}, "model '.*/none' is neither a folder nor .*"),
        (
            ["--python", "{folder}/none"],
            {},
            "--python .*/none: there is no such file[.]",
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
async def test_an_invalid_option_stops_the_start(
    refused, model_folder, arguments, environment, line
):
    given = [
        argument.format(folder=model_folder) if "{f" in argument else argument
        for argument in arguments
    ]
    found = await refused(model_folder, "--port", "0", *given, **environment)
    assert re.fullmatch(f"umbel: {line}\n", found), found


@pytest.mark.parametrize("flag", ["--port", "--data-parallel-rpc-port"])
@pytest.mark.parametrize("port", ["65536", "-1", "http", "8000.0", "9" * 5000])
def test_what_is_no_port_is_refused(flag, port, capsys):
    with pytest.raises(SystemExit):
        make_parser().parse_args(["serve", flag, port])
    assert "must be a port from 0 to 65535, got" in capsys.readouterr().err


async def test_an_address_of_ipv6_is_shown_as_a_url(run, model_folder):
    with socket.socket(socket.AF_INET6) as probe:
        try:
            probe.bind(("::1", 0))
        except OSError:
            pytest.skip("there is no IPv6 here")
    process = await run(
        *("umbel", "serve", model_folder, "--host", "::1", "--port", "0"),
        *("--data-parallel-size-local", "0"),
    )
    address = (await process.line(r"waiting for engines at (\S+)"))[1]
    async with MockEngine().connect(address):
        url = (await process.line(r"is served at (http://\S+)"))[1]
        async with aiohttp.ClientSession() as session, session.get(f"{url}/health") as answer:
            assert answer.status == 200
        process.tell()
        assert await process.exit() == 0
