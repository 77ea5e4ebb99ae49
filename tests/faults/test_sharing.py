# SPDX-License-Identifier: MIT
"""Processes that share memory with 16_sharing and lie; what happens to processes whose owner is
killed; and the import, on a device that seems to be able to."""
import os
import re
import subprocess
import unittest

import liars
import needs_device
from lab import pair, place

PLACE = needs_device.PLACE
HERE = place.Place("here", "", "", "")
HONEST = needs_device.program("sharing")
LIAR = str(needs_device.BUILD / "tests/faults/lying_sharer")
NAME = f"test-sharing-{os.getpid()}"
SERVING = re.compile(r"serving as (\S+)")
AS_WORKER = {
    "long": "was refused: request 0, of 65 bytes",
    "empty": "was refused: request 0, of 0 bytes",
    "greedy": "was refused: request 3, of 64 bytes",
    "words": "says what it must not",
    "control": "says what it must not",
    "gone": "the other process: it is gone",
    "silence": "is silent",
    "shrink": "the other process: it is gone",
}
AS_OWNER = {
    "no-file": "its format is wrong",
    "two-files": "its format is wrong",
    "many-files": "its format is wrong",
    "slot": "its format is wrong",
    "words": "its format is wrong",
    "version": "they are of another version",
    "small": "the memory: it does not hold the slots",
    "unsealed": "the memory: it does not hold the slots",
    "null": "the memory: it does not hold the slots",
    "refuse": "the owner: it has refused the request",
    "silence": "the owner: it has not said anything in time",
}
AS_EXPORTER = {
    "no-device": "the file: it is not that of an RDMA device",
    "no-handles": "its format is wrong",
    "huge-handle": "a handle has 32 bits",
}
# All in one command where the device is: starting one takes longer than a lie. An owner's first
# line starts the worker.
WORKERS = r"""
for lie; do
  { "$HONEST" --device "$DEVICE" --timeout 2 --serve "$NAME"; echo "server status $?"; } 2>&1 | {
    read -r serving
    "$LIAR" --lie $lie --attach "$NAME" 2>&1
    echo "client status $?"
    cat
  }
done
"""
# Kills the program when it has as many processes below it as it should. As long as one of those
# lives, the pipe stays open.
ORPHANS = r"""
count=$1; shift
below() {
  children=
  read -r children 2>/dev/null </proc/$1/task/$1/children  # says no: there is no end of a line
  for child in $children; do found=$((found + 1)); below $child; done
}
{
  "$@" &
  found=0
  while [ $found -lt $count ] && kill -0 $!; do found=0; below $!; done
  kill -KILL $!
  echo "$found children"
} 2>&1 | timeout 20 cat && echo "and all have ended"
"""


def run(owner, worker):
    """Both by their command lines; the name by which they meet is added."""
    return pair.run(
        PLACE, [*owner, "--device", PLACE.device, "--serve", NAME],
        pair.Client(SERVING, lambda line: [*worker, "--device", PLACE.device, "--attach", line[1]]))


