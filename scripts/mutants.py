"""Break a copy of the source in known ways, and show that the named tests fail on each.

    mutants.py [--only TEXT] [--table FILE] [--workers N] [--timeout SECONDS]

The table is a TOML file with entries of this shape:

    [[mutant]]
    name = "what is wrong in it"
    tests = ["tests/engine/test_samples.py::test_what_must_hold"]

    [[mutant.edits]]
    file = "packages/engine/src/umbel_engine/samples.py"
    old = "text that stands in the file exactly once"
    new = "text that takes its place"

First all named tests must pass on an unbroken copy.  Then a mutant counts as killed when every one of
its tests fails, a parametrized test in at least one of its cases.  The exit status is 1 when one
survives, does not apply, or breaks the run of the tests instead of failing them.
"""

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

ROOT = Path(__file__).resolve().parent.parent

TESTS_FAILED = 1
"""The exit status of pytest when tests ran and some failed; others say that the run broke."""

SECONDS_PER_TEST = 60
"""Until a test that waits for what a mutant keeps from happening has failed."""

UNBROKEN_WITHIN = 300.0
"""Seconds per mutant in which the tests must pass on the unbroken source."""


class MutantError(Exception):
    """The table or a mutant in it cannot be used as it stands."""


@dataclass(frozen=True)
class Edit:
    """One textual replacement."""

    file: str
    old: str
    new: str


@dataclass(frozen=True)
class Mutant:
    """A named way to break the source, and the tests that must notice it."""

    name: str
    tests: tuple[str, ...]
    edits: tuple[Edit, ...]


@dataclass(frozen=True)
class Outcome:
    """What became of a mutant; `problem` is empty when it was killed."""

    mutant: Mutant
    seconds: float
    problem: str
    output: str = ""


def read_table(table: Path) -> list[Mutant]:
    """Read the mutants of a table; every one needs a name of its own, tests and edits."""
    entries = tomllib.loads(table.read_text()).get("mutant", [])
    mutants = []
    for entry in entries:
        try:
            edits = tuple(Edit(**edit) for edit in entry["edits"])
            mutant = Mutant(entry["name"], tuple(entry["tests"]), edits)
        except (KeyError, TypeError) as error:
            raise MutantError(f"{table.name}: an entry is incomplete: {entry}") from error
        if not mutant.tests or not mutant.edits:
            raise MutantError(f"{table.name}: {mutant.name!r} has no tests or no edits")
        mutants.append(mutant)
    if len({mutant.name for mutant in mutants}) != len(mutants):
        raise MutantError(f"{table.name}: two mutants have the same name")
    return mutants


def apply(edit: Edit, root: Path) -> None:
    """Replace the text in the file below `root`; it must be there exactly once."""
    path = root / edit.file
    if not path.is_file():
        raise MutantError(f"{edit.file} does not exist")
    text = path.read_text()
    if (count := text.count(edit.old)) != 1:
        raise MutantError(f"{edit.file}: the old text stands there {count} times instead of once")
    if edit.new == edit.old:
        raise MutantError(f"{edit.file}: the new text is the old one")
    path.write_text(text.replace(edit.old, edit.new))


@contextmanager
def source_copy(edits: Sequence[Edit]) -> Iterator[Path]:
    """Copy the packages' sources into a folder that is gone afterwards, and edit them there."""
    with tempfile.TemporaryDirectory(prefix="umbel-mutant-") as name:
        copy = Path(name)
        for source in sorted(ROOT.glob("packages/*/src")):
            ignore = shutil.ignore_patterns("__pycache__")
            shutil.copytree(source, copy / source.relative_to(ROOT), ignore=ignore)
        for edit in edits:
            apply(edit, copy)
        yield copy


