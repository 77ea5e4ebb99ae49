# SPDX-License-Identifier: MIT
"""23_shared_client in all its modes, and with servers, senders and workers that die, are too slow,
lie, or ask for too much.

The cases, for one host and for two: who imports them says where the server runs, and where the
clients."""
import itertools
import json
import os
import random
import re
import select
import subprocess
import time
import unittest
from pathlib import Path

from lines import next_line

SERVED = re.compile(r"served (\d+) connections, dropped (\d+), rejected (\d+)")
BROKE = "the request: the connection broke while it was under way"  # the words for Outcome::lost
RESPONSES = re.compile(r"(\d+) responses, and all of them right")


def use(build, server_place, client_place=None):
    """Says where the programs are, and where they run."""
    Shared.build, Shared.server_place = build, server_place
    Shared.client_place = client_place or server_place


class Shared(unittest.TestCase):
    server_place = client_place = build = None
    responses = "slots"  # how the clients want them, if a test does not say it

    def start(
        self, place, program, *options, preload="", environment=(), stderr=subprocess.PIPE
    ):
        """@param preload a library below the build folder
        @return a process of which `guest` is the number where it runs"""
        environment = [*environment]
        if preload:  # by a path without a space
            library = f"/tmp/{Path(preload).name}"
            # unlike cp, it leaves the file alone that a running program has mapped
            self.at(place, "install", str(self.build / preload), library)
            environment.append(f"LD_PRELOAD={library}")
        argv = place.wrap(
            [
                *("sh", "-c", 'echo $$; exec "$0" "$@"'),
                *(["env", *environment] if environment else []),
                *(str(self.build / program), *options)])
        process = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr, text=True)
        self.addCleanup(self.end, process)
        process.guest = int(next_line(process))
        return process

    def at(self, place, *argv):
        return subprocess.run(
            place.wrap(argv), capture_output=True, text=True, check=True, timeout=600
        ).stdout

    def send_signal(self, place, process, which):
        # not every system has a program with this name
        self.at(place, "sh", "-c", f"kill -{which} {process.guest}")

    def resources(self, place, process):
        """What a process has on its device, whichever thread has made it; other tests may run
        beside this one."""
        threads = {
            int(number) for number in self.at(place, "ls", f"/proc/{process.guest}/task").split()}
        return {
            kind: sum(
                entry.get("pid") in threads
                for entry in json.loads(self.at(place, "rdma", "-j", "resource", "show", kind)))
            for kind in ("qp", "cq", "mr", "pd", "cm_id")}

    def wait_for_resources(self, wanted):
        """The server's: when a client has ended, it may not have heard of it yet."""
        deadline = time.monotonic() + 300
        while (now := self.resources(self.server_place, self.server)) != wanted:
            self.assertLess(time.monotonic(), deadline, now)

    def let_through(self, process):
        """One with slow memory, which is at its breakpoint."""
        process.stdin.write("\n")
        process.stdin.flush()

    def serve(self, *options, port="0", clients="0", **more):
        self.server = self.start(
            self.server_place, "examples/slot_server", "--clients", clients, "--cm-port", port,
            "--stats", *options, **more)
        self.port = re.match(r"listening on rdma_cm port (\d+)", next_line(self.server))[1]

    def end(self, process):
        if process.poll() is None:
            process.kill()
        process.communicate()

    def client(self, *options, **more):
        return self.start(
            self.client_place, "examples/shared_client", "--host", self.server_place.address,
            "--cm-port", self.port, "--stats",
            *([] if "--responses" in options else ["--responses", self.responses]), *options,
            **more)

    def finish(self, process, status=0):
        seconds = 600 + int(os.environ.get("LAB_HOSTILE_SECONDS", "0"))
        out, err = process.communicate(timeout=seconds)
        self.assertEqual(process.returncode, status, out + err)
        return out, err

    def run_client(self, *options):
        """@return how many responses were right"""
        return int(RESPONSES.search(self.finish(self.client(*options))[0])[1])

    def stop(self):
        """@return what the server counted: served, dropped, rejected; and its messages"""
        self.server.terminate()
        out, err = self.finish(self.server)
        return [int(number) for number in SERVED.search(out).groups()], err

    def sender(self, *options, **more):
        """A client without workers of its own; others attach to it."""
        self.name = f"test.{os.getpid()}.{time.monotonic_ns()}"
        self.sending = self.client("--serve", "--name", self.name, *options, **more)
        self.assertIn("up", next_line(self.sending))

    def wait_for_line(self, process, words):
        """Reads its log until a line has these words. @return the line"""
        while words not in (line := process.stderr.readline()):
            self.assertNotEqual(line, "", f"it has ended without a line with: {words}")
        return line

    def attached(self, *options):
        return self.start(
            self.client_place, "examples/shared_client", "--attach", self.name, *options)

    def worker(self, stage, *options):
        """One that has got as far as `stage`, and stays there."""
        process = self.start(
            self.client_place, "tests/faults/slot_worker", "--attach", self.name, "--stage", stage,
            *options)
        self.assertEqual(next_line(process), "here\n")
        return process

    def right(self, process):
        return int(RESPONSES.search(self.finish(process)[0])[1])


