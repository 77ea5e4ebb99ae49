# SPDX-License-Identifier: MIT
"""Tells when a file is saved, for ./lab check --watch: inotify(7), by way of libc."""
from __future__ import annotations

import ctypes
import os
import struct
from pathlib import Path
from typing import Iterator

IN_CLOSE_WRITE, IN_MOVED_TO = 0x8, 0x80  # <sys/inotify.h>
HEADER = struct.Struct("iIII")  # struct inotify_event without its name


def saves(path: Path) -> Iterator[None]:
    """Returns each time that `path` has been saved since the last time; several saves meanwhile
    count once. The first call starts the watch and returns at once.

    An editor may write the file, or a new one that it renames: so the folder is watched."""
    libc = ctypes.CDLL(None, use_errno=True)
    watch = libc.inotify_init1(os.O_CLOEXEC)
    if (
        watch < 0
        or libc.inotify_add_watch(watch, os.fsencode(path.parent), IN_CLOSE_WRITE | IN_MOVED_TO) < 0
    ):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), str(path.parent))
    try:
        yield
        while True:
            if path.name in _names(os.read(watch, 65536)):
                yield
    finally:
        os.close(watch)


def _names(events: bytes) -> "set[str]":
    names, at = set(), 0
    while at < len(events):
        length = HEADER.unpack_from(events, at)[3]
        at += HEADER.size
        names.add(os.fsdecode(events[at : at + length].rstrip(b"\0")))
        at += length
    return names
