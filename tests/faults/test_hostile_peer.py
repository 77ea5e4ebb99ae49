# SPDX-License-Identifier: MIT
"""Peers that do random things, against 23_shared_client: clients at a server that has honest
clients as well, and a server of a sender that has an honest server as well. No honest client loses
a request at an honest server, nothing hangs, and nothing ends that should go on.

LAB_HOSTILE_SECONDS=600 makes ten minutes of each test's twenty seconds, and LAB_HOSTILE_SEED gives
the seed that a run has printed."""
import os
import random
import re
import tempfile
import unittest

import needs_device
import shared_client_cases
from lines import next_line

SECONDS = int(os.environ.get("LAB_HOSTILE_SECONDS", "20"))
SEED = int(os.environ.get("LAB_HOSTILE_SEED") or random.randrange(1 << 31))
FOR_SO_LONG = ("--seconds", str(SECONDS))
PATIENT = ("--timeout", "600")  # a request without an answer ends the test, and no slow one does
LOAD = ("--mixed", "--in-flight", "4", "--size", "600", *FOR_SO_LONG, *PATIENT)
SMALL = ("--slots", "256", "--largest", "8192")  # the emulated machine has little memory
OUTCOMES = re.compile(r"(\d+) ([a-z ]+)")
ROUNDS = re.compile(r"(\d+) rounds, (\d+) connections, (\d+) actions, (\d+) messages from")


class Hostile(shared_client_cases.Shared):
    server_place = client_place = needs_device.PLACE
    build = needs_device.BUILD

    def start(self, place, program, *options, **more):
        """What it says of the others goes to a file: a pipe would be full after some minutes."""
        errors = tempfile.TemporaryFile("w+", errors="replace")
        self.addCleanup(errors.close)
        # The address sanitizer keeps 256 MiB that have been freed, if it is not told to keep less.
        environment = ("ASAN_OPTIONS=quarantine_size_mb=16",)
        process = super().start(
            place, program, *options, environment=environment, stderr=errors, **more)
        process.errors = errors
        return process

    def end(self, process):
        """Why a test fails, one of the others may know."""
        has_ended = process.poll() is not None
        super().end(process)
        if has_ended and process.returncode:
            process.errors.seek(0)
            print(
                f"{process.args}: exit status {process.returncode}\n{process.errors.read()[-6000:]}"
            )

    def finish(self, process, status=0):
        out, _ = process.communicate(timeout=SECONDS + 600)
        process.errors.seek(0)
        err = process.errors.read()
        for words in ("runtime error", "Sanitizer"):
            self.assertNotIn(words, err)
        self.assertEqual(process.returncode, status, out + err[-6000:])
        return out, err

    def hostile(self, place, number, *options):
        """Each with a seed of its own. A server has its `port`."""
        seed = ("--seed", str(SEED + number))
        process = self.start(
            place, "tests/faults/hostile_peer", *seed, *FOR_SO_LONG, *PATIENT, *options)
        print(f"{self.id()}: {next_line(process)}", end="", flush=True)
        if "--host" not in options:
            process.port = re.match(r"listening on rdma_cm port (\d+)", next_line(process))[1]
        return process

    def figures(self, process):
        """How many connections a hostile peer had, and what it has done there."""
        out, _ = self.finish(process)
        print(f"{self.id()}: {out}", end="", flush=True)
        rounds, connections, actions, messages = map(int, ROUNDS.search(out).groups())
        for count in (rounds, connections, actions, messages):
            self.assertGreater(count, 0, out)

    def test_clients(self):
        limits = ("--max-memory", "16", "--total-memory", "64")
        self.serve("--handler-threads", "2", "--timeout", "60", *limits)
        before = self.resources(self.server_place, self.server)
        honest = [
            self.client(*LOAD, *SMALL, "--processes", "1", "--responses", *responses)
            for responses in (
                ("slots", "--response-size", "600"),
                ("connection", "--response-size", "6000"))]
        for client in honest:
            self.assertIn("up", next_line(client))
        where = ("--host", self.server_place.address, "--cm-port", self.port)
        hostile = [self.hostile(self.client_place, number, *where) for number in range(3)]
        right = [self.right(client) for client in honest]  # ends with an error if a request is lost
        for client in hostile:
            self.figures(client)
        self.assertEqual(self.run_client("--requests", "10", *SMALL, *PATIENT), 80)
        self.wait_for_resources(before)
        (served, dropped, rejected), _ = self.stop()
        print(
            f"{self.id()}: {right} responses to honest clients;"
            f" {served} connections served, {dropped} dropped, {rejected} rejected")
        self.assertGreater(dropped + rejected, 0)

    def ask(self, *options):
        """@return a process with requests to the sender's first server, until its input ends"""
        return self.start(
            self.client_place, "tests/faults/patient_caller",
            *("--attach", self.name, "--seed", str(SEED), *options))

    def ask_both(self, responses):
        """The first of a sender's servers is hostile, the second honest."""
        self.serve("--handler-threads", "2")
        liar = self.hostile(self.server_place, 0, "--cm-port", "0")
        honest_port, self.port = self.port, liar.port
        self.sender(
            *("--also", f"{self.server_place.address}:{honest_port}", "--responses", responses),
            *("--slots", "1024", "--slot-size", "64", "--window", "8", "--largest", "4096"),
            *PATIENT)
        # Ends with an error if a request is lost.
        beside = self.attached("--to", "1", *LOAD, "--response-size", "600")
        asking = self.ask()
        self.figures(liar)  # it ends so long after the first request
        outcomes, _ = self.finish(asking)
        right = self.right(beside)
        print(f"{self.id()}: {outcomes.strip()}; {right} responses of the honest server")
        count = {what: int(number) for number, what in OUTCOMES.findall(outcomes)}
        self.assertGreater(sum(count.values()) - count["not sent"], 0, outcomes)
        self.ask_an_honest_one(liar.port)
        self.sending.terminate()
        self.finish(self.sending)
        (served, dropped, rejected), said = self.stop()
        self.assertEqual((served, dropped, rejected), (1, 0, 0), said)

    def ask_an_honest_one(self, port):
        """Where the liar was. All slots have come back: a request takes half of them. And so has
        the window: with more requests than that under way, this server closes the connection."""
        honest = self.server, self.port
        self.serve("--handler-threads", "2", port=port)
        self.finish(self.ask("--until-answered"))
        for load in (
            ("--threads", "1", "--size", str(512 * 64 - 16), "--response-size", "4096"),
            ("--threads", "1", "--in-flight", "64", "--microseconds", "5000"),
        ):
            worker = self.attached("--to", "0", *load, "--requests", "100", *PATIENT)
            self.assertEqual(self.right(worker), 100)
        self.server, self.port = honest

    def test_server(self):
        self.ask_both("slots")

    def test_server_of_long_responses(self):
        self.ask_both("connection")


if __name__ == "__main__":
    unittest.main(verbosity=2)
