# SPDX-License-Identifier: MIT
"""Nothing is left on the device when an example has ended, and what looks for it while it runs
would see a leak."""
import json
import subprocess
import unittest

import close_probe
import needs_device


def on_device(argv):
    return subprocess.run(
        needs_device.PLACE.wrap(argv), capture_output=True, text=True, check=True
    ).stdout


def counts():
    """What the whole device holds: {"qp": 1, ...}. The kernel has a QP of its own."""
    for link in json.loads(on_device(["rdma", "-j", "resource"])):
        if link["ifname"] == needs_device.PLACE.device:
            return {kind: link[kind] for kind in ("qp", "cq", "mr", "pd")}
    raise AssertionError("rdma resource does not name the device")


class Leaks(unittest.TestCase):
    def test_nothing_is_left(self):
        before = counts()
        for program, kind in (("send_recv", "pair"), ("cm_server", "cm-pair"), ("fork", "device")):
            close_probe.run(program, kind)
            self.assertEqual(counts(), before)

    @unittest.skipIf(close_probe.HAS_SANITIZER, "it does not run with the sanitizers")
    def test_the_probe_sees_a_leak(self):
        _, closed, left = close_probe.run("../tests/examples/leaky", "device")
        self.assertGreater(closed[""], 0)
        self.assertTrue(any(" pdn " in text for text in left), left)
        self.assertTrue(any(" cqn " in text for text in left), left)


if __name__ == "__main__":
    needs_device.main()
