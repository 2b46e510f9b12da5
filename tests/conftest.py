"""Documents as tests see them: their code blocks, and the programs in them."""

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import settings

# For a long run of the fuzz tests by hand, with examples that are new each time:
#   pytest tests/server/test_fuzz.py --hypothesis-profile thorough -o faulthandler_timeout=0
settings.register_profile("thorough", max_examples=20_000, derandomize=False)

ROOT = Path(__file__).resolve().parent.parent

BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    """A code block of a document."""

    language: str
    text: str


@pytest.fixture
def document_text() -> Callable[[str], str]:
    """Give the text of a document, named by its path in the repository."""
    return lambda path: (ROOT / path).read_text()


@pytest.fixture
def blocks_of() -> Callable[[str], list[Block]]:
    """Give the code blocks of a document."""

    def blocks_of(path: str) -> list[Block]:
        return [Block(*match) for match in BLOCK.findall((ROOT / path).read_text())]

    return blocks_of


@pytest.fixture
def programs_of(blocks_of: Callable[[str], list[Block]]) -> Callable[[str], list[tuple[str, str]]]:
    """Give the Python programs of a document, each with the output that is stated after it."""

    def programs_of(path: str) -> list[tuple[str, str]]:
        blocks = blocks_of(path)
        programs = []
        for block, following in zip(blocks, [*blocks[1:], Block("", "")], strict=True):
            if block.language == "python":
                assert following.language == "text", "the output of a program must follow it"
                programs.append((block.text, following.text))
        assert programs
        return programs

    return programs_of


@pytest.fixture
def run_program(tmp_path: Path) -> Callable[..., str]:
    """Run a Python program in a process of its own, warnings being errors; gives what it prints."""

    def run_program(source: str, *arguments: str) -> str:
        path = tmp_path / "program.py"
        path.write_text(source)
        finished = subprocess.run(
            [sys.executable, "-W", "error", path, *arguments],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert finished.returncode == 0, finished.stderr
        return finished.stdout

    return run_program
