# SPDX-License-Identifier: MIT
"""More than the examples are given by default. LAB_LARGE=1: the largest that they take, which is
some minutes of work."""
import os
import unittest

import needs_device
from lab import examples

SIZE = 1 << 30 if os.environ.get("LAB_LARGE") else 1 << 27


class Large(unittest.TestCase):
    def test_a_large_file_in_fragments(self):
        outcome = examples.run(
            needs_device.PLACE, needs_device.BUILD, "write_with_imm", "pair",
            ["--size", str(SIZE), "--run", "16"], time_limit=600)
        self.assertFalse(outcome.failed, outcome.text())
        self.assertIn(
            (
                f"received {SIZE} bytes in {SIZE >> 12} fragments, {SIZE >> 16} messages, checksum"
                " right"),
            outcome.text())


if __name__ == "__main__":
    needs_device.main()
