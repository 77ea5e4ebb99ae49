# SPDX-License-Identifier: MIT
"""What the tests of the lab share: an emulated machine of their own, so that they may crash it."""
from __future__ import annotations

import os
import select
import subprocess
import tempfile
from pathlib import Path

import skipping
from lab import packages, place
from lab.machine import kernel, machine
from lab.paths import ROOT

LAB = str(ROOT / "lab")
# A kernel that the user chose for the shared machine does not matter here, nor does where it is.
ENVIRONMENT = {
    **os.environ,
    "LAB_PLACE": "machine",
    "LAB_MACHINE": f"test-{os.getpid()}",
    "LAB_IDLE": "60",
    "LAB_PROGRESS": "off",
}


def need_machine() -> None:
    """Skips the whole file where the emulated machine cannot be had; in CI that is a failure."""
    why = (
        "this is the emulated machine"
        if place.INSIDE.exists()
        else " ".join(packages.missing("machine")))
    if why:
        skipping.skip(f"no emulated machine here: {why}")
    os.environ.update(ENVIRONMENT)
    kernel.get()  # a first download is not part of any test's time limit


def start(*argv: str, **options) -> subprocess.Popen:
    """./lab exec -- ARGV in the tests' machine."""
    return lab("exec", "--", *argv, **options)


def lab(*words: str, **options) -> subprocess.Popen:
    # Without a buffer: communicate() does not see what an earlier readline() has read into one.
    options = {
        "bufsize": 0,
        "stdin": subprocess.DEVNULL,
        "stdout": subprocess.PIPE,
        "stderr": subprocess.PIPE,
        "env": ENVIRONMENT,
        **options,
    }
    return subprocess.Popen([LAB, *words], **options)


def run(*argv: str, input: bytes = b"", **options) -> subprocess.CompletedProcess:
    process = start(*argv, stdin=subprocess.PIPE, **options)
    return finish(process, input)


def finish(process: subprocess.Popen, input: "bytes | None" = None) -> subprocess.CompletedProcess:
    try:
        out, err = process.communicate(input, timeout=600)
    finally:
        process.kill()
        process.wait()
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def wait_gone(pid: int, limit: float) -> bool:
    """Waits for the end of a process that is nobody's child here."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([handle], [], [], limit)[0])
    finally:
        os.close(handle)


def named(name: str):
    """Another machine than the common one."""
    return {**ENVIRONMENT, "LAB_MACHINE": f"{ENVIRONMENT['LAB_MACHINE']}-{name}"}


def status(environment=ENVIRONMENT) -> "dict | None":
    """machine.status() of the machine that `environment` names."""
    saved = dict(os.environ)
    os.environ.update(environment)
    try:
        return machine.status()
    finally:
        os.environ.clear()
        os.environ.update(saved)


def temporary_folder(test) -> Path:
    folder = tempfile.TemporaryDirectory(prefix="lab test ")
    test.addCleanup(folder.cleanup)
    return Path(folder.name)