def run(command: Sequence[str], sources: Path, timeout: float) -> tuple[int | None, str]:
    """Run Python on the copied sources; gives the exit status, None past the timeout, and the output.

    What is installed stays importable, but the copy comes first.
    """
    folders = [str(folder) for folder in sorted(sources.glob("packages/*/src"))]
    environment = dict(
        os.environ,
        PYTHONPATH=os.pathsep.join(folders),
        # A failing example would be remembered and tried first on the unbroken source.
        HYPOTHESIS_STORAGE_DIRECTORY=str(sources / "hypothesis"),
    )
    # A file, because a process that outlives the tests would hold a pipe open.
    with (sources / "output").open("w+") as output:
        process = subprocess.Popen(
            [sys.executable, *command],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            status: int | None = process.wait(timeout)
        except subprocess.TimeoutExpired:
            status = None
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        output.seek(0)
        return status, output.read()


def run_tests(tests: Sequence[str], sources: Path, timeout: float) -> tuple[int | None, str]:
    """Run tests on the copied sources, with one summary line for each that fails."""
    options = ["-m", "pytest", "-p", "no:cacheprovider", "--color=no", "-rf", "--tb=short"]
    options.append(f"--timeout={SECONDS_PER_TEST}")
    return run([*options, *tests], sources, timeout)


def check_copy_is_tested(sources: Path) -> None:
    """Make sure that an import finds the copy rather than what is installed."""
    for package in sorted(sources.glob("packages/*/src/*/__init__.py")):
        script = f"import importlib.util as u; print(u.find_spec({package.parent.name!r}).origin)"
        _, output = run(["-c", script], sources, timeout=60)
        if output.strip() != str(package):
            raise MutantError(f"the tests would not run on the copy of {package.parent.name}")


def check_unbroken(tests: Sequence[str], timeout: float) -> None:
    """Make sure that the tests pass as long as nothing is broken."""
    with source_copy([]) as sources:
        check_copy_is_tested(sources)
        status, output = run_tests(tests, sources, timeout)
    if status != 0:
        raise MutantError(f"the named tests do not pass on the unbroken source:\n{output}")


def failed_tests(output: str, tests: Sequence[str]) -> set[str]:
    """Tell which of the named tests have a line of their own among the failures."""
    lines = [line.removeprefix("FAILED ") for line in output.splitlines() if "FAILED " in line]
    # A name ends here, or goes on with a case, a test of the named file or class, or the message.
    ends = ("[", "::", " ")
    return {
        test
        for test in tests
        if any(line == test or line.startswith(tuple(test + end for end in ends)) for line in lines)
    }


def try_mutant(mutant: Mutant, timeout: float) -> Outcome:
    """Break a copy and run the mutant's tests on it."""
    start = monotonic()
    output = ""
    try:
        with source_copy(mutant.edits) as sources:
            status, output = run_tests(mutant.tests, sources, timeout)
    except MutantError as error:
        problem = f"does not apply: {error}"
    else:
        passed = sorted(set(mutant.tests) - failed_tests(output, mutant.tests))
        if status is None:
            problem = f"its tests took more than {timeout:g} s instead of failing"
        elif status == 0:
            problem = "survives"
        elif status != TESTS_FAILED:
            problem = f"breaks the run of its tests (pytest's status {status})"
        elif passed:
            problem = f"survives {', '.join(passed)}"
        else:
            problem = ""
    return Outcome(mutant, monotonic() - start, problem, output)


def show(outcome: Outcome) -> None:
    """Print the row of a mutant, and the tests' output when it was not killed."""
    verdict = f"NOT killed: {outcome.problem}" if outcome.problem else "killed"
    print(f"{outcome.seconds:6.1f} s  {outcome.mutant.name}: {verdict}", flush=True)
    for test in outcome.mutant.tests:
        print(f"          by {test}" if not outcome.problem else f"          {test}", flush=True)
    if outcome.problem and outcome.output:
        print(outcome.output, flush=True)


def try_all(mutants: Sequence[Mutant], workers: int, timeout: float) -> int:
    """Try every mutant; gives how many were not killed."""
    tests = sorted({test for mutant in mutants for test in mutant.tests})
    start = monotonic()
    # All tests share one run here, so it may take as long as the mutants' runs together.
    # Passing may take as long as it takes on a busy machine; only a mutant's tests must end in time.
    check_unbroken(tests, UNBROKEN_WITHIN * len(mutants))
    print(f"{monotonic() - start:6.1f} s  the source as it stands passes all {len(tests)} tests")
    not_killed = 0
    with ThreadPoolExecutor(workers) as pool:
        for outcome in pool.map(lambda mutant: try_mutant(mutant, timeout), mutants):
            show(outcome)
            not_killed += bool(outcome.problem)
    print(f"{len(mutants) - not_killed} of {len(mutants)} mutants killed")
    return not_killed


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--only", default="", help="try the mutants with this text in their name")
    parser.add_argument("--table", type=Path, default=ROOT / "tests/mutants.toml")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--timeout", type=float, default=300.0, help="seconds for each mutant")
    arguments = parser.parse_args()
    try:
        mutants = [
            mutant for mutant in read_table(arguments.table) if arguments.only in mutant.name
        ]
        if not mutants:
            raise MutantError("there are no mutants to try")
        not_killed = try_all(mutants, arguments.workers, arguments.timeout)
    except MutantError as error:
        sys.exit(f"mutants: {error}")
    sys.exit(1 if not_killed else 0)


if __name__ == "__main__":
    main()
