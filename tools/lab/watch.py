# SPDX-License-Identifier: MIT
"""Tells when a file is saved, for ./lab check --watch."""
from __future__ import annotations

import time
from pathlib import Path
from typing import Iterator

EVERY = 0.3  # seconds between two looks


def saves(path: Path) -> Iterator[None]:
    """Returns each time that `path` has been saved since the last time; several saves meanwhile
    count once. The first call starts the watch and returns at once."""
    seen = _state(path)
    yield
    while True:
        now = _state(path)
        if now and now != seen:
            seen = now
            yield
        time.sleep(EVERY)


def _state(path: Path) -> "tuple[int, ...]":
    """An editor may write the file, or a new one that it renames."""
    try:
        info = path.stat()
    except FileNotFoundError:  # the editor has moved the old one away
        return ()
    return info.st_ino, info.st_mtime_ns, info.st_size
