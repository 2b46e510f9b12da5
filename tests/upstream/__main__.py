"""Run vLLM's own tests against umbel; `python -m tests.upstream --help`."""

import argparse
import fnmatch
import json
import os
import shutil
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

from umbel_engine.sample_model import prepare_sample_model, user_cache

from . import environment, outcomes
from .scenario import write_scenario

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
ENGINE_PYTHON = ROOT / ".venv-engine" / "bin" / "python"


def main():
    """Run the tests that were chosen; gives 1 when one ends otherwise than the table says."""
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    options = parse_options()
    if options.reference and options.update:
        sys.exit("the table is about umbel: --reference and --update exclude each other")
    table = outcomes.read()
    if options.write_document:
        outcomes.DOCUMENT.write_text(outcomes.document_text(table))
        return 0
    plan = tomllib.loads((HERE / "modules.toml").read_text())
    folder = options.folder or user_cache() / "upstream-tests"
    folder.mkdir(parents=True, exist_ok=True)
    source = options.vllm_source or environment.find_source(plan["vllm"], folder, ENGINE_PYTHON)
    for_tests = environment_of_tests(plan, folder, source)
    results = {}
    for run in plan["run"]:
        tests = chosen(run["modules"], options.modules)
        if tests and options.engine in (None, run["engine"]):
            report = folder / f"report-{run['engine']}.json"
            report.unlink(missing_ok=True)
            # Against the reference, the tests that are left out otherwise are of interest.
            left_out = [] if options.reference else outcomes.left_out(table) + elsewhere(run, plan)
            settings = settings_of(run, plan, folder, report)
            settings |= {"reference": options.reference, "left_out": left_out}
            for_tests["UMBEL_UPSTREAM"] = json.dumps(settings)
            run_pytest(tests, source, for_tests, options.keyword)
            results |= json.loads(report.read_text())
    return judge(table, results, options.update)


def environment_of_tests(plan, folder, source):
    """Give the environment variables of the process that runs the tests."""
    site = environment.install(folder / "site", environment.REQUIREMENTS, ENGINE_PYTHON)
    names = [*plan["models"], *plan["adapters"]]
    hub = environment.make_hub_cache(folder / "hub-cache", names, prepare_sample_model())
    bin_folder = environment.make_command(folder / "bin", ENGINE_PYTHON)
    return {
        **os.environ,
        "PATH": os.pathsep.join((str(bin_folder), os.environ.get("PATH", os.defpath))),
        "PYTHONPATH": os.pathsep.join(map(str, (HERE / "plugin", site, source))),
        "PYTHONDONTWRITEBYTECODE": "1",
        "HF_HOME": str(hub),
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
    }


def parse_options():
    parser = argparse.ArgumentParser(prog="python -m tests.upstream", description=__doc__)
    parser.add_argument(
        "modules", nargs="*", metavar="PATTERN", help="run modules like *test_chat.py only"
    )
    parser.add_argument("-k", dest="keyword", help="run tests that match, as pytest has it")
    parser.add_argument(
        "--engine", choices=["real", "mock", "none"], help="run those of one engine only"
    )
    parser.add_argument(
        "--vllm-source",
        type=Path,
        default=os.environ.get("UMBEL_VLLM_SOURCE"),
        help="unpacked source distribution of vLLM (fetched from the package index)",
    )
    parser.add_argument("--folder", type=Path, help="where things are kept (the user's cache)")
    parser.add_argument(
        "--reference",
        action="store_true",
        help="run them against vLLM's own server, with the same engine and model, for comparison",
    )
    parser.add_argument("--update", action="store_true", help="write the outcomes to the table")
    parser.add_argument(
        "--write-document", action="store_true", help="run nothing, write docs/upstream-tests.md"
    )
    return parser.parse_args()


def chosen(modules, patterns):
    """Give the modules that match one of the patterns, all if there are none."""
    if not patterns:
        return modules
    return [name for name in modules if any(fnmatch.fnmatch(name, p) for p in patterns)]


def elsewhere(run, plan):
    """Give the single tests that other runs are for."""
    others = [other for other in plan["run"] if other is not run]
    return [test for other in others for test in other["modules"] if "::" in test]


def settings_of(run, plan, folder, report):
    """Give what the plugin is told; see plugin/stand_in.py."""
    logs = folder / "logs"
    logs.mkdir(exist_ok=True)
    return {
        "umbel": command("umbel"),
        "mock_engine": command("umbel-mock-engine"),
        "engine_python": str(ENGINE_PYTHON),
        "engine": run["engine"],
        "models": plan["models"],
        "fresh": run.get("fresh", []),
        "logs": str(logs),
        "scenario": str(write_scenario(folder / "scenario.json", prepare_sample_model())),
        "report": str(report),
    }


def command(name):
    """Give the path of a command of this environment."""
    beside = Path(sys.executable).with_name(name)
    return str(beside if beside.is_file() else shutil.which(name))


def run_pytest(tests, source, for_tests, keyword):
    arguments = [ENGINE_PYTHON, "-m", "pytest", "-c", HERE / "plugin" / "pytest.ini"]
    arguments += ["--rootdir", source, "-p", "no:cacheprovider"]
    if keyword:
        arguments += ["-k", keyword]
    process = subprocess.Popen([*arguments, *tests], cwd=source, env=for_tests)
    try:
        status = process.wait()
    except BaseException:
        # It stops the servers that it started.
        process.send_signal(signal.SIGINT)
        process.wait()
        raise
    # 1: tests have failed, which is judged later; 5: all of them were left out.
    if status not in (0, 1, 5):
        sys.exit(f"pytest ended with status {status}")


def judge(table, results, update):
    """Compare what happened with the table, or write it there."""
    if update:
        outcomes.update(table, results)
        outcomes.write(table)
        outcomes.DOCUMENT.write_text(outcomes.document_text(table))
        return 0
    lines = outcomes.differences(table, results)
    if outcomes.DOCUMENT.read_text() != outcomes.document_text(table):
        lines.append(f"{outcomes.DOCUMENT.name} is not that of the table: --write-document")
    print(*lines, sep="\n")
    print(f"{len(results)} tests, {len(lines)} differences from the table")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