class Modes(Shared):
    def test_figures(self):
        self.serve()
        out, _ = self.finish(self.client("--latency", "--report", "1", "--seconds", "3"))
        percentiles = [
            float(number)
            for number in re.search(
                r"^latency: median (\S+) us, 90 % (\S+) us, 99 % (\S+) us, most (\S+) us$", out,
                re.MULTILINE).groups()]
        self.assertEqual(percentiles, sorted(percentiles))
        self.assertGreater(percentiles[0], 0)
        reports = [
            int(number) for number in re.findall(
                r'^requests_total{outcome="response"} (\d+)$', out, re.MULTILINE)]
        self.assertEqual(reports, sorted(reports))
        self.assertGreater(reports[-1], 0)
        self.assertLessEqual(reports[-1], int(RESPONSES.search(out)[1]))

    def test_every_mode(self):
        mixed = ["--mixed", "--in-flight", "8", "--requests", "100"]
        self.serve("--handler-threads", "2")
        before = self.resources(self.server_place, self.server)
        for options in (
            ["--in-flight", "16"],
            ["--group", "1", "--in-flight", "16"],
            ["--processes", "0", "--threads", "4"],
            [*mixed, "--size", "3000", "--response-size", "3000"],
            [
                *mixed, "--responses", "connection", "--size", "3000", "--response-size", "60000",
                "--slots", "256"],
            [
                *mixed, "--slots", "17", "--slot-size", "72", "--area-slots", "21", "--size", "300",
                "--response-size", "300"],
            [*mixed, "--connections", "3"],
            [*mixed, "--connections", "3", "--sender-threads", "2"],
            [*mixed, "--also", f"{self.server_place.address}:{self.port}", "--connections", "2"],
            [*mixed, "--window", "1"],
            ["--waiting", "events", "--sender-waits", "events"],
            ["--size", "0", "--response-size", "0"],
        ):
            with self.subTest(options=options):
                self.run_client(*options)
        self.wait_for_resources(before)
        (served, dropped, rejected), said = self.stop()
        self.assertEqual((dropped, rejected), (0, 0), said)
        self.assertEqual(served, 22)

    def test_a_chosen_server(self):
        """Of two different ones. Each connection's answers are counted by its server."""
        self.serve()
        first, first_port = self.server, self.port
        self.serve()
        also = f"{self.server_place.address}:{self.port}"
        self.port = first_port
        self.run_client("--also", also, "--to", "1", "--requests", "50")
        answered = []
        for self.server in (first, self.server):
            self.server.terminate()
            out, err = self.finish(self.server)
            answered.append(int(re.search(r"server: (\d+) messages", out)[1]))
        # A pong is a message, too.
        self.assertLess(answered[0], 100)
        self.assertGreaterEqual(answered[1], 400)

    def test_500_threads_of_one_process(self):
        self.serve("--handler-threads", "0")
        self.assertEqual(
            self.run_client(
                "--processes", "0", "--threads", "500", "--requests", "100", "--connections", "5",
                "--slots", "500", "--slot-size", "64"),
            50_000)

    def test_through_shared_memory_alone(self):
        """The program that it is compared with. Each response is checked there, and each process
        sleeps and is woken."""
        for processes, in_flight in ((1, 1), (40, 1), (25, 5)):
            with self.subTest(processes=processes, in_flight=in_flight):
                out, _ = self.finish(
                    self.start(
                        self.client_place, "tools/bench/opponents/memory_requests", "--processes",
                        str(processes), "--in-flight", str(in_flight), "--requests", "200"))
                self.assertRegex(
                    out,
                    (
                        rf"^{processes} processes, {in_flight} in flight: a request every [\d.]+"
                        r" us, CPU [\d.]+ us each\n$"))


