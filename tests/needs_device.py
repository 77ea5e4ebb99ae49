"""For tests that need an RDMA device: finds it once, skips the whole file where there is none.

LAB_REQUIRE_DEVICE=1, which CI sets, makes a skip a failure.
"""
from __future__ import annotations

import os
import sys
import unittest
from pathlib import Path

from lab import kbuild, place
from lab.paths import ROOT

os.environ.setdefault("LAB_PROGRESS", "off")  # what the tests run is not the reader's progress
BUILD = Path(os.environ.get("LAB_BUILD", ROOT / "build"))


def find() -> place.Place:
    try:
        return place.find_place()
    except place.NoDevice as error:  # and nothing else: a machine that does not boot is a failure
        if os.environ.get("LAB_REQUIRE_DEVICE"):
            raise
        print(f"skipped: {error}")
        sys.exit(77)


PLACE = find()


def why_not(lesson) -> str:
    """Why an example cannot be run here although there is a device; "" if it can. A kernel module wants the emulated machine, and the
    headers of its kernel. Where LAB_REQUIRE_DEVICE is set it can, so a test fails."""
    if lesson.kind != "kernel" or os.environ.get("LAB_REQUIRE_DEVICE"):
        return ""
    return kbuild.why_not()


def program(name: str) -> str:
    return str(BUILD / "examples" / name)


def main() -> None:
    unittest.main(verbosity=2)
