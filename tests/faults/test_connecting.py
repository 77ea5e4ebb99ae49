# SPDX-License-Identifier: MIT
"""What can go wrong with a connection by rdma_cm: every error event, and peers that lie. Those
events that take a network are in two_hosts/test_cm_events.py."""
import os
import re
import subprocess
import unittest

import liars
import needs_device

os.chdir(needs_device.BUILD / "tests/faults")  # LD_PRELOAD takes a space for the end of a path
LIAR = str(needs_device.BUILD / "tests/faults/lying_cm")
GIVEN_UP = str(needs_device.BUILD / "tests/faults/given_up")
SERVER = needs_device.program("cm_server")
CLIENT = needs_device.program("cm_client")
FREE_PORT = "4"  # nobody listens there
NO_EVENT = "no event within 2000 ms"

LIES = {
    "server": {
        "other-version": "the client's request: it speaks another version",
        "other-protocol": "the client's request: it speaks another version",
        "no-length": "the client's request: it needs 0 bytes, and may have 1 to 1024",
        "greeting-alone": "the client's request: it needs 0 bytes, and may have 1 to 1024",
        "too-long": "the client's request: it needs 1025 bytes, and may have 1 to 1024",
        "endless": (
            "the client's request: it needs 18446744073709551615 bytes, and may have 1 to 1024"),
        "short": "the peer's description: it has 20 bytes, not 24",
        "version": "the peer's description: it is of version 7, not 1",
        "empty": "the peer's description: its memory has no bytes",
        "wraps": "the peer's description: its memory ends past the last address",
        "silence": "the peer's description: no completion within 2000 ms",
    },
    "client": {
        "other-version": "the server's greeting: it speaks another protocol",
        "other-protocol": "the server's greeting: it speaks another protocol",
        "short": "the peer's description: it has 20 bytes, not 24",
        "version": "the peer's description: it is of version 7, not 1",
        "empty": "the peer's description: its memory has no bytes",
        "wraps": "the peer's description: its memory ends past the last address",
        "less": "the server's memory: the text is longer",
        "silence": "the peer's description: no completion within 2000 ms",
        "no-reason": "REJECTED: it came instead of ESTABLISHED, with reason 28, consumer reject",
        "no-answer": NO_EVENT,
    },
}


def client(*words, **environment):
    argv = ["env", *(f"{name}={value}" for name, value in environment.items()), CLIENT, *words]
    return subprocess.run(
        needs_device.PLACE.wrap(argv), capture_output=True, text=True, timeout=600)


def on_device(script):
    return subprocess.run(
        needs_device.PLACE.wrap(["sh", "-c", script]), check=True, timeout=600,
        stdout=subprocess.PIPE, text=True).stdout


class Events(unittest.TestCase):
    def assertError(self, result, words, anchor):
        self.assertEqual(result.returncode, 1, result.stdout + result.stderr)
        self.assertIn(words, result.stderr)
        self.assertIn(f"troubleshooting.md#{anchor}", result.stderr)

    def test_loopback_says_what_to_do(self):
        for host in ("127.0.0.1", "::1", "localhost"):
            with self.subTest(host):
                self.assertError(
                    client("--host", host), "give the address of the device's network interface",
                    "cm-address")
        self.assertError(client(), "127.0.0.1 and ::1 are on no RDMA device", "cm-address")

    def test_no_such_host(self):
        self.assertError(
            client("--host", "no.such.host.invalid"), "--host no.such.host.invalid", "unknown-host")

    def test_nobody_listens(self):
        self.assertError(
            client("--host", needs_device.PLACE.address, "--cm-port", FREE_PORT),
            "REJECTED: it came instead of ESTABLISHED, with reason 8, invalid service ID",
            "cm-nobody-listens",
        )

    def test_route_error(self):
        self.assertError(
            client("--host", needs_device.PLACE.address, LD_PRELOAD="./libno_route.so"),
            "ROUTE_ERROR: it came instead of ROUTE_RESOLVED, with status -110, "
            "Connection timed out",
            "cm-route",
        )

    def test_connect_error(self):
        outcome = liars.run_cm([SERVER, "--timeout", "2"], [LIAR, "--lie", "broken-qp"])
        self.assertIn(
            "CONNECT_ERROR: it came instead of ESTABLISHED, with status -1",
            "\n".join(outcome.of("client")))
        self.assertNotIn("not permitted", "\n".join(outcome.of("client")))
        self.assertIn("troubleshooting.md#cm-connect-error", "\n".join(outcome.of("client")))
        self.assertEqual(outcome.status, {"server": 1, "client": 1})

    def test_no_server_address(self):
        for host, words in (
            ("192.0.2.7", "Cannot assign requested address"),
            ("no.such.host.invalid", "--host"),
        ):
            result = subprocess.run(
                needs_device.PLACE.wrap([SERVER, "--host", host]), capture_output=True, text=True,
                timeout=600)
            self.assertEqual(result.returncode, 1)
            self.assertIn(words, result.stderr)

    def test_nobody_comes(self):
        result = subprocess.run(
            needs_device.PLACE.wrap([SERVER, "--cm-port", "0", "--wait", "1"]), capture_output=True,
            text=True, timeout=600)
        self.assertError(result, "CONNECT_REQUEST: no event within 1000 ms", "no-client")


