"""Bars of what frontends use and give."""

from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl

from bench.results import Results

COLOURS = {
    "umbel": "#2a7f62",
    "umbel, 2 processes": "#8ecbb3",
    "vLLM Rust": "#c1666b",
    "SMG": "#d4a24c",
    "vLLM Python": "#6b7a8f",
}


def plot(results: Results, figure: str, title: str, loads: Sequence[str], path: Path) -> None:
    """Draw one figure of all frontends, load by load, to a PNG file."""
    mpl.use("Agg")
    from matplotlib import pyplot

    canvas, axes = pyplot.subplots(1, len(loads), figsize=(3.2 * len(loads), 3.2), squeeze=False)
    for axis, load in zip(axes[0], loads, strict=True):
        names = list(results.rounds[load])
        medians = [results.median(load, name) for name in names]
        heights = [getattr(median, figure) for median in medians]
        bars = axis.bar(range(len(names)), heights, color=[COLOURS[name] for name in names])
        axis.bar_label(bars, labels=[f"{height:,.3g}" for height in heights], fontsize=8)
        axis.set_xticks(range(len(names)), names, rotation=30, ha="right", fontsize=8)
        axis.set_title(f"load {load}", fontsize=10)
        axis.spines[["top", "right"]].set_visible(False)
        axis.margins(y=0.15)
    canvas.suptitle(title, fontsize=11)
    canvas.tight_layout()
    canvas.savefig(path, dpi=110)
    pyplot.close(canvas)
