# SPDX-License-Identifier: MIT
"""Ends a test that cannot run here."""
from __future__ import annotations

import os
import sys
from typing import Callable, NoReturn, TypeVar

from lab import place

Found = TypeVar("Found")


def skip(why: object) -> NoReturn:
    """Skips the whole file. LAB_REQUIRE_DEVICE=1, which CI sets, makes the skip a failure."""
    print(f"skipped: {why}")
    sys.exit(1 if os.environ.get("LAB_REQUIRE_DEVICE") else 77)


def found_or_skip(find: "Callable[[], Found]") -> Found:
    """What `find` returns. Skips the file if there is no device. Any other error is a failure: a
    machine that does not boot, for example."""
    try:
        return find()
    except place.NoDevice as error:
        skip(error)
