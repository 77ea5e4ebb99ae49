# SPDX-License-Identifier: MIT
"""What is said of one-sided operations, measured: the other side's process takes no part in
them."""
import re
import unittest

import needs_device
from lab import examples

AWAKE = re.compile(r"(\d+\.\d{3}) ms, of which I was awake for (\d+\.\d{3}) ms")


class OneSided(unittest.TestCase):
    def test_server_sleeps_while_it_is_read(self):
        # So many READs that the time to go to sleep and to wake up does not count.
        outcome = examples.run(
            needs_device.PLACE, needs_device.BUILD, "read_write", "pair", ["--reads", "20000"])
        self.assertFalse(outcome.failed, outcome.text())
        took, server = map(float, AWAKE.search("\n".join(outcome.of("server"))).groups())
        reads, client = map(float, AWAKE.search("\n".join(outcome.of("client"))).groups())
        # It slept while they ran. Its clock starts at the same time as the client's, but not to the
        # millisecond.
        self.assertGreater(took, reads / 2)
        self.assertLess(server, client / 10, outcome.text())


if __name__ == "__main__":
    needs_device.main()
