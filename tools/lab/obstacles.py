# SPDX-License-Identifier: MIT
"""How a `lab` command ends that has failed: by an error of its own, by something that the machine
refuses, or by a bug. Of a refusal it says what is wrong, and which command changes it."""
from __future__ import annotations

import errno
import os
import sys
from pathlib import Path
from typing import Callable, Optional

from lab import paths
from lab.errors import LabError, UsageError


def guarded(command: Callable[[], int], failed: int = 1) -> int:
    """Runs a command and turns each way in which it can fail into a message on stderr.

    @param failed the exit status of a failure that is not the command line's
    @return the exit status"""
    try:
        return command()
    except UsageError as error:
        print(f"lab: {error}", file=sys.stderr)
        return 2
    except LabError as error:
        print(f"lab: {error}", file=sys.stderr)
        return failed
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # ./lab … | head
        sys.stderr.close()
        return 141
    except Exception as error:
        said = explain(error) if isinstance(error, OSError) else None
        if said:
            print(f"lab: {said}", file=sys.stderr)
        else:
            import traceback

            traceback.print_exc()
            print(
                "lab: this is a bug in ./lab: please report it with the lines above",
                file=sys.stderr)
        return failed


# ---- what the machine refuses, and the command that changes it


def explain(error: OSError) -> Optional[str]:
    """One line for a refusal that comes from the machine's state; None for any other error, which
    is a bug."""
    path = Path(os.fsdecode(error.filename)) if isinstance(error.filename, (str, bytes)) else None
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return no_space(path)
    if error.errno == errno.EROFS and path:
        return f"{path}: its file system is read-only; {elsewhere(path)}"
    if error.errno in (errno.EACCES, errno.EPERM) and path:
        return no_access(path)
    if error.errno in (errno.ENOTDIR, errno.EEXIST, errno.ENAMETOOLONG, errno.ELOOP) and path:
        return f"{path}: {error.strerror}; {elsewhere(path)}"
    if "No usable temporary directory" in str(error):
        return elsewhere(temporary())
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return "too many open files: raise the limit, ulimit -n 4096"
    if error.errno in (errno.ENOMEM, errno.EAGAIN):
        return f"{error.strerror}: end other programs, or raise the limits that ulimit -a shows"
    return None


def no_access(path: Path) -> str:
    """For a path that this user may not use: whose it is, and how to change that."""
    there = path
    while not os.path.lexists(there):  # a folder that may not be entered looks empty
        there = there.parent
    owner = there.lstat().st_uid
    if owner == os.getuid():
        return f"{path}: permission denied: chmod -R u+rwX {there}"
    # They hold nothing but what this project has made.
    for folder in (paths.ROOT / "build", paths.cache_folder()):
        if there.is_relative_to(folder):
            return (
                f"{there} belongs to {name_of(owner)}: sudo chown -R"
                f" {name_of(os.getuid())} {folder}")
    return f"{path}: permission denied; {elsewhere(path)}"


def no_space(path: Optional[Path]) -> str:
    """A write error often does not name its file: then the folders that this project writes to are
    looked at."""
    candidates = [path] if path else [paths.build_folder(), paths.cache_folder(), temporary()]
    for candidate in candidates:
        if path or is_full(candidate):
            return (
                f"no space left on the disk of {candidate}: free some, or choose another disk;"
                f" {elsewhere(candidate)}")
    return "no space left on the disk: df -h shows which one is full"


def is_full(path: Path) -> bool:
    import shutil

    while not path.exists():
        path = path.parent
    return shutil.disk_usage(path).free < 1 << 20


def elsewhere(path: Path) -> str:
    """How to have this project write to another folder than that of `path`."""
    if path.is_relative_to(paths.cache_folder()):
        return "LAB_CACHE=FOLDER names another folder for downloads"
    if path.is_relative_to(paths.build_folder()):
        return "LAB_BUILD=FOLDER names another folder to build in"
    if path.is_relative_to(temporary()):
        return (
            f"{temporary()} must be a folder that every user can write to: as root, chmod 1777"
            f" {temporary()}")
    return "choose another folder"


def temporary() -> Path:
    """tempfile.gettempdir() raises where it finds none."""
    return Path(os.environ.get("TMPDIR") or "/tmp")


def name_of(user: int) -> str:
    import pwd

    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return str(user)
