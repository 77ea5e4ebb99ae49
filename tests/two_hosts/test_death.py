# SPDX-License-Identifier: MIT
"""The two hosts as a pair: they come up together and quickly, and where one dies the other goes
too, with a message."""
import os
import signal
import subprocess
import time
import unittest

import labtest
from lab.machine import machine
from lab.paths import runtime_dir

MEMORY_LIMIT = 1 << 20  # KiB for each


def resident(pid: int) -> int:
    """The most memory that a process has had, in KiB."""
    with open(f"/proc/{pid}/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))


class Hosts(unittest.TestCase):
    def setUp(self):
        self.addCleanup(machine.stop, "a")

    def statuses(self):
        return [machine.status(host) for host in machine.HOSTS]

    def test_up_and_connected(self):
        machine.stop("a")
        began = time.monotonic()
        result = labtest.finish(labtest.lab("hosts"))
        self.assertEqual(result.returncode, 0, result.stderr)
        print(f"  two hosts up and connected after {time.monotonic() - began:.1f} s", flush=True)
        for words in (["run", "--two-hosts", "02_send_recv"], ["capture", "02"]):
            done = labtest.finish(labtest.lab(*words))
            self.assertEqual(done.returncode, 0, done.stderr)
        for status in self.statuses():
            kib = resident(status["qemu"])
            print(f"  {kib >> 10} MiB", flush=True)
            self.assertLess(kib, MEMORY_LIMIT)

    def test_a_dead_host_is_named_and_leaves_nothing(self):
        for victim, words in (
            ("a", ["exec", "--on", "b", "--", "sleep", "100"]),
            ("b", ["trace", "02_send_recv", "--break", "no_receive"]),
        ):
            with self.subTest(victim=victim, words=words):
                machine.start("a")
                pids = [status[which] for status in self.statuses() for which in ("qemu", "daemon")]
                command = labtest.lab(*words)
                program = "sleep" if "sleep" in words else "send_recv"
                running = labtest.lab(
                    "exec", "--on", "b", "--", "sh", "-c",
                    f"until pidof {program} {program}.no_receive; do :; done")
                self.assertEqual(labtest.finish(running).returncode, 0)
                os.kill(machine.status(victim)["qemu"], signal.SIGKILL)
                result = labtest.finish(command)
                self.assertNotIn(result.returncode, (0, 2))
                self.assertIn(f"host {victim} died", (result.stdout + result.stderr).decode())
                for pid in pids:
                    self.assertTrue(labtest.wait_gone(pid, 100))
                self.assertEqual(self.statuses(), [None, None])
                self.assertEqual([path.name for path in runtime_dir("hosts").glob("socket*")], [])

    def test_both_go_when_stopped(self):
        machine.start("b")
        pids = {status["qemu"] for status in self.statuses()}
        self.assertEqual(len(pids), 2)
        done = labtest.finish(labtest.lab("down"))
        self.assertIn(b"stopped hosts a and b", done.stdout)
        for pid in pids:
            self.assertTrue(labtest.wait_gone(pid, 100))

    def test_interrupted_while_starting(self):
        machine.stop("a")
        command = labtest.lab("hosts", start_new_session=True)
        self.assertIn(b"starting two hosts", command.stderr.readline())
        os.killpg(command.pid, signal.SIGINT)
        result = labtest.finish(command)
        self.assertEqual(result.returncode, 130, result.stderr)
        self.assertEqual(self.statuses(), [None, None])
        left = subprocess.run(
            ["pgrep", "-f", str(runtime_dir("hosts"))], capture_output=True, text=True
        ).stdout.split()
        self.assertEqual(left, [])


if __name__ == "__main__":
    labtest.need_machine()
    unittest.main(verbosity=2)
