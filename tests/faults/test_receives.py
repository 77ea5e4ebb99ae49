# SPDX-License-Identifier: MIT
"""No message of lessons 05, 09, 21 and 22 comes to a receiver that is not ready. The device counts
the receiver-not-ready NAKs that it sends, whichever program causes them, so nothing else may run
beside this test."""
import re
import subprocess
import unittest

import needs_device
from liars import run

FRAGMENTS, SHARED, GROUPS, CREDITS = (
    needs_device.program(name)
    for name in ("write_with_imm", "shared_receive", "group_send", "credits"))


def rnr_naks() -> int:
    """Receiver-not-ready NAKs that the device has sent."""
    counter = f"/sys/class/infiniband/{needs_device.PLACE.device}/ports/1/hw_counters/send_rnr_err"
    found = subprocess.run(
        needs_device.PLACE.wrap(["cat", counter]), capture_output=True, text=True, check=True)
    return int(found.stdout)


class Fragments(unittest.TestCase):
    def test_credits_leave_no_message_without_a_receive(self):
        before = rnr_naks()
        outcome = run([FRAGMENTS], [FRAGMENTS, "--run", "1"])
        self.assertFalse(outcome.failed, outcome.text())
        self.assertEqual(rnr_naks(), before)
        broken = [needs_device.program("write_with_imm.no_credits"), "--timeout", "2"]
        self.assertTrue(run(broken, broken).failed)
        self.assertGreater(rnr_naks(), before)


class Pool(unittest.TestCase):
    def test_small_pools_serve_many(self):
        for clients, pool, limit in ((1, 2, 1), (7, 14, 7), (20, 64, 32), (48, 96, 48)):
            with self.subTest(clients=clients, pool=pool, limit=limit):
                before = rnr_naks()
                outcome = run(
                    [SHARED, "--clients", str(clients), "--pool", str(pool), "--limit", str(limit)],
                    [SHARED, "--clients", str(clients), "--messages", "50"])
                self.assertFalse(outcome.failed, outcome.text())
                self.assertIn(
                    f"{clients} clients have finished, with {clients * 50} messages",
                    outcome.of("server"))
                self.assertEqual(rnr_naks(), before, "a message found no receive")
                self.assertGreater(int(re.search(r"(\d+) limit events", outcome.text())[1]), 0)

    def test_without_a_refill_messages_find_no_receive(self):
        before = rnr_naks()
        broken = needs_device.program("shared_receive.no_refill")
        self.assertTrue(run([broken], [broken]).failed)
        self.assertGreater(rnr_naks(), before)


class Runs(unittest.TestCase):
    def test_no_run_finds_the_receiver_not_ready(self):
        before = rnr_naks()
        few = ["--group", "1", "--callers", "1000", "--requests", "20"]
        for command in ([GROUPS], [GROUPS, "--callers", "1024"], [CREDITS], [CREDITS, *few]):
            with self.subTest(command):
                outcome = run(command, command)
                self.assertFalse(outcome.failed, outcome.text())
                self.assertEqual(rnr_naks(), before)

    def test_without_its_limit_a_sender_finds_it_not_ready(self):
        before = rnr_naks()
        broken = [needs_device.program("credits.no_limit"), "--timeout", "2"]
        self.assertTrue(run(broken, broken).failed)
        self.assertGreater(rnr_naks(), before)


if __name__ == "__main__":
    needs_device.main()
