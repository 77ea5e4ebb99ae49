# SPDX-License-Identifier: MIT
"""Peers of 30_device_memory that lie about what there is, or take a lock and say what is wrong."""
import re
import subprocess
import unittest

import liars
import needs_device
from lab import examples

LIAR = str(needs_device.BUILD / "tests/faults/lying_directory")
HONEST = needs_device.program("device_memory")
AS_SERVER = {  # unit/examples/test_directory.cpp has the others
    "few-locks": "it has fewer locks than counters",
    "short": "it has not the size of one",
}


class Lies(liars.Refused):
    def test_server_that_lies(self):
        self.all_refused({"client": AS_SERVER}, [HONEST], [LIAR])

    def test_first_client_that_takes_no_message(self):
        outcome = liars.run([HONEST], [LIAR, "--lie", "no-receive"])
        self.assertRefused(outcome, "server", "the SEND of the directory: completed with status 13")


class AmongHonestOnes(unittest.TestCase):
    """The server expects a process more than the honest client starts, and that one lies."""

    def run_with(self, *liar):
        """What the server prints, and its exit status."""
        wrap, device = needs_device.PLACE.wrap, ["--device", needs_device.PLACE.device]
        counting = ["--rounds", "4", "--no-deaths"]
        server = subprocess.Popen(
            wrap([HONEST, *device, *counting, "--processes", "3", "--tcp-port", "0"]),
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        said, others = [], []
        self.addCleanup(server.stdout.close)
        self.addCleanup(server.kill)
        for line in server.stdout:
            said.append(line.rstrip())
            listening = re.match(examples.LISTENING, line)
            if listening:
                to = [*device, "--host", needs_device.PLACE.address, "--tcp-port", listening[1]]
                others.append(
                    subprocess.Popen(
                        wrap([HONEST, *to, *counting, "--processes", "2"]), stdout=subprocess.PIPE,
                        stderr=subprocess.STDOUT, text=True))
            if line.startswith("what is on the chip"):
                others.append(
                    subprocess.Popen(
                        wrap([*liar, *to]), stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                        text=True))
        for other in others:
            said += other.communicate(timeout=600)[0].splitlines()
        return "\n".join(said), server.wait(60)

    def test_lock_of_one_that_says_rubbish(self):
        said, status = self.run_with(LIAR, "--lie", "rubbish")
        self.assertRegex(
            said, r"process \d is gone; its queue pair is closed\nlock 5, which it had, is free")
        self.assertIn("8176 locks, 0 of them taken", said)
        # The liar has not counted its 4.
        self.assertIn("4 increments were lost", said)
        self.assertEqual(status, 1)

    def test_lock_of_one_that_says_done_too_early(self):
        said, status = self.run_with(LIAR, "--lie", "done-with-lock")
        self.assertIn("lock 5, which it had, is free", said)
        self.assertIn("8176 locks, 0 of them taken", said)

    def test_one_that_is_turned_away(self):
        said, _ = self.run_with(
            "sh", "-c", '"$0" --lie no-receive "$@"; "$0" --lie done-with-lock "$@"', LIAR)
        self.assertRegex(
            said, r"turned process \d away: the SEND of the directory: completed with status 13")
        self.assertIn("8176 locks, 0 of them taken", said)


if __name__ == "__main__":
    needs_device.main()
