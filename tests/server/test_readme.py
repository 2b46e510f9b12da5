"""What the documents tell their reader to type, typed."""

import json
import re
import shlex
import subprocess
import sys
import tempfile
import tomllib
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from umbel_engine import EngineProcessOptions
from umbel_server.cli import make_parser, settings_of, split_arguments

ROOT = Path(__file__).resolve().parents[2]

DOCUMENTS = sorted(
    str(path.relative_to(ROOT))
    for pattern in ("README.md", "docs/*.md", "packages/*/README.md")
    for path in ROOT.glob(pattern)
)

CONTRIBUTING = ROOT / "CONTRIBUTING.md"

KNOWN = {"curl", "make", "pip", "umbel", "umbel-mock-engine", "vllm"}
"""The programs that documents call; what each may be told is the subject of a test below."""

DOCUMENTED_URL = "http://127.0.0.1:8000"
DOCUMENTED_ADDRESS = "tcp://127.0.0.1:29550"
DOCUMENTED_SOCKET = "/run/umbel/http.sock"

VOCABULARY_SIZE = "256"
"""Token ids up to here have a text in the tests' tokenizer."""

TIMEOUT = 60


def split_commands(text):
    """Split the text of a shell block into commands, which may go on over several lines."""
    commands, pending = [], ""
    for line in text.splitlines():
        pending += line + "\n"
        try:
            words = shlex.split(pending)
        except ValueError:
            continue  # a quotation goes on
        commands.append(words)
        pending = ""
    assert not pending
    return commands


@pytest.fixture
def commands(blocks_of):
    """Give the commands of all documents that call a program, as lists of words."""

    def commands(program=None):
        found = [
            words
            for document in DOCUMENTS
            for block in blocks_of(document)
            if block.language == "sh"
            for words in split_commands(block.text)
        ]
        return [words for words in found if program in (None, words[0])]

    return commands


@pytest.fixture
def serve_command(commands):
    """The documented command for an engine that is started elsewhere."""
    return min(
        (words for words in commands("umbel") if "--data-parallel-size-local" in words), key=len
    )


@pytest.fixture
def mock_command(commands):
    """The documented command for a mock engine."""
    return min(commands("umbel-mock-engine"), key=len)


def replaced(words, **values):
    """Give a command with the values of some flags replaced, or added."""
    words = list(words)
    for name, value in values.items():
        flag = "--" + name.replace("_", "-")
        if flag in words:
            words[words.index(flag) + 1] = value
        else:
            words += [flag, value]
    return words


def line_with(process, pattern):
    read = []
    for line in process.stderr:
        read.append(line)
        if found := re.search(pattern, line):
            return found[1]
    raise AssertionError("".join(read))


@contextmanager
def running(words):
    """Run a program, which must have been stopped, or stop when it is told to."""
    program = Path(sys.executable).with_name(words[0])
    process = subprocess.Popen([program, *words[1:]], stderr=subprocess.PIPE, text=True)
    try:
        yield process
        stop(process)
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


def stop(process):
    """Tell a program to stop, unless it has."""
    if process.poll() is None:
        process.terminate()
        log = process.stderr.read()
        assert process.wait(TIMEOUT) == 0, log
    assert process.returncode == 0


@pytest.fixture
def run_documented(model_folder):
    """Run server and engine as documented, but for model and ports; gives the server's address."""

    @contextmanager
    def run_documented(serve, mock_engine, **flags):
        words = replaced(serve, data_parallel_rpc_port="0", **flags)
        words[words.index("serve") + 1] = str(model_folder)
        with ExitStack() as stack:
            server = stack.enter_context(running(words))
            address = line_with(server, r"waiting for engines at (\S+)")
            words = replaced(mock_engine, handshake_address=address, vocab_size=VOCABULARY_SIZE)
            stack.enter_context(running(words))
            yield line_with(server, r"is served at (\S+)")
            # A server whose engine goes first ends with an error.
            stop(server)

    return run_documented


def test_every_documented_command_calls_a_known_program(commands):
    assert {words[0] for words in commands()} == KNOWN


def test_every_documented_make_target_exists(commands):
    targets = {target for words in commands("make") for target in words[1:]}
    for part in re.findall(r"^ +make (\w+)|`make (\w+)`", CONTRIBUTING.read_text(), re.MULTILINE):
        targets |= {target for target in part if target}
    assert targets >= {"demo", "engine", "lint", "setup", "test"}
    for target in targets:
        subprocess.run(["make", "-n", target], cwd=ROOT, check=True, capture_output=True)