class Faults(Shared):
    def test_server_killed(self):
        """Every thread of every worker gets an error at once; when there is a server again, the
        sender has connected again."""
        self.serve("--handler-threads", "20")
        self.sender()
        waiting = [
            self.worker("waiting", "--count", "4", "--microseconds", "60000000") for _ in range(4)]
        patient = self.attached("--patient", "--seconds", "10")
        self.server.kill()
        killed = time.monotonic()
        for worker in waiting:
            self.assertIn(f"4 failed: {BROKE}", self.finish(worker)[0])
        self.assertLess(time.monotonic() - killed, 60)  # which the requests would have taken
        _, err = self.finish(self.attached("--requests", "1"), 1)
        self.assertIn("there is no connection to the server; it has not been sent", err)
        self.serve(port=self.port)
        out, _ = self.finish(patient)
        lost = int(re.search(r"failed: (\d+) lost, \d+ not sent, 0 for other", out)[1])
        self.assertLessEqual(lost, 2)
        self.assertEqual(self.right(self.attached("--requests", "100")), 200)

    def test_server_frozen(self):
        """Its host acknowledges what comes, so only its loop can say that it lives."""
        self.serve()
        self.sender()
        self.send_signal(self.server_place, self.server, "STOP")
        self.assertIn("it has been silent for 5000 ms", self.sending.stderr.readline())
        self.send_signal(self.server_place, self.server, "CONT")
        while self.right(self.attached("--patient", "--requests", "100")) < 200:
            self.assertIsNone(self.sending.poll())  # it is not connected again yet

    def test_device_fails(self):
        """A call for the device that fails ends one connection, of the client or of the server, and
        neither of the processes: they connect again."""
        calls = ("ibv_req_notify_cq:20", "ibv_get_cq_event:20", "ibv_post_send:50")
        for side, call in itertools.product(("client", "server"), calls):
            with self.subTest(side, call=call):
                fails = dict(
                    preload="tools/inject/libverbs_inject.so",
                    environment=[f"VERBS_INJECT={call}:EIO"])
                self.serve("--waiting", "events", **(fails if side == "server" else {}))
                self.sender("--sender-waits", "events", **(fails if side == "client" else {}))
                load = self.attached("--patient", "--seconds", "3600")
                says = self.server if side == "server" else self.sending
                self.wait_for_line(says, "EIO")
                while self.right(self.attached("--patient", "--requests", "100")) < 200:
                    self.assertIsNone(load.poll())  # it is not connected again yet
                self.end(load)
                self.sending.terminate()
                self.finish(self.sending)
                served, dropped, _ = self.stop()[0]  # whichever side noticed the end first
                self.assertEqual(served + dropped, 2)

    def test_response_buffers_of_one_worker_fail(self):
        """Its request fails, and nothing else: the others do not lose their connection."""
        self.serve("--handler-threads", "20")  # none of them waits behind the others' long ones
        self.sender(
            "--responses", "connection", preload="tools/inject/libverbs_inject.so",
            environment=["VERBS_INJECT=ibv_reg_mr:3"])  # behind the two rings
        other = self.worker("waiting", "--microseconds", "3000000")
        one = ("--threads", "1", "--requests", "1")
        _, err = self.finish(self.attached(*one, "--responses", "connection"), 1)
        self.assertIn("it has not been sent", err)
        self.assertIn("0 failed", self.finish(other)[0])
        self.assertEqual(
            self.right(self.attached("--requests", "10", "--responses", "connection")), 20)
        self.sending.terminate()
        self.finish(self.sending)
        self.assertEqual(self.stop()[0][:2], [1, 0])  # one connection

    def test_server_drains(self):
        """SIGTERM in the middle of the load: what was sent is answered, and no request is lost."""
        self.serve("--handler-threads", "2")
        client = self.client("--patient", "--seconds", "3600", "--in-flight", "16", "--report", "1")
        self.assertIn("up", next_line(client))
        self.run_client("--requests", "5")
        (served, dropped, _), said = self.stop()
        self.assertEqual((served, dropped), (2, 0), said)
        outcomes = []
        while outcomes.count("not_sent") < 2:  # a whole report of the time without a server
            line = next_line(client)
            self.assertNotEqual(line, "", "the client has ended")
            if outcome := re.match(r'requests_total{outcome="(\w+)"} [1-9]', line):
                outcomes.append(outcome[1])
        self.assertEqual(set(outcomes), {"response", "not_sent"})

    def test_sender_killed(self):
        """Its workers get an error, and a new sender takes the name."""
        self.serve("--handler-threads", "8")
        self.sender()
        waiting = [
            self.worker("waiting", "--count", "2", "--microseconds", "60000000") for _ in range(3)]
        self.sending.kill()
        killed = time.monotonic()
        for worker in waiting:
            self.assertIn(f"2 failed: {BROKE}", self.finish(worker)[0])
        self.assertLess(time.monotonic() - killed, 60)  # which the requests would have taken
        name, self.name = self.name, None
        self.sending = self.client("--serve", "--name", name)
        self.assertIn("up", next_line(self.sending))
        self.name = name
        self.assertEqual(self.right(self.attached("--requests", "100")), 200)

    def test_worker_killed_at_every_stage(self):
        """The others go on, and what it had comes back: the rings are gone round many times."""
        self.serve("--handler-threads", "8")
        self.sender("--slots", "16")
        self.kill_workers()

    def test_worker_killed_that_several_threads_serve(self):
        self.serve("--handler-threads", "8", "--threads", "2")
        self.sender("--slots", "16", "--connections", "2", "--sender-threads", "2")
        self.kill_workers()

    def kill_workers(self):
        stopped = self.attached("--in-flight", "8", "--seconds", "3600")
        self.right(self.attached("--requests", "100"))
        self.send_signal(self.client_place, stopped, "STOP")  # wherever it is
        for stage in ("idle", "sent", "answered", "collecting", "hoarding"):
            with self.subTest(stage):
                victim = self.worker(stage, "--count", "8")
                victim.kill()
                self.assertEqual(
                    self.right(
                        self.attached(
                            "--requests", "100", "--size", "100", "--response-size", "100")),
                    200)
        self.assertIsNone(self.sending.poll())

    def test_worker_that_closes_its_descriptors(self):
        """It takes the sender for dead. The others know better, and nobody else gets its number
        before its answers have come."""
        self.serve("--handler-threads", "4")
        self.sender("--slots", "64")
        before = self.attached("--requests", "100", "--seconds", "3")
        closing = self.start(
            self.client_place, "tests/faults/slot_worker", "--attach", self.name, "--stage",
            "closing", "--count", "2")
        self.assertRegex(self.finish(closing)[0], rf"^({BROKE}.*\n){{2}}$")
        self.right(before)
        self.right(self.attached("--requests", "100"))
        self.assertIsNone(self.sending.poll())

    def test_worker_that_writes_random_words(self):
        """To its area, which is all that it can write to. No other worker loses a request, or an
        answer. But it uses CPUs, so the others may wait for long. LAB_HOSTILE_SECONDS=600 makes ten
        minutes of it."""
        seconds = os.environ.get("LAB_HOSTILE_SECONDS", "10")
        self.serve("--handler-threads", "2")
        self.sender("--largest", "4096", "--responses", "both")
        hostile = [
            self.worker("hostile", "--seconds", seconds, "--seed", str(random.randrange(1 << 31)))
            for _ in range(2)]
        steady = [
            self.attached(
                "--mixed", "--in-flight", "4", "--response-size", "600", "--seconds", seconds,
                "--timeout", "60")
            for _ in range(2)]
        for worker in steady:
            self.assertGreater(self.right(worker), 0)
        for worker in hostile:
            out, _ = self.finish(worker)
            self.assertGreater(int(out.split()[0]), 0)
            print(f"{self.id()}: {out}", end="")
        self.assertIsNone(self.sending.poll())
        self.assertEqual(self.right(self.attached("--requests", "100", "--timeout", "60")), 200)
        self.sending.terminate()
        self.assertEqual(self.finish(self.sending)[1], "")  # no connection was lost

    def test_worker_that_cancels_again_and_again(self):
        """The server hears of it once, so this takes the room in the ring from no other worker."""
        self.serve("--handler-threads", "3")
        self.sender("--responses", "connection", "--largest", "4096", "--report", "1")
        self.finish(
            self.start(
                self.client_place, "tests/faults/slot_worker", "--attach", self.name, "--stage",
                "cancelling"))
        # It has asked twice more, and the second answer came after 2000 cancels.
        while not re.match(r'requests_total{outcome="response"} [2-9]', next_line(self.sending)):
            pass
        while not (messages := re.match(r"messages_total (\d+)", next_line(self.sending))):
            pass
        self.assertLess(int(messages[1]), 500)

    def test_requests_of_a_client_that_has_gone_hold_nobody_up(self):
        """Those that wait for a thread of the pool are not worked on. And the server ends though
        one is, asleep until then."""
        self.serve("--handler-threads", "1", "--grace", "1")
        self.sender()
        self.worker("sent", "--count", "100")
        self.sending.kill()
        self.assertEqual(self.run_client("--processes", "1", "--requests", "10"), 20)
        self.sender()
        self.worker("sent", "--count", "1", "--microseconds", "4000000")
        self.server.terminate()
        out, err = self.finish(self.server)
        self.assertLess(
            float(re.search(r"each message: .* ([\d.]+) sleeps", out)[1]), 100, out + err)

    def test_answers_that_nobody_collects(self):
        """They take room in their own process's area alone."""
        self.serve()
        self.sender("--slots", "16", "--area-slots", "16")
        hoarder = self.worker("hoarding")
        self.assertEqual(self.right(self.attached("--requests", "200")), 400)
        out, _ = hoarder.communicate("x", timeout=600)
        self.assertEqual(out, "all of 16 are still there\n")

    def test_requests_whose_slots_overlap(self):
        """However a worker cuts its area up, it has no more under way than that."""
        self.serve()
        self.sender("--area-slots", "16")
        worker = self.start(
            self.client_place, "tests/faults/slot_worker", "--attach", self.name, "--stage",
            "overlapping")
        self.assertEqual(self.finish(worker)[0], "1 of 16 are answered\n")

    def test_slow_request_does_not_hold_up_the_others(self):
        """However often the ring is gone round meanwhile."""
        self.serve("--handler-threads", "2")
        self.sender("--slots", "16")
        slow = self.attached(
            "--threads", "1", "--requests", "1", "--microseconds", "6000000", "--timeout", "20")
        fast = self.attached("--threads", "1", "--requests", "200")
        self.assertEqual(self.right(fast), 200)
        self.assertIsNone(slow.poll())
        self.assertEqual(self.right(slow), 1)

    def test_area_full(self):
        """A request waits for a slot of its own process's."""
        self.serve("--handler-threads", "16")
        self.sender("--area-slots", "4")
        crowd = self.attached(
            "--threads", "5", "--requests", "1", "--microseconds", "1000000", "--timeout", "600")
        self.assertEqual(self.right(crowd), 5)

    def test_requests_and_responses_that_do_not_fit(self):
        self.serve()
        self.sender()
        for stage, words in (
            ("too-long", "longer than the slots have room for: 1048576 bytes, and at most 65536"),
            (
                "no-room",
                "its response is too long: "
                "RequestOptions::max_response too small: 5000 > 64 bytes"),
            ("failing", "the server could not answer it: the service: it was asked to fail"),
            ("too-slow", "the service: it was asked to work for more than 60 s"),
        ):
            with self.subTest(stage):
                process = self.start(
                    self.client_place, "tests/faults/slot_worker", "--attach", self.name, "--stage",
                    stage)
                self.assertIn(words, self.finish(process, 1)[1])
        self.assertEqual(
            self.right(self.attached("--size", "0", "--response-size", "0", "--requests", "10")), 20
        )

    def refused(self, words, *options):
        """The server does not take a client with these options; the client would try again."""
        client = self.client(*options)
        self.wait_for_line(client, words)
        self.end(client)

    def test_server_at_its_limits(self):
        self.serve("--at-once", "1", "--max-slots", "4096", "--max-memory", "1")
        for options, words in (
            (["--slots", "8192"], "so many slots, or such large ones"),
            (["--responses", "connection"], "so many slots, or such large ones"),
        ):
            self.refused(words, *options)
        self.sender()
        self.refused("it has as many connections as it takes")
        self.assertEqual(self.right(self.attached("--requests", "10")), 20)

    def test_server_with_no_memory_left(self):
        """The limit is for all connections, and what one gives back another gets."""
        self.serve("--total-memory", "1")
        self.sender()
        self.refused("its clients have all the memory that it gives to clients")
        self.assertEqual(self.right(self.attached("--requests", "10")), 20)
        self.sending.terminate()
        self.finish(self.sending)
        self.run_client("--requests", "10", "--timeout", "60")

    def test_memory_of_a_client_holds_nobody_up(self):
        """While the server registers it, the other clients' requests go on."""
        self.serve(preload="tests/faults/libslow_memory.so")
        self.sender()
        large = self.client("--slots", "16384", "--requests", "10", "--timeout", "60")
        self.assertEqual(next_line(self.server), "at the breakpoint\n")
        self.assertEqual(self.right(self.attached("--requests", "100")), 200)
        self.assertIsNone(large.poll())
        self.let_through(self.server)
        self.right(large)

    def test_memory_of_a_lane_holds_nobody_up(self):
        """While the sender registers it, workers join, and their requests go by the other lane.
        That takes longer than the lane may take to connect: it is given up, waits for the
        registration, and is made anew."""
        self.serve()
        self.name = f"test.{os.getpid()}.{time.monotonic_ns()}"
        self.sending = self.start(
            self.client_place, "examples/shared_client", "--host", self.server_place.address,
            "--cm-port", self.port, "--responses", "slots", "--serve", "--name", self.name,
            "--connections", "2", "--slots", "16384", "--timeout", "60",
            preload="tests/faults/libslow_memory.so")
        self.assertEqual(next_line(self.sending), "at the breakpoint\n")
        self.assertGreater(self.right(self.attached("--patient", "--seconds", "7")), 0)
        self.let_through(self.sending)
        self.assertIn("2 connections are up", next_line(self.sending))
        self.assertEqual(self.right(self.attached("--requests", "100")), 200)

    def test_worker_that_dies_while_its_memory_is_registered(self):
        """The sender registers the buffers of a worker that wants a long response. When that is
        done, it unmaps the area of this one, which has gone."""
        self.serve()
        self.sender(
            "--responses", "connection", "--largest", "131072",
            preload="tests/faults/libslow_memory.so")
        worker = self.attached("--threads", "1", "--requests", "1", "--timeout", "60")
        self.assertEqual(next_line(self.sending), "at the breakpoint\n")
        self.send_signal(self.client_place, worker, "KILL")
        worker.wait()
        self.let_through(self.sending)
        deadline = time.monotonic() + 60
        while "rdma_area" in self.at(self.client_place, "cat", f"/proc/{self.sending.guest}/maps"):
            self.assertLess(time.monotonic(), deadline)
        self.assertEqual(self.right(self.attached("--requests", "100")), 200)


