# SPDX-License-Identifier: MIT
"""rdmashared in a program that has several servers and senders: in_one_process.cpp, and the files
beside it."""
import subprocess
import unittest

import needs_device

PLACE = needs_device.PLACE
PROGRAM = str(needs_device.BUILD / "tests/rdmashared/in_one_process")


class Library(unittest.TestCase):
    def test_in_one_process(self):
        done = subprocess.run(
            PLACE.wrap([PROGRAM, PLACE.address]), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, timeout=1800)
        self.assertEqual(done.returncode, 0, done.stdout)


if __name__ == "__main__":
    needs_device.main()
