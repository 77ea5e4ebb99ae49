# SPDX-License-Identifier: MIT
"""13_cm_many_clients under load, and with clients that die, lie, say nothing, or come too many at a
time."""
import json
import re
import subprocess
import time
import unittest

import needs_device
from lines import next_line

PLACE = needs_device.PLACE
SERVER = needs_device.program("many_server")
CLIENT = needs_device.program("many_client")
LIAR = str(needs_device.BUILD / "tests/faults/lying_cm")
SERVED = re.compile(
    r"served (\d+) clients, (\d+) of them rping's, at most (\d+) at once; rejected (\d+), dropped"
    r" (\d+)")
LIES = {
    "short": "the peer's description: it has 20 bytes, not 24",
    "version": "the peer's description: it is of version 7, not 1",
    "empty": "the peer's description: its memory has no bytes",
    "wraps": "the peer's description: its memory ends past the last address",
    "silence": "the client: it has sent no message for 10000 ms",
    "other-protocol": "of rping's: rping's message: it has 24 bytes, not 16",
    "rping-huge": "of rping's: rping's message: its buffer is impossible",
    "rping-address": "of rping's: a request: completed with status 10, remote access error",
}


def start(argv):
    return subprocess.Popen(
        PLACE.wrap(argv), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True)


def resources():
    shown = subprocess.run(
        PLACE.wrap(["rdma", "-j", "resource"]), capture_output=True, text=True, check=True,
        timeout=600)
    return next(
        {kind: link[kind] for kind in ("qp", "cq", "mr", "pd", "cm_id")}
        for link in json.loads(shown.stdout)
        if link["ifname"] == PLACE.device)