class Ways(Shared):
    def test_every_way_to_wait(self):
        """On all sides, with both response modes in one connection."""
        ways = ("poll", "events", "adaptive")
        for server in ways:
            self.serve("--handler-threads", "1", "--waiting", server)
            for sender, caller in itertools.product(ways, ways):
                with self.subTest(server=server, sender=sender, caller=caller):
                    self.run_client(
                        "--sender-waits", sender, "--waiting", caller, "--responses", "connection",
                        "--mixed", "--in-flight", "4", "--requests", "20", "--processes", "2",
                        "--response-size", "1000")
            (served, dropped, rejected), said = self.stop()
            self.assertEqual((served, dropped, rejected), (9, 0, 0), said)


class FaultsOfLongResponses(Shared):
    """The same, with responses that come by a connection of their own."""

    responses = "connection"
    test_server_killed = Faults.test_server_killed
    test_server_drains = Faults.test_server_drains
    test_worker_killed_at_every_stage = Faults.test_worker_killed_at_every_stage
    kill_workers = Faults.kill_workers


# What the server says of a client that lies, by the lie.
DROPPED = {
    "kind": "a request: it is of an unknown kind",
    "cancel-late": "a request: it is of an unknown kind",
    "answer": "a request: it is of an unknown kind",
    "long": "a request: the client has too many requests for long responses",
    "length": "the peer's message: it ends before its length",
    "huge": "the peer's message: it is longer than the ring",
    "max-response": "a request: its response cannot be so long",
    "post-max-response": "a request: its response cannot be so long",
    "no-header": "the peer's message: it is too short for a header",
    "bytes": "the peer's run: 24 bytes are not 2 slots",
    "no-bytes": "the peer's run: 0 bytes are not 1 slots",
    "beyond": "the peer's run: it is not the one that must come next",
    "far-beyond": "the peer's run: it is not the one that must come next",
    "not-next": "the peer's run: it is not the one that must come next",
    "twice": "the peer's run: it is not the one that must come next",
    "no-rtu": "the peer's run: it is not the one that must come next",
    "cut": "the peer's run: it is not the one that must come next",
    "credits": "the peer: it says that it has taken more runs than were sent",
    "window": "a request: the client has more requests under way than its window",
    "send": "the peer's message: it is not an RDMA WRITE with immediate data",
    "rkey": "completed with status 10, remote access error",
    "data-rkey": "completed with status 10, remote access error",
    "half-connected": "it does not finish connecting",
}
REJECTED = {
    "version": "it speaks another version of the protocol",
    "stranger": "it knows no session for this data connection",
} | dict.fromkeys(
    (
        *("magic", "nothing", "slots-7", "slots-many", "slot-size", "window-0", "long-responses",
          "largest"),
        "purpose"),
    "it does not understand our request")
