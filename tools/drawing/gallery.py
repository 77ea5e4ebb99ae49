# SPDX-License-Identifier: MIT
"""What the pictures in pictures/PAGE are drawn from: NAME.py defines draw() -> str, and trace.txt
or NAME_trace.txt is a run of the page's example that ./lab dev record has kept.
"""
from __future__ import annotations

import importlib.util
from pathlib import Path

from lab.paths import ROOT
from lab.wire import recording, timeline_svg

FOLDER = ROOT / "pictures"


def sources() -> list[Path]:
    """One for each picture."""
    return sorted([*FOLDER.glob("*/*.py"), *FOLDER.glob("*/*trace.txt")])


def drawn(source: Path, *of_what) -> str:
    """The picture as SVG. `of_what`: for a plot, what it shows, if not the run that is
    published."""
    if source.suffix == ".txt":
        return timeline_svg.draw(recording.Recording.load(source))
    spec = importlib.util.spec_from_file_location("picture_" + source.stem, source)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.draw(*of_what)
