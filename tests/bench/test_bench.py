"""`python -m bench` does what its help says, on two small loads."""

import json
import re
import subprocess
import sys

import pytest

FRONTENDS = ("umbel", "umbel-2", "smg")


def run(*words):
    command = [sys.executable, "-m", "bench", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("bench")


@pytest.fixture(scope="module")
def finished(folder):
    """A run without a single peer: what is not installed is left out."""
    words = ("--loads", "R", "S8", "--rounds", "1", "--output", folder, "--smg", folder / "smg")
    return run("--frontends", *FRONTENDS, *words)


def test_it_prints_a_table_for_each_load(finished):
    assert finished.returncode == 0, finished.stderr
    tables = finished.stdout.split("\n### ")[1:]
    assert [table.partition(":")[0] for table in tables] == ["R", "S8"]
    for table in tables:
        rows = re.findall(r"^\| (umbel[^|]*) \| ([\d.]+) \|", table, re.MULTILINE)
        assert [name for name, _ in rows] == ["umbel", "umbel, 2 processes"]
        assert all(float(cpu) > 0 for _, cpu in rows)


def test_it_says_where_and_how_often_it_was_measured(finished):
    head = finished.stdout.splitlines()[0]
    assert re.search(r"^\d{4}-\d\d-\d\d: \d+ cores of .*Python 3\.", head)
    assert head.endswith("medians of 1 rounds")
    assert re.search(r"From start to ready: umbel \d+\.\d\d s, umbel, 2 processes", finished.stdout)


def test_a_peer_that_is_not_installed_is_left_out_with_a_note(finished):
    assert "SMG is left out: pip install smg==1.13.0" in finished.stderr
    assert "| SMG |" not in finished.stdout


def test_the_figures_and_the_plots_are_kept(finished, folder):
    assert finished.returncode == 0, finished.stderr
    kept = json.loads((folder / "performance.json").read_text())
    assert set(kept["rounds"]) == {"R", "S8"}
    (measured,) = kept["rounds"]["R"]["umbel"]
    assert measured["tokens_per_second"] > 0
    for name in ("cpu-per-request", "tokens-per-second"):
        assert (folder / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    # No load was run whose tokens are worth a plot of what one costs.
    assert not (folder / "cpu-per-token.png").exists()


def test_the_help_names_every_load():
    said = run("--help")
    assert said.returncode == 0
    for load in ("R", "A", "B", "S1", "S8", "N", "L", "P", "M"):
        assert f" {load}: " in " ".join(said.stdout.split())
