"""lm-eval's two models for OpenAI's API, on a small task, against `umbel serve`.

In front of a mock engine every number is known.  The real engine, with the sample model, shows that
the scores mean what they should: the model knows these capitals.
"""

import asyncio
import json
import os
import re
import sys
from asyncio.subprocess import DEVNULL, PIPE
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from tokenizers import Tokenizer

from umbel_engine import Logprobs
from umbel_engine.mock import MockEngine, MockStep, tokens
from umbel_engine.sample_model import prepare_sample_model

HERE = Path(__file__).parent
ENGINE_PYTHON = HERE.parents[1] / ".venv-engine" / "bin" / "python"
UMBEL = Path(sys.executable).with_name("umbel")
TOKENIZER_FLAG = "--enable-tokenizer-info-endpoint"
MODEL = "a-model"

CAPITALS = [
    json.loads(line) for line in (HERE / "tasks" / "capitals.jsonl").read_text().splitlines()
]
RIGHT, WRONG, RIVAL = -0.25, -2.0, -0.5
"""Log-probabilities per token: of a right capital, of anything else, of the best rival."""

TIMEOUT = 400
"""Seconds that a process may take, to load a model among other things."""


class Server(NamedTuple):
    """A running server; `model` is the name to ask for."""

    url: str
    model: str


@pytest.fixture(scope="module")
def folder():
    return prepare_sample_model()


@pytest.fixture(scope="module")
def tokenizer(folder):
    return Tokenizer.from_file(str(folder / "tokenizer.json"))


@asynccontextmanager
async def umbel(*arguments):
    """Run `umbel serve`; gives a function that waits for a line that matches."""
    process = await asyncio.create_subprocess_exec(
        UMBEL, "serve", *map(str, arguments), "--port", "0", stdout=DEVNULL, stderr=PIPE
    )

    async def line(pattern):
        lines = []
        async with asyncio.timeout(TIMEOUT):
            while text := (await process.stderr.readline()).decode():
                lines.append(text)
                if (match := re.search(pattern, text)) is not None:
                    return match
        raise AssertionError("".join(lines[-40:]))

    try:
        yield line
    finally:
        process.terminate()
        # Reads what is left, so that the process does not wait for it.
        await process.communicate()


@pytest.fixture
async def mocked(folder, tokenizer):
    """A server in front of a mock engine that knows the capitals."""
    right = {row["country"]: row["capital"] for row in CAPITALS}
    known = {i for capital in right.values() for i in tokenizer.encode(f" {capital}").ids}

    def script(request):
        if request.sampling_params.prompt_logprobs is not None:
            return [scored(request, known)]
        prompt = tokenizer.decode(request.prompt_token_ids)
        (country,) = (country for country in right if country in prompt)
        space = " " if "assistant" not in prompt else ""
        answer = tokenizer.encode(f"{space}{right[country]}, as everyone knows").ids
        return tokens(*answer)

    flags = ("--data-parallel-size-local", 0, "--served-model-name", MODEL, TOKENIZER_FLAG)
    async with umbel(folder, *flags) as line:
        address = (await line(r"waiting for engines at (\S+)"))[1]
        async with MockEngine(script).connect(address) as engine:
            url = (await line(r"is served at (http://\S+)"))[1]
            yield Server(url, MODEL), engine


def scored(request, known):
    """Make the one step of a request whose prompt is scored."""
    token_ids = request.prompt_token_ids
    own = [RIGHT if token_id in known else WRONG for token_id in token_ids]
    best = [token_id if token_id in known else token_id + 1 for token_id in token_ids]
    values = np.array([[value, max(value, RIVAL)] for value in own], np.float32)
    ids = np.array([token_ids, best], np.int64).T
    ranks = np.array([1 if value == RIGHT else 2 for value in own], np.int64)
    prompt = Logprobs(ids[1:], values[1:], ranks[1:])
    generated = Logprobs(ids[:1], values[:1], ranks[:1])
    return MockStep(
        token_ids=token_ids[:1], logprobs=generated, prompt_logprobs=prompt, finish="length"
    )


class Evaluation(NamedTuple):
    """What lm-eval found: the metrics, and the samples of each task in the order of the data."""

    metrics: dict[str, dict[str, float]]
    samples: dict[str, list[dict[str, object]]]


