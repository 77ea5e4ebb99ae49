# SPDX-License-Identifier: MIT
"""15_fork: each case is a command of its own. Wrong, it fails in its very way; cured, it works."""
import re
import subprocess
import unittest

import needs_device
from lab import examples, variants

PLACE = needs_device.PLACE


# All in one command where the device is, since starting one takes longer than most cases; and then
# the kernel's log.
EACH = 'for case; do "$PROGRAM" --device "$DEVICE" --case $case 2>&1; echo "status $?"; done; dmesg'


def run(*arguments):
    """What each of these, "stale --cure" for example, prints, and its exit status; and the log
    after them."""
    environment = [f"PROGRAM={needs_device.program('fork')}", f"DEVICE={PLACE.device}"]
    said = subprocess.run(
        PLACE.wrap(["env", *environment, "sh", "-c", EACH, "sh", *arguments]), capture_output=True,
        text=True, timeout=300).stdout
    *outcomes, log = re.split(r"^(.*?)^status (\d+)\n", said, flags=re.M | re.S)
    return list(zip(outcomes[1::3], map(int, outcomes[2::3]))), log


def cases():
    """Name -> what the lesson's output says of it, wrong and cured."""
    found = {}
    for line in (
        variants.expected(examples.expected_file("15_fork"), PLACE).read_text().splitlines()[1:]
    ):
        if ": " in line and not line.startswith(" "):
            name, seen = line.split(":", 1)
            found.setdefault(name.removesuffix(", cured"), []).append(seen.strip())
    return found


@unittest.skipUnless(PLACE.device.startswith("rxe"), "the lesson's symptoms are SoftRoCE's")
class Fork(unittest.TestCase):
    def test_each_alone(self):
        wanted = cases()
        self.assertEqual(
            set(wanted),
            {"stale", "stolen", "refused", "destructor", "dontfork", "orphaned", "deadlock"})
        outcomes, log = run(*wanted, *(f"{name} --cure" for name in wanted), "spoon")
        *alone, (_, spoon) = outcomes
        for (name, (seen, _)), (text, status) in zip(
            wanted.items(), alone[: len(wanted)], strict=True
        ):
            with self.subTest(name):
                self.assertEqual(status, 1, text)
                self.assertIn(f"error: {name}: {seen} (fork.cpp:", text)
        for (name, (_, seen)), (text, status) in zip(
            wanted.items(), alone[len(wanted) :], strict=True
        ):
            with self.subTest(name + ", cured"):
                self.assertEqual(status, 0, text)
                self.assertIn(seen, text)
        with self.subTest("a case that there is not"):
            self.assertEqual(spoon, 2)
        if PLACE.kind == "machine":  # elsewhere the log is everybody's
            with self.subTest("the kernel says why the post was refused"):
                self.assertIn("changed security contexts after opening file descriptor", log)

    def test_fork_init(self):
        """Whether it takes a region's page away from children, and whether it may come late,
        depends on rdma-core alone: the kernel copies."""
        program = str(needs_device.BUILD / "tests/examples/fork_init")
        does_nothing = variants.since(PLACE, variants.FORK_INIT_DOES_NOTHING)
        for when, wanted in {
            "early": ("0", "left to children" if does_nothing else "taken away from children"),
            "late": ("0" if does_nothing else "EINVAL", "left to children"),
        }.items():
            with self.subTest(when):
                said = subprocess.run(
                    PLACE.wrap([program, "--device", PLACE.device, "--when", when]),
                    capture_output=True, text=True)
                self.assertEqual(
                    said.stdout, "ibv_fork_init: %s\nthe page: %s\n" % wanted, said.stderr)


if __name__ == "__main__":
    needs_device.main()
