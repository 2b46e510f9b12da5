"""umbel's parsers and vLLM's of the same names, on the same transcripts."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from ..chat.parsers.test_transcripts import CORPORA, Corpus
from ..chat.parsers.tokens import END_OF_TURN, backend_with
from ..chat.parsers.transcripts import TOOLS, decoded

PYTHON = Path(__file__).parents[2] / ".venv-engine/bin/python"
SIDE = Path(__file__).with_name("vllm_parsers.py")

CASES = [
    pytest.param(index, place, id=f"{corpus.tool}-{corpus.reasoning}-{transcript.name}")
    for index, corpus in enumerate(CORPORA)
    for place, transcript in enumerate(corpus.transcripts)
]

Message = tuple[str, str, list[tuple[str, object]]]


@pytest.fixture(scope="module")
def vllm_answers() -> list[list[dict[str, object]]]:
    """What vLLM's parsers make of all transcripts, in the order of the corpora."""
    asked = {"tools": TOOLS, "corpora": [_asked(corpus) for corpus in CORPORA]}
    run = subprocess.run(
        [PYTHON, SIDE],
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "HF_HUB_OFFLINE": "1", "VLLM_LOGGING_LEVEL": "ERROR"},
    )
    return json.loads(run.stdout)


def _asked(corpus: Corpus) -> dict[str, object]:
    return {
        "tool": corpus.tool,
        "reasoning": corpus.reasoning,
        "arguments": corpus.template_arguments,
        "tokenizer": backend_with(corpus.tokens).to_str(),
        "eos_token": END_OF_TURN,
        "transcripts": [
            {"text": transcript.text, "prompt": transcript.prompt}
            for transcript in corpus.transcripts
        ],
    }


@pytest.mark.parametrize(("index", "place"), CASES)
def test_both_say_the_same_or_the_difference_is_listed(
    vllm_answers: list[list[dict[str, object]]], index: int, place: int
) -> None:
    transcript = CORPORA[index].transcripts[place]
    answer = vllm_answers[index][place]
    expected = _compared((transcript.reasoning, transcript.content, list(transcript.calls)))
    theirs = {mode: _message(answer[mode]) for mode in ("whole", "streamed")}
    if transcript.differs:
        assert any(message != expected for message in theirs.values()), "they agree now"
    else:
        assert theirs == {"whole": expected, "streamed": expected}


def _message(answer: object) -> object:
    if not isinstance(answer, list):
        return answer
    reasoning, content, calls = answer
    return _compared((reasoning, content, [(name, decoded(text or "{}")) for name, text in calls]))


def _compared(message: Message) -> Message:
    """Leave out whitespace around texts, in which vLLM's two modes differ from each other."""
    reasoning, content, calls = message
    return reasoning.strip(), content.strip(), calls
