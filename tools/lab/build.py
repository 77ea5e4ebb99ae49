# SPDX-License-Identifier: MIT
"""Configures and builds with Meson and Ninja; says so when there is something to do."""
from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

from lab import obstacles
from lab.errors import LabError
from lab.paths import ROOT, build_folder


def directory() -> Path:
    return build_folder()


@contextmanager
def lock(path: Path):
    """Two `lab` commands at once must not run two ninjas in one folder: the second waits."""
    path.mkdir(parents=True, exist_ok=True)
    with open(path / ".lab-lock", "w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("lab: waiting for another ./lab that is building", file=sys.stderr)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def build(*targets: str, default_only: bool = False) -> Path:
    """Brings the build folder up to date and returns it. LAB_MESON_OPTIONS is for `meson setup`.

    @param targets files of the build folder; none means everything
    @param default_only in place of targets: what default_targets() says
    @raises LabError if the build fails"""
    path = directory()
    with lock(path):
        if not (path / "build.ninja").exists():
            print(f"lab: configuring {path}", file=sys.stderr)
            _run(
                [
                    "meson", "setup", str(path), str(ROOT),
                    *os.environ.get("LAB_MESON_OPTIONS", "").split()],
                quiet=True)
        if default_only:
            targets = tuple(default_targets(path, ""))
        ninja = ["ninja", "-C", str(path), *targets]
        if "no work to do" not in _output([*ninja, "-n"]):
            print("lab: building", file=sys.stderr)
            _run(ninja, quiet=False)
    return path


def default_targets(path: Path, *below: str) -> list[str]:
    """What is built by default and defined in or below these folders of the project, as ninja names
    it. Meson's own `all` also has what a test needs that does not run by default."""
    _run(["ninja", "-C", str(path), "build.ninja"], quiet=True)  # if a meson.build has changed
    return [
        str(Path(target["filename"][0]).relative_to(path.resolve()))
        for target in json.loads(_output(["meson", "introspect", "--targets", str(path)]))
        if target["build_by_default"]
        and any(Path(target["defined_in"]).is_relative_to(ROOT / name) for name in below)]


def _output(argv: list[str]) -> str:
    return subprocess.run(argv, capture_output=True, text=True).stdout


def _run(argv: list[str], quiet: bool) -> None:
    result = subprocess.run(
        argv, stdout=subprocess.PIPE if quiet else sys.stderr,
        stderr=subprocess.STDOUT if quiet else None, text=True)
    if result.returncode:
        print(result.stdout or "", file=sys.stderr, end="")
        raise LabError(_obstacle() or f"{' '.join(argv)} failed")


def _obstacle() -> str:
    """What the compiler's message may hide: a full disk, or files that another user's build has
    left; "" for neither."""
    path = directory()
    for disk in (path, obstacles.temporary()):
        if obstacles.is_full(disk):
            return obstacles.no_space(disk)
    for folder, _, names in os.walk(path):
        for name in ["", *names]:
            there = Path(folder, name)
            if not there.is_symlink() and not os.access(there, os.W_OK):
                return obstacles.no_access(there)
    return ""