def test_the_documented_installations_name_every_package_that_is_needed(commands):
    installations = commands("pip")
    assert len(installations) >= 6
    for words in installations:
        assert words[:2] == ["pip", "install"]
        names = set()
        needed = set()
        for folder in words[2:]:
            project = tomllib.loads((ROOT / folder / "pyproject.toml").read_text())["project"]
            names.add(project["name"])
            needed |= {item.split("==")[0] for item in project["dependencies"]}
        assert {name for name in needed if name.startswith("umbel-")} <= names


def test_every_documented_umbel_command_is_understood(commands):
    for words in commands("umbel"):
        ours, theirs = split_arguments(words[1:])
        settings_of(make_parser().parse_args(ours), theirs, {})


def test_the_documented_vllm_commands_use_the_flags_of_the_managed_engine(commands):
    options = EngineProcessOptions(Path("python"), "a-model", DOCUMENTED_ADDRESS)
    known = {word for word in options.command() if word.startswith("--")} | {"--headless"}
    for words in commands("vllm"):
        assert words[:2] == ["vllm", "serve"]
        assert {word for word in words if word.startswith("--")} <= known


def test_the_documented_engines_join_where_the_documented_servers_wait(commands):
    for words in commands("umbel-mock-engine"):
        assert words[words.index("--handshake-address") + 1] == DOCUMENTED_ADDRESS
    port = DOCUMENTED_ADDRESS.rpartition(":")[2]
    for words in [*commands("vllm"), *commands("umbel")]:
        if "--data-parallel-rpc-port" in words:
            assert words[words.index("--data-parallel-rpc-port") + 1] == port


def curl(words):
    """Run curl as documented, failing for a status of 400 and above; gives what it prints."""
    finished = subprocess.run(
        [*words, "--fail-with-body", "--noproxy", "*"],
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
    )
    assert finished.returncode == 0, finished.stdout + finished.stderr
    return finished.stdout


def test_the_root_readme_can_be_followed(
    run_documented, serve_command, mock_command, commands, blocks_of, run_program, monkeypatch
):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    (program,) = (block.text for block in blocks_of("README.md") if block.language == "python")
    with run_documented(serve_command, mock_command, port="0") as url:
        answers = {}
        for words in commands("curl"):
            if "--unix-socket" not in words:
                assert any(word.startswith(DOCUMENTED_URL) for word in words)
                words = [word.replace(DOCUMENTED_URL, url) for word in words]
                path = next(word.removeprefix(url) for word in words if word.startswith(url))
                answers[path] = curl(words)
        assert DOCUMENTED_URL in program
        lines = run_program(program.replace(DOCUMENTED_URL, url)).splitlines()
    choices = json.loads(answers["/v1/chat/completions"])["choices"]
    assert [choice["index"] for choice in choices] == [0, 1, 2]
    assert "vllm:request_params_n_sum" in answers["/metrics"]
    assert [line[:3] for line in lines] == ["0: ", "1: ", "2: "]
    assert len({line[3:] for line in lines}) == 3


def test_the_documented_unix_socket_is_served(
    run_documented, serve_command, mock_command, commands
):
    (serve,) = (words for words in commands("umbel") if "--uds" in words)
    assert serve[serve.index("--uds") + 1] == DOCUMENTED_SOCKET
    asked = [words for words in commands("curl") if "--unix-socket" in words]
    assert asked
    # A path of pytest's own is too long for a socket.
    with tempfile.TemporaryDirectory(prefix="umbel-test-") as folder:
        path = f"{folder}/http.sock"
        with run_documented(serve_command, mock_command, uds=path) as address:
            assert address == path
            for words in asked:
                assert DOCUMENTED_SOCKET in words
                curl([path if word == DOCUMENTED_SOCKET else word for word in words])


def test_several_documented_engines_join_one_server(run_documented, commands):
    (serve,) = (words for words in commands("umbel") if "--data-parallel-size" in words)
    (engines,) = (words for words in commands("umbel-mock-engine") if "--engine-count" in words)
    with run_documented(serve, engines, port="0") as url:
        metrics = curl(["curl", "-s", f"{url}/metrics"])
    assert 'vllm:num_requests_running{engine="1"' in metrics


def test_the_programs_of_the_readme_print_what_it_says(programs_of, run_program):
    for source, output in programs_of("packages/server/README.md"):
        assert run_program(source) == output
