# SPDX-License-Identifier: MIT
"""What the tests on two hosts share: the hosts of this clone, with a perfect wire."""
from __future__ import annotations

import subprocess
import unittest
from pathlib import Path

import skipping
from lab import build, place
from lab.machine import machine
from lab.paths import ROOT

LAB = str(ROOT / "lab")
BUILD = build.directory()
LIMIT = 600


def find() -> tuple[place.Place, place.Place]:
    hosts = skipping.found_or_skip(place.find_hosts)
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
