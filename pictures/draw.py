# SPDX-License-Identifier: MIT
"""Draws the pictures of the lessons. Each page has a folder here; each of its NAME.py, and each of
its recorded runs (trace.txt, NAME_trace.txt), becomes NAME.svg.

    python3 pictures/draw.py            draws all of them
    python3 pictures/draw.py --check    fails if a committed picture is not what its source draws

They are drawn with tools/drawing.
"""
from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent.parent / "tools"))

from drawing.gallery import FOLDER, drawn, sources  # noqa: E402


def main() -> int:
    stale, failed = [], False
    for source in sources():
        target = source.with_suffix(".svg")
        try:
            svg = drawn(source)
        except FileNotFoundError as error:
            print(
                (
                    f"{source.relative_to(FOLDER)} needs {error.filename}: ./lab bench --publish"
                    " writes the measurements"),
                file=sys.stderr)
            failed = True
            continue
        if not target.exists() or target.read_text() != svg:
            stale.append(target.relative_to(FOLDER))
            if "--check" not in sys.argv:
                target.write_text(svg)
    print(
        *(f"{'stale' if '--check' in sys.argv else 'drew'} {name}" for name in stale),
        sep="\n" if stale else "")
    return 1 if failed or stale and "--check" in sys.argv else 0


if __name__ == "__main__":
    sys.exit(main())
