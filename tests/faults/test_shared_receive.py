# SPDX-License-Identifier: MIT
"""Clients of 09_shared_receive that lie, are greedy or die: theirs is the only connection that
ends."""
import unittest

import needs_device
from liars import run, side_by_side

LIARS = str(needs_device.BUILD / "tests/faults/lying_clients")
HONEST = needs_device.program("shared_receive")
LIES = {
    "long": r"the receive: completed with status \d+",
    "short": "its message: it has 100 bytes",
    "nothing": "its message: it has 0 bytes",
    "version": "its message: it is of another version",
    "number": "its message: it is number 7, not 1",
    "data": "its message: its data are wrong",
    "imm": r"has been silent for too long|its message: it has 0 bytes",
    # A server that is quick has answered each message before the next is there; then there is a
    # credit for it.
    "greedy": "its message: it had no credit for it|has been silent for too long",
    "deaf": r"the answer: completed with status 13, RNR retry counter exceeded",
    "silent": "has been silent for too long",
    "exchange": "the peer's address",
}


def against_liar(lie):
    # Only some of the lies are found out by the silence after them.
    timeout = "2" if "silent" in LIES.get(lie, "silent") else "60"
    small = ("--clients", "3", "--pool", "10", "--limit", "5")
    return run([HONEST, "--timeout", timeout, *small], [LIARS, "--lie", lie])


class Lies(unittest.TestCase):
    def ends_well(self, outcome):
        self.assertFalse(outcome.failed, outcome.text())
        self.assertIn("the honest ones have all their answers", outcome.of("client"))
        self.assertIn("2 clients have finished, with 40 messages", outcome.of("server"))

    def test_only_the_liar_is_ended(self):
        def check(words, outcome):
            self.ends_well(outcome)
            self.assertRegex("\n".join(outcome.of("server")), rf"client 1: .*({words})")

        side_by_side(self, LIES, against_liar, check)

    def test_one_that_wants_everything_leaves_the_others_theirs(self):
        for lie in ("left", "done"):
            with self.subTest(lie):
                outcome = against_liar(lie)
                self.ends_well(outcome)
                self.assertIn("1 clients have gone without a word", outcome.of("server"))

    def test_clients_that_die_in_the_middle(self):
        outcome = against_liar("dies")
        self.assertEqual(outcome.status, {"server": 0, "client": 3}, outcome.text())
        self.assertIn("3 clients have gone without a word", outcome.of("server"))

    def test_one_too_many(self):
        for arguments in (["--limit", "15"], ["--limit", "33"], ["--clients", "33"]):
            with self.subTest(arguments):
                outcome = run([HONEST, *arguments], [HONEST])
                self.assertEqual(outcome.status["server"], 2, outcome.text())
                self.assertIn(
                    "--limit: it must be from --clients to half of --pool", outcome.text())


if __name__ == "__main__":
    needs_device.main()
