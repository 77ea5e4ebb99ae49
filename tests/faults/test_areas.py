# SPDX-License-Identifier: MIT
"""The shared client with an area for each process: all its modes, and what happens when a server, a
sender or a worker ends, or stops, at a bad moment."""
import os
import re
import signal
import subprocess
import time
import unittest

import needs_device
from lines import next_line

PLACE = needs_device.PLACE
PROGRAM = str(needs_device.BUILD / "tests/faults/area_load")
MIXED = ("--mixed", "--in-flight", "8", "--requests", "100")


class Areas(unittest.TestCase):
    def start(self, role, *options):
        """@return a process of which `guest` is the number where it runs"""
        process = subprocess.Popen(
            PLACE.wrap(["sh", "-c", 'echo $$; exec "$0" "$@"', PROGRAM, "--role", role, *options]),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(self.end, process)
        process.guest = next_line(process).strip()
        return process

    def end(self, process):
        if process.poll() is None:
            process.kill()
        process.communicate()

    def finish(self, process, status=0):
        out, err = process.communicate(timeout=600)
        self.assertEqual(process.returncode, status, out + err)
        return out, err

    def signal(self, process, which):
        subprocess.run(
            PLACE.wrap(["sh", "-c", f"kill -{which.value} {process.guest}"]), check=True)

    def serve(self, *options, port="0"):
        self.server = self.start("server", "--cm-port", port, "--timeout", "60", *options)
        self.port = re.match(r"listening on rdma_cm port (\d+)", next_line(self.server))[1]

    def send(self, *options):
        self.name = f"areas.{os.getpid()}.{time.monotonic_ns()}"
        self.sender = self.start(
            "sender", "--host", PLACE.address, "--cm-port", self.port, "--name", self.name,
            "--timeout", "60", *options)
        self.assertEqual(next_line(self.sender), "up\n")

    def worker(self, *options):
        process = self.start("worker", "--name", self.name, "--timeout", "60", *options)
        self.assertEqual(next_line(process), "joined\n")
        return process

    def score(self, process):
        """@return right, lost, not sent, other"""
        said = self.finish(process)[0]
        return [int(number) for number in re.findall(r"(\d+) ", said)]

    def all_right(self, *processes):
        for process in processes:
            right, *failed = self.score(process)
            self.assertGreater(right, 0)
            self.assertEqual(failed, [0, 0, 0])

    def stop(self, sender=True):
        """@return what the server says of its clients"""
        if sender:
            self.finish(self.sender)
        self.server.terminate()
        return self.finish(self.server)[0]

    def test_every_mode(self):
        for server, sender, load in (
            ([], [], ["--in-flight", "16"]),
            (["--pool", "0"], ["--group", "1"], ["--in-flight", "16"]),
            (["--pool", "3"], [], [*MIXED, "--size", "3000", "--response-size", "3000"]),
            (
                ["--pool", "2"], ["--largest", "60000"],
                [*MIXED, "--long", "--size", "3000", "--response-size", "60000"]),
            # Rings and areas that are full nearly always; sizes that are no powers of two.
            (
                [], ["--slots", "17", "--slot-size", "72", "--area-slots", "21"],
                [*MIXED, "--size", "300", "--response-size", "300"]),
            ([], ["--connections", "3", "--sender-threads", "2"], [*MIXED]),
            ([], ["--window", "1"], [*MIXED]),
            (["--waiting", "poll"], ["--waiting", "poll"], ["--waiting", "poll"]),
            (["--waiting", "events"], ["--waiting", "events"], ["--waiting", "events"]),
            ([], [], ["--size", "0", "--response-size", "0"]),
            ([], [], ["--threads", "100", "--requests", "20"]),
        ):
            with self.subTest(server=server, sender=sender, load=load):
                self.serve(*server)
                self.send(*sender)
                self.all_right(*(self.worker(*load) for _ in range(3)))
                self.assertRegex(self.stop(), r"^served \d+, dropped 0, rejected 0, RNR 0\n$")

    def test_a_server_that_is_killed(self):
        """What was under way is lost, what comes meanwhile is not sent, and then all goes on."""
        self.serve("--pool", "8")
        self.send()
        patient = self.worker("--patient", "--seconds", "8")
        waiting = self.worker(
            "--patient", "--threads", "4", "--requests", "1", "--microseconds", "60000000")
        for _ in range(4):
            self.assertEqual(next_line(self.server), "began\n")
        self.all_right(self.worker("--threads", "1", "--requests", "1"))
        self.server.kill()
        self.server.communicate()
        self.assertEqual(self.score(waiting), [0, 4, 0, 0])
        after = self.worker("--threads", "1", "--requests", "1", "--patient")
        self.assertEqual(self.score(after), [0, 0, 1, 0])
        self.serve(port=self.port)
        right, lost, _, other = self.score(patient)
        self.assertGreater(right, 0)
        self.assertLessEqual(lost, 2)
        self.assertEqual(other, 0)
        self.stop()

    def test_a_server_that_is_frozen(self):
        """Its host acknowledges what comes, so only its loop can say that it lives."""
        self.serve()
        self.send("--silence", "2")
        waiting = self.worker("--patient", "--threads", "1", "--requests", "1000000")
        self.signal(self.server, signal.SIGSTOP)
        err = self.sender.stderr.readline()
        self.assertIn("it has been silent for 2000 ms", err)
        self.signal(self.server, signal.SIGCONT)
        self.all_right(self.worker("--connected", "--threads", "1", "--requests", "10"))
        self.assertIsNone(waiting.poll())

    def test_a_worker_that_is_killed_or_stopped(self):
        """It costs the others nothing."""
        self.serve("--pool", "4")
        self.send("--slots", "64", "--area-slots", "64")
        steady = [self.worker("--in-flight", "8", "--seconds", "8") for _ in range(2)]
        stopped = self.worker("--in-flight", "8", "--seconds", "3600")
        self.signal(stopped, signal.SIGSTOP)
        for _ in range(5):
            victim = self.worker(
                *MIXED, "--size", "500", "--response-size", "500", "--seconds", "3600")
            self.all_right(self.worker("--in-flight", "4"))
            self.signal(victim, signal.SIGKILL)
            victim.communicate()
        self.all_right(*steady)
        self.signal(stopped, signal.SIGKILL)
        self.assertIn("dropped 0, rejected 0, RNR 0", self.stop())

    def test_a_sender_that_is_killed(self):
        self.serve()
        self.send()
        workers = [self.worker("--seconds", "3600") for _ in range(2)]
        self.sender.kill()
        for worker in workers:
            self.assertIn("the sender: it is gone", self.finish(worker, 1)[1])
        self.send()
        self.all_right(self.worker())
        self.stop()


if __name__ == "__main__":
    needs_device.main()
