# SPDX-License-Identifier: MIT
"""What the tests of peers that lie by RDMA share: an honest program against a liar, and what the
honest one says of it."""
import concurrent.futures
import dataclasses
import unittest

import needs_device
from lab import examples, pair

DEVICE = ["--device", needs_device.PLACE.device]


def run(server, client, **options) -> pair.Outcome:
    """Both by their command lines; where to listen and whom to connect to is added."""
    return examples.run_pair(needs_device.PLACE, [*server, *DEVICE], [*client, *DEVICE], **options)


def run_cm(server, client, host=needs_device.PLACE.address, **options) -> pair.Outcome:
    """The same by rdma_cm, which finds the device itself.

    @param host what the client is told"""
    place = dataclasses.replace(needs_device.PLACE, address=host)
    return examples.run_pair(place, server, client, port_option="--cm-port", **options)


def side_by_side(test, cases, run, check) -> None:
    """Runs all cases, several at once, since most of them wait for a limit of time or for each
    other's start. Checks each in a subtest.

    @param cases what run() is called with -> what check() is called with, before the result"""
    with concurrent.futures.ThreadPoolExecutor(needs_device.AT_ONCE) as pool:
        for (case, words), outcome in zip(cases.items(), pool.map(run, cases)):
            with test.subTest(case):
                check(words, outcome)


class Refused(unittest.TestCase):
    """Has no tests of its own."""

    def assertRefused(self, outcome, honest, words):
        """The honest side ended with an error that says what was wrong."""
        self.assertFalse(outcome.timed_out, outcome.text())
        self.assertEqual(outcome.status[honest], 1, outcome.text())
        for some in [words] if isinstance(words, str) else words:
            self.assertIn(some, "\n".join(outcome.of(honest)))

    def all_refused(self, lies, honest, liar, run=run):
        """The honest program refuses the liar, as the server and as the client.

        @param lies "server" or "client", which is the honest one -> the lie -> its error, or what
        it has to have"""

        def against(case):
            side, lie = case
            # The honest one waits in vain only where its error says so.
            timeout = "2" if "within 2" in str(lies[side][lie]) else "60"
            one, other = [*honest, "--timeout", timeout], [*liar, "--timeout", "2", "--lie", lie]
            if side == "server":
                return side, run(one, other)
            return side, run(other, one, stop_server=True)  # a liar may wait for more

        side_by_side(
            self,
            {(side, lie): words for side, each in lies.items() for lie, words in each.items()},
            against, lambda words, result: self.assertRefused(result[1], result[0], words))
