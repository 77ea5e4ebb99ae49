"""Runs every command that README and lessons tell the reader to run, block by block.

A block that cannot be run here has a line `<!-- not-run: why -->` above it.
"""
import os
import re
import shutil
import subprocess
import unittest

import needs_device
from lab import examples, ladder, normalise, recording, sync, variants
from lab.paths import ROOT

BLOCK = re.compile(r"^(<!-- not-run: [^\n]+ -->\n)?```sh\n(.*?)^```", re.S | re.M)
NOT_HERE = {"./lab test": "the tests that run now"}
# Most of all commands, and minutes: test_examples runs the same programs by the same functions, and compares what they print. Of these,
# one lesson's are enough to see that ./lab run passes on what it should.
IN_TEST_EXAMPLES = re.compile(r"\./lab run (?!02_)\w+( --break \w+)?")
LIMIT = 900


def in_test_timeline():
    """The same for ./lab trace: the commands of the runs that the pictures show."""
    commands = set()
    for lesson in ladder.read():
        for which in ["", *examples.breaks(lesson)]:
            file = recording.file_of(lesson.stem, which)
            if file.exists() and lesson.number != "02":
                arguments = " ".join(["", "--", *given] if (given := recording.Recording.load(file).arguments) else [])
                commands.add(f"./lab trace {lesson.stem}" + (f" --break {which}" if which else "") + arguments)
    return commands


def blocks(text):
    """The commands of each block that is to be run."""
    return [commands for not_run, commands in BLOCK.findall(text) if not not_run]


def without_repeats(said):
    """A capture without the packets that were sent once more because their acknowledgement was late (not because of an RNR NAK)."""
    kept, seen = [], set()
    for line in said.splitlines(True):
        packet = re.search(r"[ab] -> [ab] .*", line)
        if packet and packet[0] in seen:
            continue
        if packet:
            seen = set() if "RNR NAK" in line else seen | {packet[0]}
        kept.append(line)
    return "".join(kept)


class Commands(unittest.TestCase):
    def run_block(self, commands):
        environment = {**os.environ, "CDPATH": ""}
        return subprocess.run(["sh", "-e", "-c", commands], cwd=ROOT, env=environment, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=LIMIT)

    def test_every_block(self):
        elsewhere = NOT_HERE.keys() | in_test_timeline()
        self.assertGreater(len(elsewhere), 10)
        for path in sync.files():
            for commands in blocks(path.read_text()):
                if commands.strip() in elsewhere or IN_TEST_EXAMPLES.fullmatch(commands.strip()):
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
        self.assertEqual(blocks("<!-- not-run: x -->\n```sh\na\n```\n```sh\nb\n```\n<!-- not-run: y -->\n```sh\nc\n```\n"), ["b\n"])

    def test_transcripts(self):
        """tests/expected/*.transcript.txt: a command, and what it prints."""
        for path in sorted((ROOT / "tests/expected").glob("*.transcript.txt")):
            command, expected = variants.expected(path, needs_device.PLACE).read_text().split("\n", 1)
            with self.subTest(path.name):
                # On a busy machine an acknowledgement may come late, and change places with the next packet. Or a packet may
                # come after what follows it over TCP.
                tries = 20 if "capture" in command else 1
                while found := self.differences(command.removeprefix("$ "), expected):
                    tries -= 1
                    self.assertGreater(tries, 0, "\n".join(found))

    def test_a_repeated_packet_is_left_out(self):
        repeated = "1.0  b -> a  SEND\n1.5  b -> a  SEND\n2.0  a -> b  RNR NAK\n3.0  b -> a  SEND\n4.0  a -> b  ACK\n4.5  a -> b  ACK\n"
        self.assertEqual(without_repeats(repeated),
                         "1.0  b -> a  SEND\n2.0  a -> b  RNR NAK\n3.0  b -> a  SEND\n4.0  a -> b  ACK\n")

    @staticmethod
    def differences(command, expected):
        command, head, _ = command.partition(" | head")
        result = subprocess.run(["sh", "-c", command], cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, text=True, timeout=LIMIT)
        if needs_device.PLACE.kind != "machine":
            return []
        # ./lab's own remarks depend on what is running and built already.
        said = "".join(line for line in result.stdout.splitlines(True) if not re.match(r"lab: |ninja: |\[\d+/\d+\]", line))
        said = without_repeats(said)
        if head:
            said = "".join(said.splitlines(True)[:len(expected.splitlines())])
        return normalise.differences(expected, normalise.split_roles(said), needs_device.PLACE.device)


if __name__ == "__main__":
    needs_device.main()
