# SPDX-License-Identifier: MIT
"""The plots of a run of ./lab bench, drawn by the same sources as the lesson's:
picture/28_measure_*.py."""
from __future__ import annotations

from pathlib import Path

from drawing import gallery
from lab.measured import PREFIX, Measured

# plot -> what it shows
GROUP = {"latency": "latency", "groups": "groups", "processes": "requests", "cpu": "requests"}


def drawn(plot: str, measured: Measured) -> str:
    """One plot as SVG."""
    return gallery.drawn(gallery.FOLDER / f"{PREFIX}{plot}.py", measured)


def draw_all(results_folder: Path, into: Path) -> list[Path]:
    """Draws what the run has measured: latency.svg and so on; with several clients
    latency_CLIENT.svg for each. @return the files written"""
    measured = Measured.of(results_folder)
    clients, written = measured.clients(), []
    for client in clients:
        of_client = measured.only(client)
        groups = {row.group for row in of_client.rows}
        for plot, group in GROUP.items():
            if group in groups:
                ending = (
                    f"_{''.join(c if c.isalnum() or c in '.-' else '_' for c in client)}"
                    if len(clients) > 1
                    else ""
                )
                written.append(into / f"{plot}{ending}.svg")
                written[-1].write_text(drawn(plot, of_client))
    return written
