"""Those of rdma_cm's error events that take a network, produced: an address that nobody has, and a host that is not the one that
it was."""
import subprocess
import time
import unittest

import two_hosts
from two_hosts import B, BUILD, on

CLIENT = str(BUILD / "examples/cm_client")
NOBODY = "10.77.0.99"


class Events(unittest.TestCase):
    def test_address_error(self):
        """ARP finds nobody."""
        result = subprocess.run(B.wrap([CLIENT, "--host", NOBODY, "--timeout", "4"]), capture_output=True, text=True, timeout=60)
        self.assertEqual(result.returncode, 1, result.stdout)
        self.assertIn("ADDR_ERROR: instead of ADDR_RESOLVED, with status", result.stderr)
        self.assertIn("troubleshooting.md#cm-address", result.stderr)

    def test_unreachable(self):
        """Somebody has the address, but answers nothing; then it is known to have moved, which the kernel's rdma_cm takes for
        the end. Without that it gives up by itself, after more than a minute."""
        def neighbour(mac):
            on("b", "ip", "neighbour", "replace", NOBODY, "lladdr", mac, "dev", "lab0")

        self.addCleanup(on, "b", "ip", "neighbour", "delete", NOBODY, "dev", "lab0")
        neighbour("02:00:00:00:00:98")
        client = subprocess.Popen(B.wrap([CLIENT, "--host", NOBODY, "--timeout", "30"]), text=True, stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE)
        self.addCleanup(client.kill)
        while client.stdout.readline().strip() != "ROUTE_RESOLVED":
            self.assertIsNone(client.poll())
        began = time.monotonic()
        for number in range(20):  # until the request is under way
            neighbour(f"02:00:00:00:01:{number:02}")
            try:
                client.wait(timeout=1)
                break
            except subprocess.TimeoutExpired:
                pass
        said = client.communicate(timeout=60)[1]
        self.assertIn("UNREACHABLE: instead of ESTABLISHED, with status -110, Connection timed out", said)
        self.assertIn("troubleshooting.md#cm-unreachable", said)
        self.assertLess(time.monotonic() - began, 25)


if __name__ == "__main__":
    two_hosts.main()
