"""The runner of the mutants must not call a mutant killed when it is not."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = "packages/engine/src/umbel_engine/errors.py"
CLASS = "class EngineError(Exception):"


@pytest.fixture
def run_mutant(tmp_path: Path, root: Path):
    """Run the runner on one mutant of EngineError, with tests of mutant_cases.py."""

    def run(
        *tests: str,
        old: str = CLASS,
        new: str = "class EngineError(ValueError):",
        timeout: float = 60,
    ) -> subprocess.CompletedProcess[str]:
        table = tmp_path / "mutants.toml"
        names = json.dumps([f"tests/packaging/mutant_cases.py::{test}" for test in tests])
        table.write_text(
            f'[[mutant]]\nname = "a mutant"\ntests = {names}\n'
            f"[[mutant.edits]]\nfile = {SOURCE!r}\nold = {old!r}\nnew = {new!r}\n"
        )
        command = [sys.executable, root / "scripts/mutants.py", "--table", table]
        command.append(f"--timeout={timeout}")
        return subprocess.run(command, capture_output=True, text=True, check=False)

    return run


def test_a_mutant_that_its_test_notices_is_killed(run_mutant, root: Path):
    before = (root / SOURCE).read_text()
    result = run_mutant("test_that_notices")
    assert result.returncode == 0, result.stdout + result.stderr
    assert "a mutant: killed" in result.stdout
    assert "1 of 1 mutants killed" in result.stdout
    assert (root / SOURCE).read_text() == before


def test_a_mutant_that_one_of_its_tests_does_not_notice_survives(run_mutant):
    result = run_mutant("test_that_notices", "test_that_does_not_notice")
    assert result.returncode == 1
    assert "NOT killed: survives tests/packaging" in result.stdout
    assert "0 of 1 mutants killed" in result.stdout


def test_a_mutant_that_does_not_apply_is_not_killed(run_mutant):
    result = run_mutant("test_that_notices", old="class NoSuchError(Exception):")
    assert result.returncode == 1
    assert "NOT killed: does not apply" in result.stdout


def test_a_mutant_that_applies_twice_is_not_killed(run_mutant):
    result = run_mutant("test_that_notices", old="class ", new="class  ")
    assert result.returncode == 1
    assert "instead of once" in result.stdout


def test_a_mutant_that_cannot_be_imported_is_not_killed(run_mutant):
    result = run_mutant("test_that_notices", new="class EngineError(")
    assert result.returncode == 1
    assert "NOT killed: breaks the run of its tests" in result.stdout


def test_a_mutant_that_makes_its_test_hang_is_not_killed(run_mutant):
    result = run_mutant("test_that_hangs", timeout=10)
    assert result.returncode == 1
    assert "instead of failing" in result.stdout


def test_a_named_test_that_does_not_exist_is_an_error(run_mutant):
    result = run_mutant("test_that_is_not_there")
    assert result.returncode == 1
    assert "do not pass on the unbroken source" in result.stderr
