"""The command `umbel render`, run as the program that it is: requests in, tokens out, no engine."""

import json
import os
import re
import shutil
import signal
import socket
import sys
from asyncio import subprocess, timeout
from contextlib import AsyncExitStack
from pathlib import Path

import aiohttp
import pytest

from umbel_server.errors import OptionError
from umbel_server.model_length import read_max_model_len
from umbel_text import ModelFilesError

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
MESSAGES = [{"role": "user", "content": "Hello"}]

TIMEOUT = 20
"""Seconds that a process may take to say or do what is waited for."""


class Process:
    """A running `umbel render`, once it serves, and a client of it."""

    def __init__(self, process):
        self.process = process
        self.lines = []
        self.session = None

    async def line(self):
        async with timeout(TIMEOUT):
            line = (await self.process.stderr.readline()).decode()
        self.lines.append(line)
        return line

    async def ask(self, method, path, **body):
        request = self.session.request(method, path, json=body or None)
        async with timeout(TIMEOUT), request as answer:
            return answer.status, await answer.text()

    async def exit(self):
        async with timeout(TIMEOUT):
            rest = (await self.process.stderr.read()).decode()
            self.lines += rest.splitlines(keepends=True)
            return await self.process.wait()


@pytest.fixture
async def run():
    async with AsyncExitStack() as stack:

        async def run(*arguments, **environment):
            inherited = {k: v for k, v in os.environ.items() if not k.startswith("VLLM_")}
            path = shutil.which("umbel", path=str(Path(sys.executable).parent))
            process = await subprocess.create_subprocess_exec(
                *(path, "render", "--port", "0", *map(str, arguments)),
                stderr=subprocess.PIPE,
                env={**inherited, **environment},
            )

            async def end():
                if process.returncode is None:
                    process.kill()
                await process.communicate()

            stack.push_async_callback(end)
            return Process(process)

        yield run


@pytest.fixture
async def render(run, model_folder):
    """Start `umbel render` and wait until it serves."""
    async with AsyncExitStack() as stack:

        async def render(*flags, folder=model_folder, **environment):
            flags = ("--served-model-name", "smollm2", *flags)
            process = await run(folder, *flags, **environment)
            line = await process.line()
            match = re.fullmatch(r"umbel: smollm2 is served at (\S+) \(ready after .*\)\n", line)
            assert match is not None, line
            session = aiohttp.ClientSession(match[1])
            process.session = await stack.enter_async_context(session)
            return process

        yield render


async def test_requests_are_rendered_without_an_engine(render, tokenizer):
    served = await render("--max-model-len", "100")
    status, text = await served.ask("POST", f"{CHAT}/render", messages=MESSAGES, n=3, max_tokens=7)
    assert status == 200
    rendered = json.loads(text)
    prompt = "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n"
    assert rendered["token_ids"] == tokenizer.encode(prompt, add_special_tokens=False).ids
    assert (rendered["sampling_params"]["n"], rendered["sampling_params"]["max_tokens"]) == (3, 7)
    status, text = await served.ask("POST", f"{COMPLETIONS}/render", prompt=["Hello", "hi"])
    assert [len(prompt["token_ids"]) for prompt in json.loads(text)] == [1, 1]
    status, text = await served.ask("POST", "/tokenize", prompt="Hello")
    assert json.loads(text) == {
        "count": 1,
        "max_model_len": 100,
        "tokens": [6004],
        "token_strs": None,
    }
    assert await served.ask("POST", "/detokenize", tokens=[6004]) == (200, '{"prompt":"Hello"}')
    served.process.send_signal(signal.SIGTERM)
    assert await served.exit() == 0
    assert len(served.lines) == 1


TOOLS = [{"type": "function", "function": {"name": "f"}}]


