# SPDX-License-Identifier: MIT
"""08_datagrams on a wire that loses packets: some datagrams do not arrive, and all messages do."""
import unittest

import two_hosts
from lab import examples
from lab.machine.tap import Tap
from lab.wire import packets
from two_hosts import A, B, BUILD, lab, pcap

MESSAGES = 64


class Lossy(unittest.TestCase):
    def setUp(self):
        self.addCleanup(lab, "hosts", "repair")

    def run_it(self):
        """How many of the client's datagrams left b, and how many came to a."""
        left, came = pcap("datagrams-b"), pcap("datagrams-a")
        with Tap(A, came), Tap(B, left):
            # Receives for all, so that only the wire loses some.
            outcome = examples.run(
                A, BUILD, "datagrams", "pair", client_place=B,
                extra=["--qps", "2", "--messages", str(MESSAGES), "--receives", "1024"])
        self.assertEqual(outcome.status, {"server": 0, "client": 0}, outcome.text())
        self.assertIn(f"{2 * MESSAGES} different messages from 2 peers", outcome.text())
        return [
            sum(
                packet.host == "b"
                and packet.name.startswith("UD")
                or packet.host == "b"
                and "SEND" in packet.name
                for packet in packets.read(file))
            for file in (left, came)]

    def test_all_messages_arrive(self):
        left, came = self.run_it()
        self.assertEqual(left, came)
        lab("hosts", "lose", "5%")
        left, came = self.run_it()
        print(f"  at 5% loss {left - came} of {left} datagrams did not arrive", flush=True)
        self.assertLess(came, left)
        self.assertGreater(left, 2 * MESSAGES)


if __name__ == "__main__":
    two_hosts.main()
