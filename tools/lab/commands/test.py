# SPDX-License-Identifier: MIT
"""./lab test: sets everything up and runs `meson test`; arguments go through to it."""
from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

from lab import build, packages, place
from lab.errors import LabError
from lab.machine import headers, kernel
from play import site

# The packages of every program that a test runs: nothing is installed once the tests have begun.
PACKAGES = ["build", "device", "machine", "kernel", "docs", "wire", "bench"]
# Suites and tests that need a second compiler, a browser or valgrind.
NEED_MORE = {
    "maintainer", "release", "thorough", "counts", "fuzz", "play", "test_builds", "test_browser",
    "test_play", "test_counts", "test_whole_programs", "test_fuzz"}
PLAY = {"release", "play", "test_play"}
# Tests at the same time. They share the emulated machine's two processors, and each waits for an
# event now and then. On two real processors, the learner's tests took 633 s with three at once, and
# 531 s with five, which kept these processors busy for 98 % of the time.
AT_ONCE = "5"
SHOWN = 5  # of the slowest tests
# With these arguments, meson runs no tests, or has no log of them, or one with another name.
NO_LOG = {"--list", "-h", "--help", "--gdb", "--wrapper", "--logbase", "--setup", "-v", "--verbose"}


def add_parser(subparsers) -> None:
    parser = subparsers.add_parser(
        "test",
        help="run all that a learner reads; other arguments go to meson test: --suite examples")
    parser.add_argument(
        "--all", action="store_true", help="also what asks whether ./lab, text and style are right")
    parser.add_argument("tests", nargs="*", metavar="TEST", help="names, as meson test takes them")
    parser.set_defaults(main=main, passes_on=[])


def main(args) -> int:
    wanted = [word for word in args.passes_on or args.tests if word != "--all"]
    # A test or a suite that is named runs whatever it is.
    whole = args.all or bool(wanted)
    packages.ensure(
        *PACKAGES, *(["check"] if whole else []),
        *(["thorough"] if args.all or NEED_MORE & set(wanted) else []),
        *(site.groups() if (args.all or PLAY & set(wanted)) and site.is_possible() else []))
    began = time.monotonic()
    with alone(build.directory()):
        folder = build.build(default_only=not whole)
        built = time.monotonic()
        try:
            print(f"lab: {place.find_place().why}", file=sys.stderr, flush=True)
        except LabError as error:
            print(
                f"lab: the tests that need a device will be skipped: {error}", file=sys.stderr,
                flush=True)
        try:
            headers.get(kernel.get())  # a download is not part of any test's time limit
        except LabError as error:
            print(
                f"lab: the tests of lesson 31 will be skipped: {error}", file=sys.stderr,
                flush=True)
        status, tests = run(folder, "all" if whole else "learner", wanted)
    if not tests:
        return status
    print(f"build {built - began:.0f} s, tests {time.monotonic() - built:.0f} s; the slowest:")
    for test in sorted(tests, key=lambda test: test["duration"], reverse=True)[:SHOWN]:
        print(f"{test['duration']:7.1f} s  {name_of(test)}")
    failed = [
        name_of(test) for test in tests if test["result"] not in ("OK", "EXPECTEDFAIL", "SKIP")]
    if failed:
        print("failed:", *failed)
    skipped = sum(test["result"] == "SKIP" for test in tests)
    print(
        f"{len(tests) - len(failed) - skipped} passed, {len(failed)} failed, {skipped} skipped",
        flush=True)
    return status


def run(folder: Path, setup: str, arguments: list[str]) -> tuple[int, list[dict]]:
    """`meson test` with this setup and these arguments.

    @returns its exit status, and a record of each test
    @raises LabError if no test has the name or suite in the arguments, which is no error to
        meson"""
    log = folder / f"meson-logs/testlog-{setup}.json"
    log.unlink(missing_ok=True)
    status = subprocess.run(
        [
            "meson", "test", "-C", str(folder), "--no-rebuild", "--print-errorlogs",
            "--num-processes", AT_ONCE, "--setup", setup, *arguments],
        env={**os.environ, "LAB_INSTALL": "no"},
    ).returncode
    tests = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
    if not tests and not status and not NO_LOG & {word.partition("=")[0] for word in arguments}:
        raise LabError("no test has this name or suite; ./lab test --list shows all")
    return status, tests


@contextmanager
def alone(folder: Path):
    """Keeps a second `./lab test` out of this build folder: it would build what the tests of the
    first one run, and write to the same log, and the tests of both would use the same ports.

    @raises LabError if one is running"""
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / ".test-lock", "w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise LabError("another ./lab test runs in this clone; wait for its end") from None
        yield


def name_of(test: dict) -> str:
    """Without the suite."""
    return test["name"].rpartition(" / ")[2]
