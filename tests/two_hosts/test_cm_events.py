# SPDX-License-Identifier: MIT
"""Those of rdma_cm's error events that take a network, produced: an address that nobody has, and a
host that is not the one that it was."""
import subprocess
import time
import unittest

import two_hosts
from two_hosts import A, B, BUILD, on

CLIENT = str(BUILD / "examples/cm_client")
NOBODY = "10.77.0.99"


class Events(unittest.TestCase):
    def test_address_error(self):
        """ARP finds nobody."""
        result = subprocess.run(
            B.wrap([CLIENT, "--host", NOBODY, "--timeout", "4"]), capture_output=True, text=True,
            timeout=600)
        self.assertEqual(result.returncode, 1, result.stdout)
        self.assertIn("ADDR_ERROR: it came instead of ADDR_RESOLVED, with status", result.stderr)
        self.assertIn("troubleshooting.md#cm-address", result.stderr)

    def test_unreachable(self):
        """Somebody has the address, but answers nothing; then it is known to have moved, which the
        kernel's rdma_cm takes for the end. Without that it gives up by itself, after more than a
        minute."""

        def neighbour(mac):
            on("b", "ip", "neighbour", "replace", NOBODY, "lladdr", mac, "dev", "lab0")

        self.addCleanup(on, "b", "ip", "neighbour", "delete", NOBODY, "dev", "lab0")
        neighbour("02:00:00:00:00:98")
        client = subprocess.Popen(
            B.wrap([CLIENT, "--host", NOBODY, "--timeout", "30"]), text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.addCleanup(client.kill)
        while client.stdout.readline().strip() != "ROUTE_RESOLVED":
            self.assertIsNone(client.poll())
        for number in range(20):  # until the request is under way
            neighbour(f"02:00:00:00:01:{number:02}")
            try:
                client.wait(timeout=1)
                break
            except subprocess.TimeoutExpired:
                pass
        said = client.communicate(timeout=600)[1]
        self.assertIn(
            "UNREACHABLE: it came instead of ESTABLISHED, with status -110, Connection timed out",
            said)
        self.assertIn("troubleshooting.md#cm-unreachable", said)


class ManyClients(unittest.TestCase):
    def start(self, where, *argv):
        process = subprocess.Popen(
            where.wrap(list(argv)), text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE)
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        return process

    def test_a_host_that_dies(self):
        """Nobody says that it has gone: the server finds out by a WRITE of no bytes, which is not
        acknowledged."""
        self.addCleanup(two_hosts.lab, "hosts", "repair")
        server = self.start(
            A, str(BUILD / "examples/many_server"), "--cm-port", "0", "--clients", "0", "--silence",
            "1")
        port = server.stdout.readline().split()[-1]
        client = self.start(
            B, str(BUILD / "examples/many_client"), "--host", A.address, "--cm-port", port,
            "--rude", "0", "--clients", "1", "--rounds", "1000000000")
        deadline = time.monotonic() + 300
        while " qp 2 " not in on("a", "rdma", "resource"):  # the device's own, and the client's
            self.assertLess(time.monotonic(), deadline)
        self.assertIsNone(client.poll())
        two_hosts.lab("hosts", "cut")
        began = time.monotonic()
        self.assertIn(
            (
                "dropped a client: a request: completed with status 12, transport retry counter"
                " exceeded"),
            server.stderr.readline())
        print(f"  noticed after {time.monotonic() - began:.1f} s", flush=True)
        server.terminate()
        self.assertIn("dropped 1\n", server.communicate(timeout=600)[0])
        self.assertEqual(server.returncode, 0)


if __name__ == "__main__":
    two_hosts.main()
