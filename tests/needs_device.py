"""For tests that need an RDMA device: finds it once, skips the whole file where there is none.

LAB_REQUIRE_DEVICE=1, which CI sets, makes a skip a failure.
"""
from __future__ import annotations

import os
import sys
import unittest
from pathlib import Path

from lab import place
from lab.paths import ROOT

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


def program(name: str) -> str:
    return str(BUILD / "examples" / name)


def main() -> None:
    unittest.main(verbosity=2)
