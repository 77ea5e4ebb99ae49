"""Runs every command that README and lessons tell the reader to run, block by block.

A block that cannot be run here has a line `<!-- not-run: why -->` above it.
"""
import os
import re
import shutil
import subprocess
import unittest

import needs_device
from lab import normalise, sync
from lab.paths import ROOT

BLOCK = re.compile(r"^(<!-- not-run: .+ -->\n)?```sh\n(.*?)^```", re.S | re.M)
NOT_HERE = {"./lab test": "the tests that run now"}
LIMIT = 120


def blocks(text):
    """The commands of each block that is to be run."""
    return [commands for not_run, commands in BLOCK.findall(text) if not not_run]


class Commands(unittest.TestCase):
    def run_block(self, commands):
        environment = {**os.environ, "CDPATH": ""}
        return subprocess.run(["sh", "-e", "-c", commands], cwd=ROOT, env=environment, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=LIMIT)

    def test_every_block(self):
        for path in sync.files():
            for commands in blocks(path.read_text()):
                if commands.strip() in NOT_HERE:
                    continue
                with self.subTest(f"{path.name}: {commands.strip()}"):
                    print(f"  {path.name}: {commands.strip()}", flush=True)
                    for made in re.findall(r"/tmp/[\w-]+", commands):
                        shutil.rmtree(made, ignore_errors=True)
                    try:
                        result = self.run_block(commands)
                    finally:
                        if "./lab hosts" in commands:  # a block that fails half-way must not leave the wire as it is
                            self.run_block("./lab hosts mend")
                    for made in re.findall(r"/tmp/[\w-]+", commands):
                        shutil.rmtree(made, ignore_errors=True)
                    self.assertEqual(result.returncode, 0, result.stdout)

    def test_check_command_names_what_is_missing(self):
        """The lessons tell the reader to run it on exercises that are not solved yet."""
        result = self.run_block("./lab check 02.2")
        self.assertEqual(result.returncode, 1, result.stdout)
        self.assertIn("not yet:", result.stdout)

    def test_a_failing_command_would_be_seen(self):
        self.assertNotEqual(self.run_block("false\ntrue\n").returncode, 0)
        self.assertEqual(blocks("```sh\na\n```\n<!-- not-run: x -->\n```sh\nb\n```\n"), ["a\n"])

    def test_transcripts(self):
        """tests/expected/*.transcript.txt: a command, and what it prints."""
        for path in sorted((ROOT / "tests/expected").glob("*.transcript.txt")):
            command, expected = path.read_text().split("\n", 1)
            with self.subTest(path.name):
                # On a busy machine an acknowledgement may be late: then a capture has a packet twice, or in another order.
                tries = 5 if "capture" in command else 1
                while found := self.differences(command.removeprefix("$ "), expected):
                    tries -= 1
                    self.assertGreater(tries, 0, "\n".join(found))

    @staticmethod
    def differences(command, expected):
        result = subprocess.run(["sh", "-c", command], cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, text=True, timeout=LIMIT)
        if needs_device.PLACE.kind != "machine":
            return []
        # ./lab's own remarks depend on what is running and built already.
        said = "".join(line for line in result.stdout.splitlines(True) if not re.match(r"lab: |ninja: |\[\d+/\d+\]", line))
        return normalise.differences(expected, normalise.split_roles(said), needs_device.PLACE.device)


if __name__ == "__main__":
    needs_device.main()