# A data connection that the session does not want. The session itself goes on.
UNWANTED = dict.fromkeys(
    ("data-twice", "data-unwanted"), "it cannot take this client; its log says why")
# What the sender says of a server that lies.
LIES_OF_SERVERS = {
    "kind": "the server's message: it is of an unknown kind",
    "request": "the server's message: it is of an unknown kind",
    "pong": "the server's message: it answers no ping",
    "length": "the peer's message: it ends before its length",
    "huge": "the peer's message: it is longer than the ring",
    "beyond": "the peer's run: it is not the one that must come next",
    "credits": "the peer: it says that it has taken more runs than were sent",
    "welcome": "the server: its Welcome message is not valid",
    "no-window": "the server: its Welcome message has a window of 0",
} | dict.fromkeys(
    ("slot", "no-slot", "generation", "worker", "no-worker", "long", "max-response", "twice"),
    "the server's answer: it belongs to no request")

# To clients whose requests want a long response.
LIES_OF_LONG_RESPONSES = dict.fromkeys(
    ("long-twice", "long-huge", "long-in-slots"), "the server's answer: it belongs to no request")


class Liars(Shared):
    def lie(self, place, lies, *options):
        return self.start(place, "tests/faults/lying_slots", "--lies", ",".join(lies), *options)

    def test_clients_that_lie_are_dropped_and_the_others_served(self):
        self.serve("--timeout", "3")
        before = self.resources(self.server_place, self.server)
        honest = self.client("--seconds", "8", "--mixed")
        self.assertIn("up", next_line(honest))
        where = ("--host", self.server_place.address, "--cm-port", self.port)
        rejected = {lie: f"rejected: {why}" for lie, why in (REJECTED | UNWANTED).items()}
        for lies, ends in (
            (DROPPED, dict.fromkeys(DROPPED, "DISCONNECTED")),
            (rejected, rejected),
        ):
            out, _ = self.finish(self.lie(self.client_place, lies, *where))
            self.assertEqual(out.splitlines(), [f"{lie}: {end}" for lie, end in ends.items()])
        self.assertIsNotNone(RESPONSES.search(self.finish(honest)[0]))
        self.run_client()
        self.wait_for_resources(before)
        counts, said = self.stop()
        for words in DROPPED.values():
            self.assertGreaterEqual(said.count(words), list(DROPPED.values()).count(words), words)
        self.assertEqual(said.count("a data connection: this session expects none"), len(UNWANTED))
        # served, dropped, rejected
        self.assertEqual(counts, [2 + len(UNWANTED), len(DROPPED), len(rejected)], said)

    def test_a_client_that_waits_for_no_credit_is_dropped(self):
        """While its first request still runs. Else the server would remember all that comes."""
        self.serve("--max-memory", "1")
        where = ("--host", self.server_place.address, "--cm-port", self.port)
        began = time.monotonic()
        out, _ = self.finish(self.lie(self.client_place, ["no-credit"], *where))
        self.assertEqual(out, "no-credit: DISCONNECTED\n")
        self.assertLess(time.monotonic() - began, 10)
        self.assertIn("the peer's run: there was no credit for it", self.stop()[1])

    def test_a_client_that_does_not_finish_connecting_does_not_count(self):
        """The server ends after one other client. That one may need more than one try, too: on a
        busy machine, a second is short."""
        self.serve("--timeout", "1", clients="1")
        where = ("--host", self.server_place.address, "--cm-port", self.port)
        for lie in ("half-connected", "half-left"):
            # The server rejects a client until it has counted the one before.
            while self.finish(self.lie(self.client_place, [lie], *where))[0] != (
                f"{lie}: DISCONNECTED\n"
            ):
                pass
        self.run_client()
        out, _ = self.finish(self.server)
        served, dropped, _ = (int(number) for number in SERVED.search(out).groups())
        self.assertEqual(served, 1, out)
        self.assertGreaterEqual(dropped, 2, out)

    def leaves(self, lies, *options):
        """The client leaves a server for each of these lies, and each time it connects again."""
        liar = self.lie(self.server_place, lies, "--cm-port", "0")
        self.port = re.match(r"listening on rdma_cm port (\d+)", next_line(liar))[1]
        client = self.client(
            "--slots", "2048", "--slot-size", "64", "--serve", "--name", f"test.{os.getpid()}",
            *options)
        self.assertIn("up", next_line(client))
        self.name = f"test.{os.getpid()}"
        worker = self.attached(
            "--threads", "1", "--size", "0", "--response-size", "0", "--patient", "--seconds",
            "3600")
        out, _ = self.finish(liar)
        self.assertEqual(out.splitlines(), [f"{lie}: DISCONNECTED" for lie in lies])
        self.assertIsNone(worker.poll())
        client.terminate()
        _, err = self.finish(client)
        for words in lies.values():
            self.assertIn(words, err)

    def test_servers_that_lie_are_left(self):
        self.leaves(LIES_OF_SERVERS)

    def test_servers_that_lie_about_long_responses_are_left(self):
        self.leaves(LIES_OF_LONG_RESPONSES, "--responses", "connection", "--largest", "64")

    def test_server_that_accepts_and_lies_each_time(self):
        """The client comes back later each time: after 0.1 s at least, then 0.2, 0.4, 0.8, 1.6."""
        liar = self.lie(self.server_place, ["kind"] * 6, "--cm-port", "0", "--timeout", "60")
        self.port = re.match(r"listening on rdma_cm port (\d+)", next_line(liar))[1]
        began = time.monotonic()
        self.client(
            "--slots", "2048", "--slot-size", "64", "--processes", "1", "--threads", "1", "--size",
            "0", "--response-size", "0", "--patient", "--seconds", "3600")
        self.finish(liar)
        self.assertGreater(time.monotonic() - began, 3.1)

    def test_server_that_says_nothing(self):
        liar = self.lie(self.server_place, ["silence"], "--cm-port", "0", "--timeout", "60")
        self.port = re.match(r"listening on rdma_cm port (\d+)", next_line(liar))[1]
        self.sender("--slots", "2048", "--slot-size", "64")
        _, err = self.finish(self.attached("--requests", "1", "--timeout", "2"), 1)
        self.assertIn("no answer within its time limit", err)


