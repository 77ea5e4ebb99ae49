# SPDX-License-Identifier: MIT
"""Builds a lesson's kernel module for the emulated machine's kernel, by kbuild. Never for the
host's own."""
from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from lab import build, packages
from lab.errors import LabError
from lab.ladder import Lesson
from lab.machine import headers, kernel
from lab.paths import ROOT, WORK


def why_not() -> str:
    """Why no module can be built here, in one line; "" if it can."""
    try:
        packages.need("machine", "kernel")
        compiler(headers.get(kernel.get()))
    except LabError as error:
        return str(error)
    return ""


def sources(lesson: Lesson, program: str) -> "dict[str, str]":
    """File name -> content, of the module as it is, with a change ("kernel_client.no_reg"), with
    the reader's copy of one file ("31.1_name"), or with the exercise's solution
    ("31.1_name.solution").

    @raises LabError if a patch does not apply"""
    folder = ROOT / "examples" / lesson.stem
    files = {
        path.name: path.read_text()
        for path in sorted(folder.iterdir())
        if path.name == "Kbuild" or path.suffix in (".c", ".h")
    }
    name, solved = program.removesuffix(".solution"), program.endswith(".solution")
    patch = folder / "exercises" / f"{name}.patch"
    if not patch.exists():
        if "." not in program:
            return files
        patch, solved = folder / "break" / f"{program.partition('.')[2]}.patch", True
    path = changed_by(patch)
    files[path.name] = _patched(path, patch) if solved else (WORK / f"{name}.c").read_text()
    return files


def changed_by(patch: Path) -> Path:
    """The file that a patch changes."""
    return ROOT / re.search(r"^\+\+\+ b/(\S+)", patch.read_text(), re.M)[1]


def _patched(path: Path, patch: Path) -> str:
    result = subprocess.run(
        ["patch", "--silent", "--fuzz=0", "--output=-", str(path), str(patch)], capture_output=True,
        text=True)
    if result.returncode:
        raise LabError(
            f"{patch.name} does not apply to {path.name}: {result.stdout}{result.stderr}")
    return result.stdout


def module(lesson: Lesson, program: str, folder: Path) -> Path:
    """Brings the module up to date and returns its .ko, which has the same name whatever is changed
    in it.

    @param folder the build folder
    @raises LabError if it does not build, or there is nothing to build it with"""
    packages.need("kernel")
    booted = kernel.get()
    tree = headers.get(booted)
    place = folder / "kernel" / booted.version / program
    if re.search(r"[\s:]", str(tree)):
        raise LabError(f"kbuild works in no folder with a space or a colon in its name: {tree}")
    files = sources(lesson, program)
    result = place / f"{lesson.name}.ko"
    key = hashlib.sha256(
        "\0".join([str(tree), *(word for item in files.items() for word in item)]).encode()
    ).hexdigest()
    stamp = place / "built"
    with build.lock(place):
        if result.exists() and stamp.exists() and stamp.read_text() == key:
            return result
        stamp.unlink(missing_ok=True)
        print(f"lab: building {program} for kernel {booted.version}", file=sys.stderr)
        # The build folder may have a space in its name.
        with tempfile.TemporaryDirectory(prefix="lab-module-") as work:
            for name, text in files.items():
                (Path(work) / name).write_text(text)
            done = make(tree, Path(work), "W=1")
            # In a module, the compiler's warning is a mistake more often than not. kbuild's own
            # warnings are about tools, such as a pahole that is missing.
            if done.returncode or re.search(r":\d+: warning:", done.stdout):
                print(done.stdout, file=sys.stderr, end="")
                raise LabError(f"{program} does not build")
            strip(Path(work) / result.name, result)
        stamp.write_text(key)
    return result


def make(tree: Path, folder: Path, *settings: str) -> subprocess.CompletedProcess:
    """Builds the module in `folder` with the headers in `tree`."""
    # Types for BPF would need pahole, and the kernel as it was linked.
    return subprocess.run(
        [
            "make", "-s", "-C", str(tree), f"M={folder}", f"CC={compiler(tree)}",
            "CONFIG_DEBUG_INFO_BTF_MODULES=", *settings, "modules"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True)


def strip(module: Path, into: Path) -> None:
    """Copies it without the symbols for debugging, which are most of it, and would be read over
    9p."""
    subprocess.run(["strip", "--strip-debug", "-o", str(into), str(module)], check=True)


def compiler(tree: Path) -> str:
    """The compiler that built the kernel, which Debian's headers name; else the usual one. @raises
    LabError without it"""
    variables = tree / ".kernelvariables"
    found = re.search(r"\bgcc-\d+\b", variables.read_text()) if variables.exists() else None
    name = found[0] if found else "gcc"
    if not shutil.which(name):
        raise LabError(f"no {name}, with which the emulated machine's kernel was built: install it")
    return name
