# SPDX-License-Identifier: MIT
"""05_write_with_imm and its receives. The device counts the receiver-not-ready NAKs that it sends,
whichever program causes them, so nothing else may run beside this test."""
import os
import unittest

import liars
import needs_device

HONEST = needs_device.program("write_with_imm")
LIMITS = ["--timeout", "2"]


def run(program, *client_arguments):
    return liars.run([program, *LIMITS, "--wait", "10"], [program, *LIMITS, *client_arguments])


@unittest.skipIf(os.environ.get("LAB_NESTED"), "changes are not built with the sanitizers")
class Receives(unittest.TestCase):
    def test_credits_leave_no_message_without_a_receive(self):
        before = liars.rnr_naks()
        outcome = run(HONEST, "--run", "1")
        self.assertFalse(outcome.failed, outcome.text())
        self.assertEqual(liars.rnr_naks(), before)
        self.assertTrue(run(needs_device.program("write_with_imm.no_credits")).failed)
        self.assertGreater(liars.rnr_naks(), before)


if __name__ == "__main__":
    needs_device.main()