class Many(unittest.TestCase):
    def serve(self, *options, port="0"):
        self.server = start([SERVER, "--clients", "0", "--cm-port", port, *options])
        self.addCleanup(self.end, self.server)
        self.port = re.match(r"listening on rdma_cm port (\d+)", next_line(self.server))[1]

    def end(self, process):
        if process.poll() is None:
            process.kill()
        process.communicate()

    def client(self, *options, program=CLIENT):
        if program == CLIENT:
            options = ("--rude", "0", "--verbose", *options)
        process = start([program, "--host", PLACE.address, "--cm-port", self.port, *options])
        self.addCleanup(self.end, process)
        return process

    def finish(self, process, status=0):
        out, err = process.communicate(timeout=600)
        self.assertEqual(process.returncode, status, out + err)
        return out, err

    def stop(self):
        """@return what the server counted: served, of rping's, at most at once, rejected, dropped;
        and its messages"""
        self.server.terminate()
        out, err = self.finish(self.server)
        return [int(number) for number in SERVED.search(out).groups()], err

    def until_connected(self, clients):
        """The server's queue pairs are there, and so are the clients'; the device has one of its
        own."""
        deadline = time.monotonic() + 300
        while resources()["qp"] < 1 + 2 * clients:
            self.assertLess(time.monotonic(), deadline)

    def test_sixty_four_at_once(self):
        """20 of them rping's own, which compares what comes back (-V), and prints it (-v). Its exit
        status does not count: in rdma-core 44, two of its threads race at its end (test_trace).
        """
        before = resources()
        self.serve()
        script = (
            f"for i in $(seq 20); do rping -c -C 100 -V -v -a {PLACE.address} -p {self.port} | "
            "grep -c '^ping data: ' & done; wait")
        rpings = start(["sh", "-c", script])
        self.addCleanup(self.end, rpings)
        ours = self.client("--clients", "44", "--rounds", "200")
        self.finish(ours)
        out, err = self.finish(rpings)
        self.assertEqual(out, "100\n" * 20, err)
        (served, rping, most, rejected, dropped), said = self.stop()
        self.assertEqual((served, rping, rejected, dropped), (64, 20, 0, 0), said)
        self.assertGreaterEqual(most, 44)
        self.assertEqual(resources(), before)

    def test_lesson_12s_client_is_served(self):
        self.serve()
        out, _ = self.finish(
            self.client("the same protocol", program=needs_device.program("cm_client")))
        self.assertIn("they are the same", out)
        self.assertEqual(self.stop()[0], [1, 0, 1, 0, 0])

    def test_killed_in_the_middle(self):
        before = resources()
        self.serve()
        victims = self.client("--clients", "4", "--rounds", "1000000000")
        self.until_connected(4)
        victims.kill()
        self.finish(self.client("--clients", "2"))
        (served, _, _, rejected, dropped), said = self.stop()
        self.assertEqual((served, rejected), (6, 0), said)
        self.assertEqual(resources(), before)

    def test_clients_that_lie_are_dropped_and_the_others_served(self):
        before = resources()
        self.serve("--timeout", "10")
        honest = self.client("--clients", "2", "--rounds", "1000000000")
        self.until_connected(2)
        liars = [self.client("--lie", lie, "--wait", "60", program=LIAR) for lie in LIES]
        for liar in liars:
            self.finish(liar)
        _, err = self.finish(self.client("--lie", "other-version", program=LIAR), 1)
        self.assertIn("REJECTED", err)
        self.assertIsNone(honest.poll())
        honest.kill()
        self.finish(self.client())
        (served, _, _, rejected, dropped), said = self.stop()
        for words in LIES.values():
            self.assertIn(words, said)
        self.assertEqual((served, rejected, dropped), (2 + 8, 1, len(LIES)), said)
        self.assertEqual(resources(), before)

    def test_storm(self):
        self.serve()
        self.finish(self.client("--clients", "1", "--times", "200", "--rounds", "1"))
        self.finish(self.client("--clients", "50", "--times", "4", "--rounds", "0"))
        self.assertEqual(self.stop()[0][0], 400)

    def test_at_its_limit(self):
        self.serve("--at-once", "2")
        holders = self.client("--clients", "2", "--rounds", "1000000000")
        self.until_connected(2)
        out, err = self.finish(self.client("--clients", "1", "--attempts", "2"), 1)
        self.assertEqual(
            (out + err).count("the server rejects: it has as many clients as it takes"), 2,
            out + err)
        holders.kill()
        self.finish(self.client("--clients", "1"))  # who comes back until there is room
        served, most = (lambda counts: (counts[0], counts[2]))(self.stop()[0])
        self.assertEqual((served, most), (3, 2))

    def test_comes_back_after_a_restart(self):
        self.serve()
        client = self.client("--clients", "2", "--rounds", "10000")
        self.until_connected(2)
        self.server.kill()
        self.server.communicate()
        self.serve(port=self.port)
        out, _ = self.finish(client)
        self.assertRegex(out, r"client [01], after \d+ rounds: .*(\n.*)?; again in \d+ ms")
        self.stop()

    def test_gives_up_at_last(self):
        self.port = "4"  # nobody listens there
        began = time.monotonic()
        out, err = self.finish(self.client("--clients", "1", "--attempts", "4"), 1)
        self.assertIn("invalid service ID", err)
        pauses = [int(pause) for pause in re.findall(r"again in (\d+) ms", out)]
        self.assertEqual(len(pauses), 3, out)
        for pause, longest in zip(pauses, (50, 100, 200)):
            self.assertTrue(longest / 2 <= pause <= longest, pauses)
        self.assertGreater(time.monotonic() - began, sum(pauses) / 1000)

    def test_running_transfers_finish(self):
        """The grace is longer than this test may take: how fast the clients are does not matter."""
        self.serve("--grace", "3600")
        client = self.client("--clients", "2", "--rounds", "25000")
        self.until_connected(2)
        self.server.terminate()
        self.assertIn("closing: no new clients, and 2 may finish", next_line(self.server))
        _, err = self.finish(self.client("--clients", "1", "--attempts", "1"), 1)
        self.assertIn("the server rejects: it is about to end", err)
        self.finish(client)
        out, err = self.finish(self.server)
        self.assertEqual(SERVED.search(out).groups(), ("2", "0", "2", "1", "0"), err)

    def test_within_a_limit(self):
        self.serve("--grace", "1")
        client = self.client("--clients", "2", "--rounds", "1000000000", "--attempts", "1")
        self.until_connected(2)
        self.server.terminate()
        self.finish(self.server)
        self.finish(client, 1)

    def test_port_taken(self):
        self.serve()
        second = start([SERVER, "--cm-port", self.port])
        self.assertIn("troubleshooting.md#cm-port-taken", self.finish(second, 1)[1])


if __name__ == "__main__":
    needs_device.main()
