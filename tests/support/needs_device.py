# SPDX-License-Identifier: MIT
"""For tests that need an RDMA device: finds it once, skips the whole file where there is none."""
from __future__ import annotations

import concurrent.futures
import fcntl
import os
import unittest
from pathlib import Path
from typing import TextIO

import skipping
from lab import place
from lab.machine import kbuild, machine
from lab.paths import ROOT, cache_dir

os.environ.setdefault("LAB_PROGRESS", "off")  # what the tests run is not the reader's progress
ALONE = bool(os.environ.get("LAB_ALONE"))  # tests/meson.build sets it
AT_ONCE = 3  # programs; each of them may be two processes
BUILD = Path(os.environ.get("LAB_BUILD", ROOT / "build"))
# Starts a program as another user. That user may read everything: the clone may lie in a folder
# that only its owner may enter.
AS_ANOTHER_USER = [
    "setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=+dac_read_search",
    "--ambient-caps=+dac_read_search"]


def find() -> place.Place:
    if ALONE:
        os.environ.update({"LAB_MACHINE": f"alone-{os.getpid()}", "LAB_IDLE": "1"})
    return skipping.found_or_skip(place.find_place)


def share_device() -> "TextIO | None":
    """For a test that looks at the whole device, and so wants nobody else on it: an emulated
    machine is its own. Any other device it has when the tests that share it have ended.

    @return what holds the device until this process ends"""
    if PLACE.kind == "machine":
        return None
    lock = open(cache_dir() / "device.lock", "w")  # test_builds has a second build folder
    fcntl.flock(lock, fcntl.LOCK_EX if ALONE else fcntl.LOCK_SH)
    return lock


PLACE = find()
DEVICE = share_device()
# Keeps the machine running until this process ends. Without a connection, another test that
# interrupts a command can end the machine between two commands of this test. The files in the
# machine's /tmp would be lost.
IN_USE = machine.connect() if PLACE.kind == "machine" else None


def why_not(lesson) -> str:
    """Why an example cannot be run here although there is a device; "" if it can. A kernel module
    wants the emulated machine, and the headers of its kernel. Where LAB_REQUIRE_DEVICE is set it
    can, so a test fails."""
    if lesson.kind != "kernel" or os.environ.get("LAB_REQUIRE_DEVICE"):
        return ""
    return kbuild.why_not()


def each(test: unittest.TestCase, jobs: dict, run, check) -> None:
    """Runs all jobs, and checks each in a subtest. Much of a run is waiting for an event or a time
    limit, so several runs at once end sooner than one after the other.

    @param jobs name of the subtest -> (lesson, what else run() and check() need)
    @param run called with a job, in some thread; not for a lesson that cannot be run here
    @param check called with a job and what run() has returned for it"""

    def run_if_possible(job):
        return why_not(job[0]) or [run(job)]

    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        for (name, job), result in zip(jobs.items(), pool.map(run_if_possible, jobs.values())):
            with test.subTest(name):
                if isinstance(result, str):
                    test.skipTest(result)
                check(job, result[0])


def program(name: str) -> str:
    return str(BUILD / "examples" / name)


def main() -> None:
    unittest.main(verbosity=2)
