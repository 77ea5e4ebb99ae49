# SPDX-License-Identifier: MIT
"""Where things are kept: the project, the cache (survives), the runtime folder (does not)."""
from __future__ import annotations

import os
import stat
import zlib
from pathlib import Path

from lab.errors import LabError

ROOT = Path(__file__).resolve().parents[2]
WORK = ROOT / "work"  # the reader's copies, for the exercises that change a lesson's program


def build_folder() -> Path:
    return Path(os.environ.get("LAB_BUILD", ROOT / "build"))


def cache_folder() -> Path:
    """Where cache_dir() is, or will be."""
    if "LAB_CACHE" in os.environ:
        return Path(os.environ["LAB_CACHE"]).absolute()
    return Path(os.environ.get("XDG_CACHE_HOME") or home() / ".cache") / "rdma-by-example"


def cache_dir() -> Path:
    """Downloads and what is made from them. Shared by all clones of this user."""
    path = cache_folder()
    path.mkdir(parents=True, exist_ok=True)
    return path


def home() -> Path:
    """The user's own folder. @raises LabError if the user has none"""
    try:
        return Path.home()
    except RuntimeError:  # HOME is not set, and the user database does not know this user
        raise LabError(
            "HOME is not set, and this user has no home folder: set HOME, or LAB_CACHE to a folder"
            " for downloads"
        ) from None


def runtime_dir(group: str = "") -> Path:
    """Sockets, locks and logs of this clone's emulated machine, or of its `group` of them.

    In /tmp because a Unix socket's path has at most 107 bytes; /tmp is everybody's, so the folder
    has to be this user's own and closed to others."""
    top = Path(f"/tmp/rdma-by-example-{os.getuid()}")
    # A clone that replaces another at the same place has another inode: the machine of the old one
    # is no use to it.
    which = [
        str(ROOT), str(ROOT.stat().st_ino), group,
        *(os.environ.get(name, "") for name in ("LAB_MACHINE", "LAB_KERNEL"))]
    name = f"{zlib.crc32(chr(0).join(which).encode()):08x}"  # hashlib takes 5 ms to load
    top.mkdir(mode=0o700, exist_ok=True)
    info = top.lstat()
    if info.st_uid != os.getuid() or not stat.S_ISDIR(info.st_mode) or info.st_mode & 0o077:
        raise LabError(f"{top} belongs to another user or is open to others: as root, rm -r {top}")
    path = top / name
    path.mkdir(mode=0o700, exist_ok=True)
    return path