@pytest.mark.parametrize("given", [None, "{{ messages[0].content }} yo yo"])
async def test_requests_with_tools_may_have_a_template_of_their_own(
    render, model_folder, tmp_path, tokenizer, given
):
    folder = shutil.copytree(model_folder, tmp_path / "model")
    config = json.loads((folder / "tokenizer_config.json").read_text())
    config["chat_template"] = [
        {"name": "default", "template": "{{ messages[0].content }}"},
        {"name": "tool_use", "template": "{{ messages[0].content }}{{ eos_token }}"},
    ]
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    flags = () if given is None else ("--chat-template", given)
    served = await render("--enable-tokenizer-info-endpoint", *flags, folder=folder)
    for tools, expected in (
        (None, "Hello" if given is None else "Hello yo yo"),
        (TOOLS, "Hello<|im_end|>" if given is None else "Hello yo yo"),
    ):
        token_ids = tokenizer.encode(expected, add_special_tokens=False).ids
        body = {"messages": MESSAGES, "tools": tools}
        _, tokenized = await served.ask("POST", "/tokenize", **body)
        assert json.loads(tokenized)["tokens"] == token_ids
        _, rendered = await served.ask("POST", f"{CHAT}/render", **body, tool_choice="none")
        assert json.loads(rendered)["token_ids"] == token_ids
    _, described = await served.ask("GET", "/tokenizer_info")
    assert json.loads(described)["chat_template"] == (
        given or config["chat_template"][0]["template"]
    )


async def test_faults_are_those_of_a_server_that_generates(render):
    served = await render("--max-model-len", "8", "--max-n-sequences", "2")
    for body, status, message in (
        ({"model": "another"}, 404, "The model `another` does not exist."),
        ({"n": 3}, 400, "n must be at most 2, got 3."),
        ({"prompt": "a b c d e f", "max_tokens": 1}, 400, "maximum context length is 8 tokens"),
    ):
        found, text = await served.ask("POST", f"{COMPLETIONS}/render", **{"prompt": "hi", **body})
        assert found == status
        assert message in json.loads(text)["error"]["message"]


async def test_it_is_watched_as_any_server(render):
    served = await render()
    for method, path in (("GET", "/health"), ("GET", "/ping"), ("POST", "/ping")):
        assert await served.ask(method, path) == (200, "")
    _, text = await served.ask("GET", "/v1/models")
    (card,) = json.loads(text)["data"]
    # The model of these tests does not say how long a prompt may be.
    assert (card["id"], card["max_model_len"]) == ("smollm2", 2048)
    _, text = await served.ask("GET", "/version")
    versions = json.loads(text)
    assert versions["version"] == versions["umbel_version"]
    assert await served.ask("GET", "/load") == (200, '{"server_load":0}')
    await served.ask("POST", f"{CHAT}/render", messages=MESSAGES)
    _, text = await served.ask("GET", "/metrics")
    assert f'http_requests_total{{handler="{CHAT}/render",method="POST",status="2xx"}} 1.0' in text
    assert "vllm:" not in text


async def test_routes_that_generate_do_not_exist(render):
    served = await render()
    for path in (CHAT, COMPLETIONS, "/invocations", "/inference/v1/generate"):
        status, _ = await served.ask("POST", path, messages=MESSAGES, prompt="Hello")
        assert (path, status) == (path, 404)


async def test_flags_of_the_network_and_of_answers_hold(render):
    served = await render("--api-key", "key", "--root-path", "/llm", "--enable-request-id-headers")
    assert (await served.ask("GET", "/llm/v1/models"))[0] == 401
    served.session.headers["Authorization"] = "Bearer key"
    async with served.session.get("/llm/v1/models") as answer:
        assert (answer.status, len(answer.headers["X-Request-Id"])) == (200, 32)