class Sharing(liars.Refused):
    def test_workers_that_lie(self):
        """Each is named, and the children are served as if nothing had happened."""
        environment = [f"HONEST={HONEST}", f"LIAR={LIAR}", f"DEVICE={PLACE.device}", f"NAME={NAME}"]
        text = subprocess.run(
            PLACE.wrap(["env", *environment, "sh", "-c", WORKERS, "sh", *AS_WORKER]),
            capture_output=True, text=True, timeout=600).stdout
        outcomes = re.findall(
            r"(.*?)^client status (\d+)\n(.*?)^server status (\d+)\n", text, re.M | re.S)
        for (lie, words), (client, _, server, status) in zip(
            AS_WORKER.items(), outcomes, strict=True
        ):
            with self.subTest(lie):
                self.assertEqual(status, "0", text)
                said = server.splitlines()
                self.assertIn(f"one-owner:   worker 2 {words}", re.sub(r" \(\S+\)$", "", said[-1]))
                for worker in (0, 1):
                    self.assertIn(
                        f'one-owner:   worker {worker} received "request 1 of a child"', said)
                if lie == "shrink":
                    self.assertEqual(client, "shrinking: EPERM\n")

    def refused(self, lies, *arguments):
        """These take no device, and so need not be where it is."""

        def run(lie):
            limit = "2" if "in time" in lies[lie] else "60"
            worker = [HONEST, "--timeout", limit, *arguments, "--attach"]
            return pair.run(
                HERE, [LIAR, "--lie", lie, "--serve", f"{NAME}-{lie}"],
                pair.Client(SERVING, lambda line: [*worker, line[1]]))

        liars.side_by_side(
            self, lies, run, lambda words, outcome: self.assertRefused(outcome, "client", words))

    def test_owners_that_lie(self):
        self.refused(AS_OWNER)

    def test_exporters_that_lie(self):
        self.refused(AS_EXPORTER, "--way", "export")

    def test_unrelated_process_by_hand(self):
        outcome = run([HONEST], [HONEST])
        self.assertFalse(outcome.failed, outcome.text())
        self.assertIn(
            'one-owner:   worker 2 received "request 1 of an unrelated process"',
            outcome.of("server"))

    @unittest.skipIf(PLACE.kind != "machine", "takes root")
    def test_another_user_is_shown_the_door(self):
        """And the next one is let in."""
        both = (
            f'{" ".join(needs_device.AS_ANOTHER_USER)} "{LIAR}" --lie long --attach {NAME}; exec'
            f' "{HONEST}" "$@"')
        outcome = run([HONEST], ["sh", "-c", both, "sh"])
        self.assertEqual(outcome.status, {"server": 0, "client": 0}, outcome.text())
        self.assertRegex(outcome.of("client")[0], "error: the owner: it is gone|ECONNRESET")
        self.assertIn(
            'one-owner:   worker 2 received "request 1 of an unrelated process"',
            outcome.of("server"))

    def test_no_owner(self):
        outcome = pair.run(HERE, [HONEST, "--attach", NAME])
        self.assertEqual(outcome.status[""], 1, outcome.text())
        self.assertIn("connect: Connection refused", outcome.text())

    def test_children_end_with_their_parents(self):
        for count, argv in (
            (2, [HONEST, "--serve", NAME]),
            (4, [needs_device.program("fork"), "--case", "deadlock"]),
        ):
            with self.subTest(argv[0]):
                argv = [
                    "sh", "-c", ORPHANS, "sh", str(count), *argv, "--device", PLACE.device,
                    "--timeout", "60"]
                said = subprocess.run(
                    PLACE.wrap(argv), capture_output=True, text=True, timeout=600
                ).stdout
                # A child may see the end of its link to the parent before the signal that ends it:
                # when it reads, or when it writes.
                self.assertRegex(
                    said,
                    (
                        rf"(?m)^{count} children\n"
                        r"(error: (sendmsg|(telling )?the other process): .*\n)*"
                        r"and all have ended$"))


class Export(unittest.TestCase):
    def export(self, *under):
        return pair.run(PLACE, [*under, HONEST, "--device", PLACE.device, "--way", "export"])

    @unittest.skipUnless(PLACE.device.startswith("rxe"), "this device may be able to")
    def test_skipped_where_the_device_cannot(self):
        outcome = self.export()
        self.assertEqual(outcome.status[""], 77, outcome.text())
        self.assertRegex(outcome.text(), r"the other process has uverbs\d+ and 552 bytes of memory")
        self.assertIn(
            "skipped: this device cannot import: ibv_import_device says EOPNOTSUPP", outcome.text())

    @unittest.skipIf(
        "sanitize" in needs_device.BUILD.name,
        "the sanitizers' library has to be the first one loaded")
    def test_the_import_itself(self):
        # LD_PRELOAD takes a space for the end of a path
        os.chdir(needs_device.BUILD / "tests/faults")
        outcome = self.export("env", "LD_PRELOAD=./libimport_double.so")
        self.assertEqual(outcome.status[""], 0, outcome.text())
        said = outcome.of("")
        self.assertIn("             imported, and sent: hello from imported memory", said)
        calls = [line for line in said if "import_" in line]
        self.assertEqual(
            [line.split()[0] for line in calls],
            ["import_device", "import_pd", "import_mr", "unimport_mr", "unimport_pd"])


if __name__ == "__main__":
    needs_device.main()