class Soak(Shared):
    """A minute of all that there is; LAB_SOAK_SECONDS says how much longer.

    Two servers run, each with a sender of its own. The first pair serves three steady workers, and
    nothing ever breaks its connections. But other workers and other clients come, and are killed
    in the middle of their load. The second server is killed again and again. So its sender
    connects again and again. When the load is over, the processes that live on hold what they
    held before it.
    """

    seconds = int(os.environ.get("LAB_SOAK_SECONDS", "60"))
    load = ("--mixed", "--in-flight", "8", "--size", "1000", "--response-size", "1000")
    kinds = ("qp", "cq", "mr", "pd", "cm_id")
    counts = ("shared KiB", "descriptors", "threads", *kinds)
    columns = ("live bytes", *counts)
    # Bytes. A queue that was long once keeps its memory; it has at most as many entries as the ring
    # has slots.
    most_kept = 1 << 18
    sampling = (
        "for process; do od -An -td8 -N8 /proc/$process/fd/900; "  # live_bytes.cpp
        "awk '/^[0-9a-f]+-/ {shared = $2 ~ /s/} /^Size:/ && shared {sum += $2} END {print sum}'"
        " /proc/$process/smaps; "
        "ls /proc/$process/fd | wc -l; echo $(ls /proc/$process/task); done; "
        f"for kind in {' '.join(kinds)}; do rdma -j resource show $kind; done")

    def sample(self, place, *processes):
        """@return for each process, the columns"""
        lines = self.at(
            place, "sh", "-c", self.sampling, "sh", *(str(process.guest) for process in processes)
        ).splitlines()
        # Newer versions of rdma(8) write an array over several lines.
        text = "".join(lines[4 * len(processes) :])
        resources, at = [], 0
        for _ in self.kinds:
            kind, at = json.JSONDecoder().raw_decode(text, at)
            resources.append(kind)
        samples = []
        for i in range(0, 4 * len(processes), 4):
            threads = {int(number) for number in lines[i + 3].split()}
            counted = (sum(entry.get("pid") in threads for entry in kind) for kind in resources)
            samples.append((*map(int, lines[i : i + 3]), len(threads), *counted))
        return samples

    def take_samples(self, like=None):
        """Waits until only the senders are connected, and the counts are those of `like`:
        the server frees the resources of a killed client soon, and not at once."""
        deadline = time.monotonic() + 300
        while True:
            now = self.sample(self.server_place, self.server)
            now += self.sample(self.client_place, self.sending, self.unlucky)
            counts = [one[1:] for one in now]
            is_connected = [one[self.columns.index("qp")] for one in now] == [2, 2, 1]
            if is_connected and counts == [one[1:] for one in like or now]:
                break
            if time.monotonic() > deadline:
                self.fail(f"{self.counts} are {counts}\n{self.table()}")
        self.samples.append(now)
        self.drain()

    def kill(self, process):
        # the shell's own: a minimal system has no kill(1)
        self.at(process.place, "sh", "-c", f"kill -9 {process.guest}")
        process.communicate(timeout=600)

    def start(self, place, program, *options, preload=""):
        process = super().start(
            place, program, *options, preload=preload or "tests/faults/liblive_bytes.so")
        process.place = place
        return process

    def one_round(self, number):
        # In the middle of its load, wherever it is then.
        victim = self.attached(*self.load, "--seconds", "3600")
        client = self.client(*self.load, "--seconds", "3600")
        self.assertIn("up", next_line(client))
        # The second server: killed, or asked to end while requests are under way.
        first, first_port = self.server, self.port
        self.server, self.port = self.doomed, self.doomed_port
        if number % 2:
            self.kill(self.server)
        else:
            self.stop()
        self.serve("--handler-threads", "2", port=self.port)
        self.doomed, self.server, self.port = self.server, first, first_port
        self.kill(victim)
        self.kill(client)

    def drain(self):
        """Reads what the sender that reconnects says about it: the pipe must not fill up."""
        while select.select([self.unlucky.stderr], [], [], 0)[0]:
            self.assertNotEqual(os.read(self.unlucky.stderr.fileno(), 1 << 16), b"")

    def table(self):
        """About ten of the samples."""
        names = ("server", "sender", "sender that reconnects")
        lines = []
        for which, name in enumerate(names):
            lines.append(f"{name}:\n{'round':>6}" + "".join(f"{it:>12}" for it in self.columns))
            for number in range(0, len(self.samples), max(1, len(self.samples) // 10)):
                row = self.samples[number][which]
                lines.append(f"{number:6}" + "".join(f"{value:12}" for value in row))
        return "\n".join(lines)

    def test_mixed_load(self):
        """Every response matches its request by checksum. Memory, descriptors and the device's
        resources stay as they are. Never an RNR."""
        self.samples = []
        self.serve("--handler-threads", "2")
        self.doomed, self.doomed_port = self.server, self.port
        self.sender("--slots", "256")
        self.unlucky, unlucky_name = self.sending, self.name
        self.serve("--handler-threads", "2")
        self.sender("--slots", "256", "--connections", "2")
        self.take_samples()
        seconds = ("--seconds", str(self.seconds - 10))
        steady = [self.attached(*self.load, *seconds) for _ in range(3)]
        name, self.name = self.name, unlucky_name
        patient = self.attached(*self.load, "--patient", *seconds)
        self.name = name
        rounds = 0
        while all(worker.poll() is None for worker in steady):
            self.one_round(rounds)
            self.take_samples()
            rounds += 1
        responses = sum(self.right(worker) for worker in [*steady, patient])
        self.take_samples(self.samples[0])
        print(f"{rounds} rounds, {responses} responses\n{self.table()}")
        for before, after in zip(self.samples[0], self.samples[-1]):
            self.assertLess(after[0], before[0] + self.most_kept, self.table())
        self.sending.terminate()
        _, err = self.finish(self.sending)
        # no connection was lost: an RNR would be the end of one, since rnr_retry_count is 0
        self.assertEqual(err, "")
        self.unlucky.terminate()
        self.finish(self.unlucky)
        # A killed client is dropped if the server was about to answer it.
        (served, dropped, rejected), said = self.stop()
        self.assertEqual((served + dropped, rejected), (2 + rounds, 0), said)