@unittest.skipIf(needs_device.PLACE.kind != "machine", "gives the machine a name and an address")
class Addresses(unittest.TestCase):
    def test_by_name_and_by_ipv6(self):
        on_device("echo 10.77.0.1 four.test >>/etc/hosts; echo fd77::1 six.test >>/etc/hosts")
        for host in ("fd77::1", "four.test", "six.test"):
            with self.subTest(host):
                outcome = liars.run_cm([SERVER], [CLIENT, "by name"], host)
                self.assertFalse(outcome.failed, outcome.text())
                self.assertIn('my memory after:  "by name"', outcome.text())

    def test_only_where_the_server_listens(self):
        outcome = liars.run_cm([SERVER, "--host", "fd77::1", "--wait", "1"], [CLIENT])
        self.assertEqual(outcome.status, {"server": 1, "client": 1})
        self.assertIn("REJECTED", outcome.text())


class Lies(liars.Refused):
    def test_lies(self):
        for side, honest in {"server": [SERVER, "--largest", "1024"], "client": [CLIENT]}.items():
            self.all_refused({side: LIES[side]}, honest, [LIAR], liars.run_cm)

    def test_client_that_dies(self):
        outcome = liars.run_cm([SERVER, "--timeout", "2"], [LIAR, "--lie", "dies"])
        self.assertRefused(outcome, "server", "the peer's description")  # flushed, or not in time

    def test_client_that_has_given_up(self):
        for call, fails in {"create": "rdma_create_qp", "accept": "rdma_accept"}.items():
            with self.subTest(call):
                outcome = subprocess.run(
                    needs_device.PLACE.wrap(
                        [GIVEN_UP, "--host", needs_device.PLACE.address, "--cm-port", "0", "--call",
                         call]),
                    capture_output=True, text=True, timeout=600)
                self.assertEqual(outcome.returncode, 1, outcome.stdout)
                self.assertIn(f"error: {fails}: Invalid argument", outcome.stderr)
                self.assertIn("given up the connection", outcome.stderr)
                self.assertIn("#cm-einval", outcome.stderr)

    def test_client_that_writes_more_than_it_announced(self):
        """The server has no byte more in its region, so its NIC refuses the whole WRITE."""
        outcome = liars.run_cm([SERVER, "--largest", "1024"], [LIAR, "--lie", "overruns"])
        self.assertIn("1024 bytes were announced: remote access error", outcome.of("client"))
        self.assertIn('my memory after:  "nobody has written here"', outcome.of("server"))


class Lengths(unittest.TestCase):
    """The server allocates what the client announces, up to a limit."""

    def written(self, text, *words, largest=1 << 26):
        return liars.run_cm([SERVER, "--largest", str(largest)], [CLIENT, *words, text])

    def test_up_to_the_limit(self):
        for text in ("", "x", "x" * 999):
            with self.subTest(len(text)):
                outcome = self.written(text, largest=1000)
                self.assertFalse(outcome.failed, outcome.text())
                length = len(text) + 1  # with the 0 at its end
                self.assertTrue(
                    any(
                        re.fullmatch(rf"theirs  \w+:\w+:{length:016x}", line)
                        for line in outcome.of("client")),
                    outcome.text())
                self.assertIn(
                    f'my memory before: "{"nobody has written here"[:length - 1]}"',
                    outcome.of("server"))

    def test_over_the_limit(self):
        """Both sides say why, and the server allocates nothing."""
        outcome = self.written("x" * 1000, largest=1000)
        self.assertEqual(outcome.status, {"server": 1, "client": 1})
        self.assertIn(
            "error: the client's request: it needs 1001 bytes, and may have 1 to 1000",
            outcome.text())
        self.assertIn(
            "error: the server rejects: the text needs 1001 bytes, and the server gives up to 1000",
            outcome.text())

    def test_more_than_one_message_holds(self):
        """SoftRoCE takes 8 MiB in a message on Linux 6.1, and 2 GiB on 6.12: there one is
        enough."""
        largest = int(re.search(r"max_msg_sz:\s+(\w+)", on_device("ibv_devinfo -v"))[1], 0)
        messages = -(-9000001 // largest)
        on_device("yes 'a line of a long text' | head -c 9000000 >/tmp/long")
        outcome = self.written("", "--file", "/tmp/long")
        self.assertFalse(outcome.failed, outcome.text())
        self.assertIn(f"READ of 9000001 bytes completed, {messages} message", outcome.text())
        self.assertIn('...", 9000000 bytes', outcome.text())

    def test_file_that_cannot_be_read(self):
        for name in ("/no/such/file", "/"):
            result = client("--host", needs_device.PLACE.address, "--file", name)
            self.assertEqual(result.returncode, 1)
            self.assertIn(f"error: --file {name}: it cannot be read", result.stderr)


if __name__ == "__main__":
    needs_device.main()