async def test_in_development_mode_it_tells_of_itself(render):
    served = await render(VLLM_SERVER_DEV_MODE="1")
    status, text = await served.ask("GET", "/server_info?config_format=json")
    assert status == 200
    info = json.loads(text)
    assert info["umbel"]["engines"] == []
    assert set(info["umbel"]["running"]) == {
        "requests",
        "sequences",
        "connections",
        "asyncio_tasks",
        "asyncio_timers",
        "open_files",
    }
    assert "parallel_config" not in info["vllm_config"]


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--max-model-len", "long"], "--max-model-len must be a number of tokens, .* 'long'[.]"),
        (["--tokenizer", "/nonexistent/model"], "model '/nonexistent/model' is neither .*"),
    ],
)
async def test_an_invalid_option_stops_the_start(run, model_folder, arguments, line):
    process = await run(model_folder, *arguments)
    assert await process.exit() == 1
    (found,) = process.lines
    assert re.fullmatch(f"umbel: {line}\n", found), found


async def test_a_taken_port_stops_the_start(run, model_folder):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        process = await run(model_folder, "--port", taken.getsockname()[1])
        assert await process.exit() == 1
    assert "Address already in use" in process.lines[0]


async def test_what_is_meant_for_an_engine_is_refused(run, model_folder):
    process = await run(model_folder, "--", "--dtype", "half")
    assert await process.exit() == 1
    assert process.lines == ['umbel: nothing can follow "--": there is no engine to hand it to.\n']


# How long a model's prompts may be.


@pytest.fixture
def length(tmp_path):
    """Give the length of a model with such a configuration, and such an option."""

    def length(config, option=None):
        (tmp_path / "config.json").write_text(json.dumps(config))
        return read_max_model_len(tmp_path, option)

    return length


ROPE = {"max_position_embeddings": 1000}


@pytest.mark.parametrize(
    ("config", "tokens"),
    [
        ({}, 2048),
        (ROPE, 1000),
        ({**ROPE, "seq_length": 500, "max_seq_len": 800}, 500),
        ({**ROPE, "model_max_length": 4000}, 4000),
        ({**ROPE, "text_config": {"n_positions": 300}}, 300),
        ({**ROPE, "rope_scaling": {"type": "linear", "factor": 4.0}}, 4000),
        ({**ROPE, "rope_scaling": {"rope_type": "dynamic", "factor": 2}}, 2000),
        ({**ROPE, "rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, 1000),
        ({**ROPE, "rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, 1000),
        ({**ROPE, "rope_scaling": {"rope_type": "linear", "factor": None}}, 1000),
        ({**ROPE, "rope_scaling": None}, 1000),
        ({**ROPE, "rope_parameters": {"rope_type": "default", "rope_theta": 1e6}}, 1000),
        (
            {
                **ROPE,
                "rope_parameters": {
                    "full_attention": {"rope_type": "linear", "factor": 8.0},
                    "sliding_attention": {"rope_type": "default"},
                },
            },
            8000,
        ),
        (
            {
                **ROPE,
                "model_type": "gemma3_text",
                "rope_scaling": {"rope_type": "linear", "factor": 8.0},
            },
            1000,
        ),
        (
            {
                **ROPE,
                "original_max_position_embeddings": 400,
                "rope_scaling": {"type": "longrope"},
            },
            400,
        ),
    ],
)
def test_the_length_is_the_configurations(length, config, tokens):
    assert length(config) == length(config, "auto") == length(config, "-1") == tokens


@pytest.mark.parametrize(
    ("option", "tokens"),
    [("8192", 8192), ("8K", 8192), ("8k", 8000), ("25.6k", 25600), ("1M", 2**20), (" 5 ", 5)],
)
def test_an_option_wins_over_the_configuration(length, option, tokens):
    assert length(ROPE, option) == tokens


@pytest.mark.parametrize("option", ["", "0", "-2", "1.5", "1.5K", "1e3", "8 K", "\u0663", "8KB"])
def test_an_option_that_is_no_length_is_refused(length, option):
    with pytest.raises(OptionError, match="--max-model-len must be a number of tokens"):
        length(ROPE, option)


def test_a_file_that_is_no_configuration_is_refused(tmp_path):
    (tmp_path / "config.json").write_text("[]")
    with pytest.raises(ModelFilesError):
        read_max_model_len(tmp_path, None)
