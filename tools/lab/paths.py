"""Where things are kept: the project, the cache (survives), the runtime folder (does not)."""
from __future__ import annotations

import hashlib
import os
import stat
from pathlib import Path

from lab.errors import LabError

ROOT = Path(__file__).resolve().parents[2]


def cache_dir() -> Path:
    """Downloads and what is made from them. Shared by all clones of this user."""
    default = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rdma-by-example"
    path = Path(os.environ.get("LAB_CACHE", default)).absolute()
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise LabError(f"cannot make the cache folder {path}: {error.strerror}; set LAB_CACHE") from error
    return path


def runtime_dir(group: str = "") -> Path:
    """Sockets, locks and logs of this clone's emulated machine, or of its `group` of them.

    In /tmp because a Unix socket's path has at most 107 bytes; /tmp is everybody's, so the folder has
    to be this user's own and closed to others."""
    top = Path(f"/tmp/rdma-by-example-{os.getuid()}")
    # A clone that replaces another at the same place has another inode: the machine of the old one is no use to it.
    which = [str(ROOT), str(ROOT.stat().st_ino), group, *(os.environ.get(name, "") for name in ("LAB_MACHINE", "LAB_KERNEL"))]
    name = hashlib.sha256("\0".join(which).encode()).hexdigest()[:12]
    top.mkdir(mode=0o700, exist_ok=True)
    info = top.lstat()
    if info.st_uid != os.getuid() or not stat.S_ISDIR(info.st_mode) or info.st_mode & 0o077:
        raise LabError(f"{top} belongs to somebody else or is open to others: remove it")
    path = top / name
    path.mkdir(mode=0o700, exist_ok=True)
    return path
