"""What was measured, over all rounds: medians, tables, and the ratios that umbel is to reach."""

import json
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from bench.loads import LOADS
from bench.measure import Measured

UMBEL = "umbel"
TWO = "umbel, 2 processes"
RUST, PYTHON, SMG = "vLLM Rust", "vLLM Python", "SMG"

Rounds = dict[str, dict[str, list[Measured]]]
"""By load and frontend, one for each round."""


class Results(NamedTuple):
    """All rounds, where they were run, and how long each frontend took to start, in seconds."""

    rounds: Rounds
    seconds_to_start: dict[str, float]
    machine: str

    def median(self, load: str, frontend: str) -> Measured | None:
        """Give the median of each figure; None where there are no rounds."""
        rounds = self.rounds.get(load, {}).get(frontend)
        if not rounds:
            return None
        return Measured(*(statistics.median(column) for column in zip(*rounds, strict=True)))


class Target(NamedTuple):
    """A ratio of umbel's figure to a peer's: at most or at least the limit."""

    load: str
    peer: str
    figure: str
    limit: float
    at_most: bool = True
    own: str = UMBEL


TARGETS = (
    Target("A", RUST, "cpu_us", 1.0),
    Target("A", PYTHON, "cpu_us", 0.22),
    Target("B", RUST, "cpu_us", 0.40),
    Target("B", SMG, "cpu_us", 0.75),
    Target("B", PYTHON, "cpu_us", 0.12),
    Target("R", RUST, "cpu_us_per_request", 1.8),
    Target("R", SMG, "cpu_us_per_request", 0.8),
    Target("R", PYTHON, "cpu_us_per_request", 0.15),
    Target("S8", RUST, "tokens_per_second", 1.1, at_most=False),
    Target("S8", SMG, "tokens_per_second", 1.0, at_most=False),
    Target("S1", RUST, "tokens_per_second", 0.75, at_most=False),
    Target("S1", RUST, "tokens_per_second", 1.0, at_most=False, own=TWO),
    Target("L", PYTHON, "first_mean", 0.5),
)

WORDS = {
    "cpu_us": "CPU per token",
    "cpu_us_per_request": "CPU per request",
    "tokens_per_second": "tokens per second",
    "first_mean": "time to first token",
}

HEAD = (
    "| Frontend | CPU µs per token | CPU µs per request | tokens/s | requests/s "
    "| first token, mean / p99 ms | between tokens, mean / p99 ms | peak MiB |"
)
RULE = "|---|---|---|---|---|---|---|---|"


def tables(results: Results) -> str:
    """Write a table for each load that was measured."""
    lines: list[str] = []
    for load in LOADS:
        frontends = results.rounds.get(load.name, {})
        if not frontends:
            continue
        lines += [f"### {load.name}: {load.about}", "", HEAD, RULE]
        for name in frontends:
            median = results.median(load.name, name)
            assert median is not None
            lines.append(row(name, median))
        others = [(name, results.median(load.name, name)) for name in frontends if load.others]
        if others:
            waits = ", ".join(f"{name} {m.others_gap_max * 1e3:.0f}" for name, m in others if m)
            lines += ["", f"Longest wait of a stream beside it, in ms: {waits}."]
        lines.append("")
    return "\n".join(lines)


def row(name: str, median: Measured) -> str:
    """Write the line of one frontend."""
    cells = (
        name,
        f"{median.cpu_us:.1f}",
        f"{median.cpu_us_per_request:.0f}",
        f"{median.tokens_per_second:,.0f}",
        f"{median.requests_per_second:,.1f}",
        f"{median.first_mean * 1e3:.1f} / {median.first_p99 * 1e3:.1f}",
        f"{median.gap_mean * 1e3:.1f} / {median.gap_p99 * 1e3:.1f}",
        f"{median.peak_mib:.0f}",
    )
    return f"| {' | '.join(cells)} |"


def ratios(results: Results) -> str:
    """Write the table of the ratios that umbel is to reach."""
    lines = ["| Load | Figure | umbel / peer | Ratio | Wanted | |", "|---|---|---|---|---|---|"]
    for target in TARGETS:
        own = results.median(target.load, target.own)
        peer = results.median(target.load, target.peer)
        if own is None or peer is None:
            continue
        ratio = getattr(own, target.figure) / getattr(peer, target.figure)
        reached = ratio <= target.limit if target.at_most else ratio >= target.limit
        bound = "at most" if target.at_most else "at least"
        cells = (
            target.load,
            WORDS[target.figure],
            f"{target.own} / {target.peer}",
            f"{ratio:.2f}",
            f"{bound} {target.limit:g}",
            "reached" if reached else "**missed**",
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def starts(results: Results) -> str:
    """Say how long each frontend took to be ready, its engine apart."""
    said = (f"{name} {seconds:.2f} s" for name, seconds in results.seconds_to_start.items())
    return ", ".join(said)


def save(results: Results, path: Path) -> None:
    """Keep every round, for another look."""
    rounds: Mapping[str, Mapping[str, Sequence[dict[str, float]]]] = {
        load: {name: [item._asdict() for item in items] for name, items in frontends.items()}
        for load, frontends in results.rounds.items()
    }
    kept = {
        "machine": results.machine,
        "seconds_to_start": results.seconds_to_start,
        "rounds": rounds,
    }
    path.write_text(json.dumps(kept, indent=1) + "\n")
