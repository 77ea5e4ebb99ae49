# SPDX-License-Identifier: MIT
"""What atomics promise, with many processes, and with holders that are taken for dead all the
time."""
import unittest

import needs_device
from lab import examples


class Atomics(unittest.TestCase):
    def run_with(self, *arguments):
        outcome = examples.run(needs_device.PLACE, needs_device.BUILD, "atomics", "pair", arguments)
        self.assertFalse(outcome.failed, outcome.text())
        said = outcome.of("server")
        self.assertIn("1 processes have gone without a word", said)  # the first holder alone
        return said

    def test_nothing_is_lost(self):
        said = self.run_with("--processes", "16", "--increments", "500", "--locked", "20")
        self.assertIn("the counter is 8000", said)
        self.assertIn("the value under the lock is 320", said)

    def test_holders_that_lose_the_lock_while_they_work(self):
        # Ten milliseconds are less than what a process waits for a processor here.
        said = self.run_with(
            "--processes", "8", "--increments", "0", "--locked", "50", "--lease", "10")
        self.assertIn("the value under the lock is 400", said)


if __name__ == "__main__":
    needs_device.main()
