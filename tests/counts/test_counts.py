# SPDX-License-Identifier: MIT
"""Instructions for a request of the shared client: in the caller and the ring, without the network.
A count has no noise, so a change that makes a request dearer is found at once.

The counts depend on the compiler. counts.json has those of the compilers that CI uses;
`PYTHONPATH=tools:tests/support python3 tests/counts/test_counts.py --record` writes those of this
one."""
import json
import os
import platform
import re
import subprocess
import sys
import unittest
from pathlib import Path

from lab.paths import ROOT

PROGRAM = Path(os.environ.get("LAB_BUILD", ROOT / "build")) / "tests/counts/request_path"
EXPECTED = Path(__file__).parent / "counts.json"
IN_FLIGHT = (1, 16)
MOST_CHANGE = 0.05


def counted(requests, in_flight):
    """@return the compiler, and all instructions of such a run"""
    run = subprocess.run(
        [
            "valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", PROGRAM, "--requests",
            str(requests), "--in-flight", str(in_flight)],
        capture_output=True,
        text=True,
        timeout=300)
    if run.returncode:
        raise AssertionError(run.stderr)
    return f"{run.stdout.strip()} {platform.machine()}", int(
        re.search(r"Collected : (\d+)", run.stderr)[1])


def for_a_request(in_flight):
    """What two runs have in common, as the start of the program, goes out of the difference."""
    compiler, few = counted(1600, in_flight)
    return compiler, (counted(3200, in_flight)[1] - few) / 1600


class Counts(unittest.TestCase):
    def test_instructions_for_a_request(self):
        expected = json.loads(EXPECTED.read_text())
        for in_flight in IN_FLIGHT:
            with self.subTest(in_flight=in_flight):
                compiler, found = for_a_request(in_flight)
                self.assertIn(compiler, expected)
                was = expected[compiler][str(in_flight)]
                self.assertLessEqual(
                    found, was * (1 + MOST_CHANGE),
                    "a request takes more instructions: see what callgrind says of it")
                self.assertGreaterEqual(
                    found, was * (1 - MOST_CHANGE),
                    "a request takes fewer instructions: record them (--record)")


def record():
    expected = json.loads(EXPECTED.read_text()) if EXPECTED.exists() else {}
    for in_flight in IN_FLIGHT:
        compiler, found = for_a_request(in_flight)
        expected.setdefault(compiler, {})[str(in_flight)] = round(found)
    EXPECTED.write_text(json.dumps(expected, indent=2, sort_keys=True) + "\n")


if __name__ == "__main__":
    if sys.argv[1:] == ["--record"]:
        record()
    elif (compiler := counted(1, 1)[0]) not in json.loads(
        EXPECTED.read_text()
    ) and not os.environ.get("LAB_REQUIRE_DEVICE"):
        print(f"skipped: {EXPECTED.name} has no counts of {compiler}")
        sys.exit(77)
    else:
        unittest.main(verbosity=2)
