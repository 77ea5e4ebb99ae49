# SPDX-License-Identifier: MIT
"""What the tests on two hosts share: the hosts of this clone, with a perfect wire."""
from __future__ import annotations

import os
import subprocess
import sys
import unittest
from pathlib import Path

from lab import build, place
from lab.machine import machine
from lab.paths import ROOT

LAB = str(ROOT / "lab")
BUILD = build.directory()
LIMIT = 600


def find() -> tuple[place.Place, place.Place]:
    try:
        hosts = place.find_hosts()
    except place.NoDevice as error:
        print(f"skipped: {error}")
        sys.exit(1 if os.environ.get("LAB_REQUIRE_DEVICE") else 77)
    lab("hosts", "repair")
    return hosts


def lab(*words: str, status: int = 0) -> subprocess.CompletedProcess:
    """Runs ./lab and checks how it ends."""
    result = subprocess.run(
        [LAB, *words], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LIMIT)
    if result.returncode != status:
        raise AssertionError(
            f"./lab {' '.join(words)} ended with {result.returncode}:\n"
            f"{result.stdout}{result.stderr}")
    return result


def on(host: str, *argv: str) -> str:
    return lab("exec", "--on", host, "--", *argv).stdout


def pcap(name: str) -> Path:
    return BUILD / "wire" / f"{name}.pcap"


def main() -> None:
    unittest.main(verbosity=2)


A, B = find()
IN_USE = machine.connect("a")  # as in needs_device.py