@pytest.fixture
def evaluate(tmp_path):
    """Run lm-eval as the command that it is; no hub can be reached."""

    async def evaluate(server, model, route, tasks, *flags, **arguments):
        given = {"model": server.model, "base_url": server.url + route, **arguments}
        command = [
            *(sys.executable, "-m", "lm_eval", "--model", model),
            *("--model_args", ",".join(f"{name}={value}" for name, value in given.items())),
            *("--tasks", ",".join(tasks), "--include_path", HERE / "tasks"),
            *("--output_path", tmp_path / model, "--log_samples", *flags),
        ]
        offline = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "HF_HOME": str(tmp_path)}
        kept = {name: value for name, value in os.environ.items() if "proxy" not in name.lower()}
        process = await asyncio.create_subprocess_exec(
            *command, cwd=HERE, env=kept | offline, stdout=PIPE, stderr=PIPE
        )
        async with asyncio.timeout(TIMEOUT):
            output, errors = await process.communicate()
        assert process.returncode == 0, (output + errors).decode()[-5000:]
        return read_evaluation(tmp_path / model, tasks)

    return evaluate


def read_evaluation(folder, tasks):
    (results,) = folder.rglob("results_*.json")
    samples = {}
    for task in tasks:
        (path,) = folder.rglob(f"samples_{task}_*.jsonl")
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        samples[task] = sorted(rows, key=lambda row: row["doc_id"])
    return Evaluation(json.loads(results.read_text())["results"], samples)


def check_choices(evaluation, tokenizer):
    """Check the scores of every choice against those that the mock engine gave its tokens."""
    assert evaluation.metrics["capital_choice"]["acc,none"] == 1.0
    for row, sample in zip(CAPITALS, evaluation.samples["capital_choice"], strict=True):
        scores = [(float(score), greedy == "True") for ((score, greedy),) in sample["resps"]]
        lengths = [len(tokenizer.encode(f" {choice}").ids) for choice in row["choices"]]
        each = [RIGHT if choice == row["capital"] else WRONG for choice in row["choices"]]
        expected = [length * value for length, value in zip(lengths, each, strict=True)]
        assert [score for score, _ in scores] == pytest.approx(expected)
        assert [greedy for _, greedy in scores] == [value == RIGHT for value in each]


@pytest.mark.parametrize(
    ("flags", "arguments"),
    [((), {}), (("--batch_size", "4"), {"num_concurrent": 2})],
    ids=["one by one", "concurrent batches"],
)
async def test_local_completions(mocked, evaluate, tokenizer, flags, arguments):
    server, engine = mocked
    completions = ("local-completions", "/v1/completions", ["capital_choice", "capital_text"])
    evaluation = await evaluate(server, *completions, *flags, **arguments)
    check_choices(evaluation, tokenizer)
    assert evaluation.metrics["capital_text"]["exact_match,none"] == 1.0
    # Nine choices and three texts, each once.
    assert len(engine.adds) == 12


async def test_local_chat_completions(mocked, evaluate):
    server, engine = mocked
    chat = ("local-chat-completions", "/v1/chat/completions", ["capital_chat"])
    evaluation = await evaluate(server, *chat, "--apply_chat_template")
    answers = [sample["resps"] for sample in evaluation.samples["capital_chat"]]
    assert answers == [[[row["capital"]]] for row in CAPITALS]
    assert evaluation.metrics["capital_chat"]["exact_match,none"] == 1.0
    assert len(engine.adds) == 3


async def test_the_real_engine_knows_the_capitals(evaluate):
    flags = ("--python", ENGINE_PYTHON, "--max-model-len", 512, "--dtype", "float32")
    async with umbel(*flags, TOKENIZER_FLAG) as line:
        match = await line(r"umbel: (\S+) is served at (http://\S+)")
        server = Server(match[2], match[1])
        tasks = ["capital_choice", "capital_text"]
        evaluation = await evaluate(server, "local-completions", "/v1/completions", tasks)
        assert evaluation.metrics["capital_choice"]["acc,none"] == 1.0
        assert evaluation.metrics["capital_text"]["exact_match,none"] == 1.0
        chat = ("local-chat-completions", "/v1/chat/completions", ["capital_chat"])
        evaluation = await evaluate(server, *chat, "--apply_chat_template")
        answers = [sample["resps"][0][0] for sample in evaluation.samples["capital_chat"]]
        known = [row["capital"] in text for row, text in zip(CAPITALS, answers, strict=True)]
        assert known == [True, True, True]
