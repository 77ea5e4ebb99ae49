"""What can go wrong with a connection by rdma_cm: every error event, and peers that lie. Those events that take a network are
in two_hosts/test_cm_events.py."""
import os
import subprocess
import unittest

import liars
import needs_device

os.chdir(needs_device.BUILD / "tests/faults")  # LD_PRELOAD takes a space for the end of a path
LIAR = str(needs_device.BUILD / "tests/faults/lying_cm")
SERVER = needs_device.program("cm_server")
CLIENT = needs_device.program("cm_client")
FREE_PORT = "4"  # nobody listens there
NO_EVENT = "no event within 2000 ms"

AS_CLIENT = {
    "other-version": "the client's greeting: it speaks another version",
    "other-protocol": "the client's greeting: it speaks another version",
    "short": "the peer's description: it has 20 bytes, not 24",
    "version": "the peer's description: it is of version 7, not 1",
    "empty": "the peer's description: its memory has no bytes",
    "wraps": "the peer's description: its memory ends past the last address",
    "silence": "the peer's description: no completion within 2000 ms",
    "dies": "the peer's description",  # by a flush, or by none in time
}
AS_SERVER = {
    "other-version": "the server's greeting: it speaks another protocol",
    "other-protocol": "the server's greeting: it speaks another protocol",
    "short": "the peer's description: it has 20 bytes, not 24",
    "version": "the peer's description: it is of version 7, not 1",
    "empty": "the peer's description: its memory has no bytes",
    "wraps": "the peer's description: its memory ends past the last address",
    "silence": "the peer's description: no completion within 2000 ms",
    "no-reason": "REJECTED: instead of ESTABLISHED, with reason 28, consumer reject",
    "no-answer": NO_EVENT,
}


def client(*words, **environment):
    argv = ["env", *(f"{name}={value}" for name, value in environment.items()), CLIENT, *words]
    return subprocess.run(needs_device.PLACE.wrap(argv), capture_output=True, text=True, timeout=600)


def on_device(script):
    subprocess.run(needs_device.PLACE.wrap(["sh", "-c", script]), check=True, timeout=600)


class Events(unittest.TestCase):
    def assertError(self, result, words, anchor):
        self.assertEqual(result.returncode, 1, result.stdout + result.stderr)
        self.assertIn(words, result.stderr)
        self.assertIn(f"troubleshooting.md#{anchor}", result.stderr)

    def test_loopback_says_what_to_do(self):
        for host in ("127.0.0.1", "::1", "localhost"):
            with self.subTest(host):
                self.assertError(client("--host", host), "give the address of the device's network interface", "cm-address")
        self.assertError(client(), "127.0.0.1 and ::1 are on no RDMA device", "cm-address")

    def test_no_such_host(self):
        self.assertError(client("--host", "no.such.host.invalid"), "--host no.such.host.invalid", "unknown-host")

    def test_nobody_listens(self):
        self.assertError(client("--host", needs_device.PLACE.address, "--cm-port", FREE_PORT),
                         "REJECTED: instead of ESTABLISHED, with reason 8, invalid service ID", "cm-nobody-listens")

    def test_route_error(self):
        self.assertError(client("--host", needs_device.PLACE.address, LD_PRELOAD="./libno_route.so"),
                         "ROUTE_ERROR: instead of ROUTE_RESOLVED, with status -110, Connection timed out", "cm-route")

    def test_connect_error(self):
        outcome = liars.run_cm([SERVER, "--timeout", "2"], [LIAR, "--lie", "broken-qp"])
        self.assertIn("CONNECT_ERROR: instead of ESTABLISHED, with status", "\n".join(outcome.of("client")))
        self.assertIn("troubleshooting.md#cm-connect-error", "\n".join(outcome.of("client")))
        self.assertEqual(outcome.status, {"server": 1, "client": 1})

    def test_no_server_address(self):
        for host, words in (("192.0.2.7", "Cannot assign requested address"), ("no.such.host.invalid", "--host")):
            result = subprocess.run(needs_device.PLACE.wrap([SERVER, "--host", host]), capture_output=True, text=True, timeout=600)
            self.assertEqual(result.returncode, 1)
            self.assertIn(words, result.stderr)

    def test_nobody_comes(self):
        result = subprocess.run(needs_device.PLACE.wrap([SERVER, "--cm-port", "0", "--wait", "1"]), capture_output=True,
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
    def test_client_that_lies(self):
        for lie, words in AS_CLIENT.items():
            with self.subTest(lie):
                self.assertRefused(liars.run_cm([SERVER, "--timeout", "2"], [LIAR, "--lie", lie, "--wait", "10"]), "server", words)

    def test_server_that_lies(self):
        for lie, words in AS_SERVER.items():
            with self.subTest(lie):
                self.assertRefused(liars.run_cm([LIAR, "--lie", lie, "--wait", "10"], [CLIENT, "--timeout", "2"]), "client", words)

    def test_text_that_is_too_long(self):
        self.assertEqual(client("--host", needs_device.PLACE.address, "x" * 2048).returncode, 2)


if __name__ == "__main__":
    needs_device.main()
