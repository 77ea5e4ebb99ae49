"""When an example closes its device, it has destroyed every QP, CQ, MR and PD; and none is left after."""
import json
import os
import subprocess
import unittest

import needs_device
from lab import examples, ladder

# By a relative path, since LD_PRELOAD takes a space for the end of one.
os.chdir(needs_device.BUILD / "tests/examples")
PROBE = "./libclose_probe.so"


def on_device(argv):
    return subprocess.run(needs_device.PLACE.wrap(argv), capture_output=True, text=True, check=True).stdout


def counts():
    """What the whole device holds: {"qp": 1, ...}. The kernel has a QP of its own."""
    for link in json.loads(on_device(["rdma", "-j", "resource"])):
        if link["ifname"] == needs_device.PLACE.device:
            return {kind: link[kind] for kind in ("qp", "cq", "mr", "pd")}
    raise AssertionError("rdma resource does not name the device")


@unittest.skipIf("sanitize" in needs_device.BUILD.name, "the sanitizers' library has to be the first one loaded")
class Leaks(unittest.TestCase):
    def run_with_probe(self, program, kind):
        place = needs_device.PLACE
        probed = type(place)(**{**place.__dict__, "prefix": (*place.prefix, "env", f"LD_PRELOAD={PROBE}")})
        return examples.run(probed, needs_device.BUILD, program, kind)

    def test_nothing_is_open_when_the_device_closes(self):
        for lesson in ladder.read():
            if lesson.kind != "lesson":
                with self.subTest(lesson.stem):
                    before = counts()
                    outcome = self.run_with_probe(lesson.program, lesson.kind)
                    for role in outcome.status:
                        self.assertIn("closed the device", outcome.of(role))
                    self.assertEqual([text for _, text in outcome.lines if text.startswith("left open")], [])
                    self.assertEqual(counts(), before)

    def test_the_probe_sees_a_leak(self):
        outcome = self.run_with_probe("../tests/examples/leaky", "device")
        left = [text.split()[2] for _, text in outcome.lines if text.startswith("left open")]
        self.assertIn("pd", left, outcome.text())
        self.assertIn("cq", left, outcome.text())


if __name__ == "__main__":
    needs_device.main()
