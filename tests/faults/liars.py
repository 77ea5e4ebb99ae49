# SPDX-License-Identifier: MIT
"""What the tests of peers that lie by RDMA share: an honest program against a liar, and what the
honest one says of it."""
import dataclasses
import subprocess
import unittest

import needs_device
from lab import examples, pair

DEVICE = ["--device", needs_device.PLACE.device]


def run(server, client) -> pair.Outcome:
    """Both by their command lines; where to listen and whom to connect to is added."""
    address = needs_device.PLACE.address
    return pair.run(
        needs_device.PLACE,
        [*server, *DEVICE, "--tcp-port", "0"],
        pair.Client(
            examples.LISTENING,
            lambda line: [*client, *DEVICE, "--host", address, "--tcp-port", line[1]]),
    )


def run_cm(server, client, host=needs_device.PLACE.address) -> pair.Outcome:
    """The same by rdma_cm, which finds the device itself.

    @param host what the client is told"""
    place = dataclasses.replace(needs_device.PLACE, address=host)
    return examples.run_pair(place, server, client, port_option="--cm-port")


def rnr_naks() -> int:
    """Receiver-not-ready NAKs that the device has sent."""
    counter = f"/sys/class/infiniband/{needs_device.PLACE.device}/ports/1/hw_counters/send_rnr_err"
    found = subprocess.run(
        needs_device.PLACE.wrap(["cat", counter]), capture_output=True, text=True, check=True
    )
    return int(found.stdout)


class Refused(unittest.TestCase):
    """Has no tests of its own."""

    def assertRefused(self, outcome, honest, words):
        """The honest side ended with an error that says what was wrong."""
        self.assertFalse(outcome.timed_out, outcome.text())
        self.assertEqual(outcome.status[honest], 1, outcome.text())
        self.assertIn(words, "\n".join(outcome.of(honest)))
