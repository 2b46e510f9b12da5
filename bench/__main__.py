"""`python -m bench`: measure umbel, and other frontends beside it where they are installed."""

import argparse
import asyncio
import os
import platform
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from importlib.metadata import version
from pathlib import Path

from bench.frontends import (
    Frontend,
    Running,
    running,
    smg,
    umbel,
    vllm_python,
    vllm_rust,
    write_scenario,
)
from bench.loads import LOADS, Load
from bench.measure import measure
from bench.plot import plot
from bench.results import Results, Rounds, ratios, save, starts, tables
from umbel_engine.sample_model import prepare_sample_model

PLOTS = {
    "cpu-per-token": ("cpu_us", "CPU µs per output token (less is better)", ("A", "B", "P")),
    "cpu-per-request": ("cpu_us_per_request", "CPU µs per request (less is better)", ("R",)),
    "tokens-per-second": ("tokens_per_second", "tokens per second (more is better)", ("S1", "S8")),
}
"""By file name: a figure, its title, and the loads that it says something about."""

FRONTENDS = ("umbel", "umbel-2", "rust", "smg", "python")


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description="Measure what umbel uses and gives under load, next to other frontends. Every "
        "frontend gets a mock engine and the same requests; rounds are interleaved.",
    )
    names = [load.name for load in LOADS]
    parser.add_argument("--loads", nargs="+", choices=names, default=names, metavar="LOAD")
    parser.add_argument("--frontends", nargs="+", choices=FRONTENDS, default=list(FRONTENDS))
    parser.add_argument("--rounds", type=int, default=3, help="of each load (%(default)s)")
    parser.add_argument("--vllm-rs", type=Path, help="the executable of vLLM's Rust frontend")
    parser.add_argument("--smg", type=Path, help="the command smg")
    parser.add_argument("--output", type=Path, help="a folder for the figures and the plots")
    parser.epilog = "Loads: " + "; ".join(f"{load.name}: {load.about}" for load in LOADS) + "."
    return parser.parse_args()


def main() -> None:
    """Measure, and print tables in Markdown."""
    options = arguments()
    frontends = chosen(options)
    loads = [load for load in LOADS if load.name in options.loads]
    results = asyncio.run(run(loads, frontends, options.rounds))
    print(f"{results.machine}; medians of {options.rounds} rounds\n")
    print(tables(results))
    print(ratios(results))
    print(f"\nFrom start to ready: {starts(results)}.")
    if options.output is not None:
        options.output.mkdir(parents=True, exist_ok=True)
        save(results, options.output / "performance.json")
        draw(results, options.output)


def draw(results: Results, folder: Path) -> None:
    """Draw a plot of each kind of figure whose loads were run."""
    for name, (figure, title, loads) in PLOTS.items():
        shown = [load for load in loads if load in results.rounds]
        if shown:
            plot(results, figure, title, shown, folder / f"{name}.png")


def chosen(options: argparse.Namespace) -> list[Frontend]:
    """Give the frontends that are wanted and installed; tells of the others."""
    makers = {
        "umbel": umbel,
        "umbel-2": lambda: umbel(2),
        "rust": lambda: vllm_rust(options.vllm_rs),
        "smg": lambda: smg(options.smg),
        "python": vllm_python,
    }
    frontends = [makers[name]() for name in options.frontends]
    for frontend in frontends:
        if frontend.command is None:
            print(f"{frontend.name} is left out: {frontend.missing}", file=sys.stderr)
    return [frontend for frontend in frontends if frontend.command is not None]


async def run(loads: Sequence[Load], frontends: Sequence[Frontend], rounds: int) -> Results:
    """Run all rounds; frontends stay up for the loads that have the same engine."""
    model = prepare_sample_model()
    results = Results({}, {}, machine())
    with tempfile.TemporaryDirectory(prefix="umbel-bench-") as folder:
        scenario = write_scenario(model, Path(folder))
        for step_ms in sorted({load.step_ms for load in loads}):
            same = [load for load in loads if load.step_ms == step_ms]
            async with AsyncExitStack() as stack:
                up = []
                for frontend in frontends:
                    print(f"starting {frontend.name}", file=sys.stderr)
                    context = running(frontend, model, step_ms, Path(folder), scenario)
                    up.append(await stack.enter_async_context(context))
                for item in up:
                    results.seconds_to_start[item.frontend.name] = item.seconds_to_start
                await run_rounds(same, up, rounds, results.rounds)
    return results


async def run_rounds(
    loads: Sequence[Load], up: Sequence[Running], rounds: int, results: Rounds
) -> None:
    """Run the rounds of some loads, one frontend after the other."""
    for load in loads:
        by_frontend = results.setdefault(load.name, {})
        for number in range(rounds):
            for item in up:
                measured = await measure(item, load)
                by_frontend.setdefault(item.frontend.name, []).append(measured)
                print(
                    f"{load.name}, round {number + 1}, {item.frontend.name}: "
                    f"{measured.cpu_us:.1f} µs CPU per token, "
                    f"{measured.tokens_per_second:,.0f} tokens/s",
                    file=sys.stderr,
                )


def machine() -> str:
    """Say where and when this is run."""
    processor = platform.processor() or platform.machine()
    with open("/proc/cpuinfo") as file:
        names = [line.partition(":")[2].strip() for line in file if line.startswith("model name")]
    return (
        f"{time.strftime('%Y-%m-%d')}: {os.cpu_count()} cores of {names[0] if names else processor}, "
        f"Linux {platform.release()}, Python {platform.python_version()}, "
        f"umbel {version('umbel-server')}"
    )


if __name__ == "__main__":
    main()
