# SPDX-License-Identifier: MIT
"""./lab bench --publish: makes a run the one that the lesson shows: its data in
tools/bench/published, the plots in pictures/, and the lesson's tables."""
from __future__ import annotations

import shutil
from pathlib import Path

from bench import cases, measured, plots
from lab.commands import sync
from lab.errors import LabError

PICTURES = plots.FOLDER
RUNS = 5  # of a case, at least


def publish(results_folder: Path) -> None:
    """Changes files of the project, which are to be looked at and committed. @raises LabError if
    the run is not fit for that"""
    run = measured.Measured.of(results_folder)
    check(run, results_folder)
    drawn = {plot: plots.drawn(plot, run) for plot in plots.GROUP}  # before anything is changed
    for name in measured.FILES:
        shutil.copyfile(results_folder / name, measured.PUBLISHED / name)
    for plot, svg in drawn.items():
        (PICTURES / f"{plot}.svg").write_text(svg)
    sync.renew()


def check(run: measured.Measured, folder: Path) -> None:
    options = run.machine.get("options") or {}
    # As they were parsed, or as they were typed.
    quick = options.get("quick") if isinstance(options, dict) else "--quick" in options
    runs = min((row.runs for row in run.rows if row.state == "ok"), default=0)
    missing = [group for group in cases.GROUPS if group not in {row.group for row in run.rows}]
    if quick:
        why = "a --quick run says too little"
    elif missing:
        why = f"it has not measured {', '.join(missing)}"
    elif runs < RUNS:
        why = f"a case has {runs} runs, and {RUNS} are wanted"
    else:
        return
    raise LabError(f"{folder} is not published: {why}")
