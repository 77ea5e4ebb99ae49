# SPDX-License-Identifier: MIT
"""Runs every command that README and lessons tell the reader to run, block by block.

A block that cannot be run here has a line `<!-- not-run: why -->` above it.
"""
import os
import re
import shutil
import subprocess
import unittest
from unittest import mock

import needs_device
from lab import examples, ladder
from lab.commands import sync
from lab.paths import ROOT
from lab.wire import recording

BLOCK = re.compile(r"^(<!-- not-run: [^\n]+ -->\n)?```sh\n(.*?)^```", re.S | re.M)
NOT_HERE = {"./lab test": "the tests that run now"}
# Most of all commands, and minutes: test_examples runs the same programs by the same functions, and
# compares what they print. One of these is enough to see that ./lab run passes on what it should.
IN_TEST_EXAMPLES = re.compile(r"\./lab run (?!02_send_recv$)\w+( --break \w+)?")
LIMIT = 900


def in_test_timeline():
    """The same for ./lab trace: the commands of the runs that the pictures show."""
    commands = set()
    for lesson in ladder.read():
        for which in ["", *examples.breaks(lesson)]:
            file = recording.file_of(lesson.stem, which)
            if file.exists() and lesson.number != "02":
                arguments = " ".join(
                    ["", "--", *given]
                    if (given := recording.Recording.load(file).arguments)
                    else [])
                commands.add(
                    f"./lab trace {lesson.stem}"
                    + (f" --break {which}" if which else "")
                    + arguments)
    return commands


def blocks(text):
    """The commands of each block that is to be run."""
    return [commands for not_run, commands in BLOCK.findall(text) if not not_run]


class Commands(unittest.TestCase):
    def run_block(self, commands):
        environment = {**os.environ, "CDPATH": ""}
        try:
            return subprocess.run(
                ["sh", "-e", "-c", commands], cwd=ROOT, env=environment, stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=LIMIT)
        except subprocess.TimeoutExpired as error:  # its text does not show the output
            printed = (error.stdout or b"").decode(errors="replace")
            self.fail(f"not ended after {LIMIT} s; it has printed:\n{printed}")

    def run_and_clean_up(self, commands):
        for made in re.findall(r"/tmp/[\w-]+", commands):
            shutil.rmtree(made, ignore_errors=True)
        try:
            return self.run_block(commands)
        finally:
            # A block that fails half-way must not leave a fault on the wire.
            if "./lab hosts" in commands:
                self.run_block("./lab hosts repair")
            for made in re.findall(r"/tmp/[\w-]+", commands):
                shutil.rmtree(made, ignore_errors=True)

    def test_every_block(self):
        elsewhere = NOT_HERE.keys() | in_test_timeline()
        self.assertGreater(len(elsewhere), 10)
        have_run = set()
        for path in sync.files():
            for commands in blocks(path.read_text()):
                if commands.strip() in elsewhere or IN_TEST_EXAMPLES.fullmatch(commands.strip()):
                    continue
                if commands in have_run:
                    continue
                have_run.add(commands)
                with self.subTest(f"{path.name}: {commands.strip()}"):
                    print(f"  {path.name}: {commands.strip()}", flush=True)
                    result = self.run_and_clean_up(commands)
                    self.assertEqual(result.returncode, 0, result.stdout)

    def test_check_command_names_what_is_missing(self):
        """The lessons tell the reader to run it on exercises that are not solved yet."""
        result = self.run_block("./lab check 02.2")
        self.assertEqual(result.returncode, 1, result.stdout)
        self.assertIn("not yet:", result.stdout)

    def test_a_failing_command_would_be_seen(self):
        self.assertNotEqual(self.run_block("false\ntrue\n").returncode, 0)
        self.assertEqual(blocks("```sh\na\n```\n<!-- not-run: x -->\n```sh\nb\n```\n"), ["a\n"])
        self.assertEqual(
            blocks(
                "<!-- not-run: x -->\n```sh\na\n```\n```sh\nb\n```\n<!-- not-run: y"
                " -->\n```sh\nc\n```\n"),
            ["b\n"])

    def test_what_a_command_without_end_has_printed_is_shown(self):
        late = subprocess.TimeoutExpired("sh", LIMIT, output=b"up\n")
        with mock.patch("subprocess.run", side_effect=late):
            with self.assertRaisesRegex(AssertionError, "it has printed:\nup\n$"):
                self.run_block("echo up; sleep 3600")


if __name__ == "__main__":
    needs_device.main()
