"""Record what vLLM's Python server answers to the table.

    python -m tests.parity.mock.record              # every row
    python -m tests.parity.mock.record logprobs     # the rows of one file
    python -m tests.parity.mock.record --new        # rows that have no answer yet

It runs from the repository's folder, in the environment `.venv`.  vLLM's server comes from the
source distribution of the package, which is fetched from the package index into the user's cache
at the first time, and runs in the environment `.venv-engine` (`make engine`).  Every row is asked
twice: an answer that does not come out the same both times is not recorded.
"""

import argparse
import asyncio
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import aiohttp

from umbel_engine.sample_model import user_cache

from . import recorded
from .driver import Driver, RowError
from .model import write_models
from .servers import ServerError, vllm
from .table import TABLE

VERSION = "0.33.0"

ENGINE_PYTHON = Path(__file__).parents[3] / ".venv-engine" / "bin" / "python"


class Reference:
    """vLLM's server as a source tree, with what it needs next to it."""

    def __init__(self, folder, source=None, python=ENGINE_PYTHON):
        self._folder = folder
        self._source = source or folder / f"vllm-{VERSION}"
        self._libraries = folder / "libraries"
        self.python = python

    @property
    def environment(self):
        """What the environment of its process needs."""
        return {
            "PYTHONPATH": f"{self._libraries}{os.pathsep}{self._source}",
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONUNBUFFERED": "1",
            "HF_HUB_OFFLINE": "1",
            "VLLM_NO_USAGE_STATS": "1",
            "VLLM_CPU_KVCACHE_SPACE": "1",
        }

    def prepare(self):
        """Fetch what is not there yet."""
        if not self.python.is_file():
            sys.exit("there is no environment for the engine: make engine")
        if not (self._libraries / "orjson").is_dir():
            self._pip("install", "--no-deps", "--target", self._libraries, "orjson")
        if not self._source.is_dir():
            self._fetch()

    def _fetch(self):
        """Let pip fetch and unpack the source; what it needs to be built is not there, nor needed."""
        self._folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=self._folder) as folder:
            pip = self._pip(
                *("download", "--no-deps", "--no-binary", "vllm", "--no-build-isolation"),
                *("--no-clean", "--dest", folder, f"vllm=={VERSION}"),
                check=False,
                env={**os.environ, "TMPDIR": folder},
            )
            found = [path.parents[1] for path in Path(folder).glob("*/*/vllm/version.py")]
            if len(found) != 1:
                sys.exit(f"the source of vLLM {VERSION} could not be had:\n{pip.stderr}")
            found[0].rename(self._source)

    def _pip(self, *arguments, **options):
        command = [self.python, "-m", "pip", "--disable-pip-version-check", "-qq", *arguments]
        options = {"check": True, "capture_output": True, "text": True, **options}
        return subprocess.run(command, **options)


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("files", nargs="*", help="which files to record (all)")
    parser.add_argument("--new", action="store_true", help="rows without an answer only")
    parser.add_argument("--rows", help="rows whose names contain this only")
    parser.add_argument("--source", type=Path, help=f"a source tree of vLLM {VERSION}")
    parsed = parser.parse_args(arguments)
    unknown = set(parsed.files) - TABLE.keys()
    if unknown:
        parser.error(f"no such files: {', '.join(sorted(unknown))}; there are {', '.join(TABLE)}")
    reference = Reference(user_cache() / "reference", parsed.source)
    reference.prepare()
    answers = {name: stored(name) for name in TABLE}
    wanted = [
        (name, row)
        for name, rows in TABLE.items()
        if not parsed.files or name in parsed.files
        for row in rows
        if not (parsed.new and row.name in answers[name])
        if not parsed.rows or parsed.rows in row.name
    ]
    failures = asyncio.run(record(reference, wanted, answers))
    for failure in failures:
        print(failure)
    return 1 if failures else 0


def stored(name):
    """Give the recorded answers of a file, without those of rows that are no more."""
    path = recorded.FOLDER / f"{name}.json"
    found = recorded.read(path) if path.exists() else {}
    names = [row.name for row in TABLE[name]]
    return {name: found[name] for name in names if name in found}


async def record(reference, wanted, answers):
    """Record rows, one server after the other; gives what went wrong."""
    failures = []
    with tempfile.TemporaryDirectory() as folder:
        models = write_models(Path(folder))
        for group in dict.fromkeys(row.server for _, row in wanted):
            print(f"starting the server {group!r}")
            rows = [(name, row) for name, row in wanted if row.server == group]
            try:
                async with (
                    vllm(group, models, reference) as (base, engine),
                    Driver.connect(base, engine) as driver,
                ):
                    for name, row in rows:
                        failures += await record_row(driver, row, answers[name])
            except (ServerError, RuntimeError) as error:
                failures.append(f"{group}: {error}")
            write(answers)
    return failures


def write(answers):
    for name, found in answers.items():
        ordered = {row.name: found[row.name] for row in TABLE[name] if row.name in found}
        recorded.write(recorded.FOLDER / f"{name}.json", ordered)


async def record_row(driver, row, answers):
    try:
        once, again = await driver.ask(row), await driver.ask(row)
    except (RowError, aiohttp.ClientPayloadError) as error:
        return [f"{row.name}: {error}"]
    if once != again:
        return [f"{row.name}: not the same twice\n  {once}\n  {again}"]
    answers[row.name] = once
    return []


if __name__ == "__main__":
    sys.exit(main())
