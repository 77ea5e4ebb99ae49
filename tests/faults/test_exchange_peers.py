# SPDX-License-Identifier: MIT
"""Peers that send too much, too little, nonsense or nothing: an error that says what, and soon."""
import concurrent.futures
import subprocess
import sys
import time
import unittest

import needs_device

LINE = "0000:000011:123456:00000000000000000000ffff0a4d0001"
PEER = str(needs_device.ROOT / "tests/faults/lying_peer.py")
LIMIT = 300  # seconds; the programs get a time limit of 2 s, and would otherwise wait forever


def start(*argv):
    return subprocess.Popen(
        needs_device.PLACE.wrap(list(argv)), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True)


def port_of(process):
    said = ""
    for line in process.stdout:
        if "listening on TCP port" in line:
            return line.split()[-1]
        said += line
    raise AssertionError(f"it never listened: {said!r}, {process.wait()}")


class LyingPeer(unittest.TestCase):
    """lying_peer.py does the lying, since it has to be where the device is."""

    def against_server(self, what, program="send_recv"):
        server = start(needs_device.program(program), "--tcp-port", "0", "--timeout", "2")
        client = start(sys.executable, "-S", PEER, "client", port_of(server), what)
        output, _ = server.communicate(timeout=600)
        client.communicate(timeout=600)
        return server.returncode, output

    def against_client(self, what, program="send_recv"):
        server = start(sys.executable, "-S", PEER, "server", "0", what)
        client = start(
            needs_device.program(program), "--host", "127.0.0.1", "--tcp-port", port_of(server),
            "--timeout", "2")
        output, _ = client.communicate(timeout=600)
        server.communicate(timeout=600)
        return client.returncode, output

    CASES = {
        "nothing": "0 of 56 bytes came within 2 s",
        "close": "the peer's address: the peer closed the connection before it came",
        "half": "closed the connection after 20 of 56 bytes",
        "half-and-wait": "only 20 of 56 bytes came within 2 s",
        "too-much": "more than the 56 bytes expected",
        "flood": "more than the 56 bytes expected",
        "nonsense": "is not the rest of LID:QPN:PSN:GID:MTU",
        "short-field": "QPN is '11', not 6 hexadecimal digits",
        "no-such-mtu": "MTU is '1500', not 0256, 0512, 1024, 2048 or 4096",
        "not-hex": "PSN is '12x456', not 6 hexadecimal digits",
        "binary": "LID is '\\x80\\x81\\x82\\x83', not 4 hexadecimal digits",
    }

    def all_cases(self, against):
        """Side by side, since most of them wait for a time limit."""

        def run(what):
            began = time.monotonic()
            return *against(what), time.monotonic() - began

        with concurrent.futures.ThreadPoolExecutor(3) as pool:
            results = dict(zip(self.CASES, pool.map(run, self.CASES)))
        for what, (status, output, seconds) in results.items():
            with self.subTest(what):
                self.assertEqual(status, 1, output)
                self.assertIn(self.CASES[what], output)
                self.assertIn("#peer-ended" if what == "close" else "#bad-exchange", output)
                self.assertLess(seconds, LIMIT)

    def test_server(self):
        self.all_cases(self.against_server)

    def test_client(self):
        self.all_cases(self.against_client)

    def test_wrong_done(self):
        status, output = self.against_server("wrong-done")
        self.assertEqual(status, 1, output)
        self.assertIn("it sent 'nope'", output)

    def test_two_messages_at_once(self):
        """No lie: a fast client's two words may arrive together."""
        status, output = self.against_server("both-dones", "read_write")
        self.assertEqual(status, 0, output)
        self.assertIn("my memory after", output)

    def test_peer_without_gid(self):
        status, output = self.against_server("no-gid")
        self.assertEqual(status, 1, output)
        self.assertIn("ibv_modify_qp(RTR)", output)

    def test_peer_that_never_sends(self):
        """A right address and then silence: the receive is given up."""
        status, output = self.against_server("silent")
        self.assertEqual(status, 1, output)
        self.assertIn("the receive: no completion within 2 s", output)

    MEMORY = {
        "no-memory": "is not LID:QPN:PSN:GID:MTU:ADDRESS:RKEY:LENGTH",
        "gap": "is not LID:QPN:PSN:GID:MTU:ADDRESS:RKEY:LENGTH",
        "half-memory": "is not the rest of ADDRESS:RKEY:LENGTH",
        "short-rkey": "RKEY is '1234', not 8 hexadecimal digits",
        "past-the-end": "its memory ends past the last address that there is",
    }

    def test_memory(self):
        for what, says in self.MEMORY.items():
            for against in (self.against_server, self.against_client):
                with self.subTest(what, against=against.__name__):
                    status, output = against(what, "read_write")
                    self.assertEqual(status, 1, output)
                    self.assertIn(says, output)

    def test_memory_that_is_too_small(self):
        status, output = self.against_client("too-small", "read_write")
        self.assertEqual(status, 1, output)
        self.assertIn("the peer's memory: it shares only 4 bytes", output)

    def test_words_that_are_not_there(self):
        for what in ("too-small", "odd-address"):
            with self.subTest(what):
                status, output = self.against_client(what, "atomics")
                self.assertEqual(status, 1, output)
                self.assertIn("the peer's memory: the words are not in it", output)

    def test_memory_of_nobody(self):
        status, output = self.against_client("no-such-qp", "read_write")
        self.assertEqual(status, 1, output)
        self.assertIn("the WRITE: completed with status 12", output)

    def test_messages_that_were_not_sent(self):
        """The peer says that they have arrived, and has sent none: nobody sleeps forever for their
        event."""
        status, output = self.against_server("eager", "completions")
        self.assertEqual(status, 1, output)
        self.assertIn("the completion: no event within 2000 ms", output)

    def test_messages_that_nobody_takes(self):
        status, output = self.against_client("eager", "completions")
        self.assertEqual(status, 1, output)
        self.assertIn("a SEND: completed with status 12", output)


if __name__ == "__main__":
    needs_device.main()
