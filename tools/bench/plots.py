# SPDX-License-Identifier: MIT
"""The plots of a run of ./lab bench, drawn by the same sources as the lesson's:
pictures/29_results/*.py."""
from __future__ import annotations

from pathlib import Path

from bench.measured import Measured
from drawing import gallery

FOLDER = gallery.FOLDER / "29_results"  # the lesson's pictures
# plot -> what it shows
GROUP = {"latency": "latency", "groups": "groups", "processes": "requests", "cpu": "requests"}


def drawn(plot: str, measured: Measured) -> str:
    """One plot as SVG."""
    return gallery.drawn(FOLDER / f"{plot}.py", measured)


def draw_all(results_folder: Path, into: Path) -> list[Path]:
    """Draws what the run has measured: latency.svg and so on. @return the files written"""
    measured = Measured.of(results_folder)
    groups, written = {row.group for row in measured.rows}, []
    for plot, group in GROUP.items():
        if group in groups:
            written.append(into / f"{plot}.svg")
            written[-1].write_text(drawn(plot, measured))
    return written
