# SPDX-License-Identifier: MIT
"""Peers of 05_write_with_imm that lie in what they say of their fragments, and sizes at the
edges."""
import hashlib
import tempfile
import unittest
from pathlib import Path

import liars
import needs_device

LIAR = str(needs_device.BUILD / "tests/faults/lying_writer")
HONEST = needs_device.program("write_with_imm")
LIES = {
    "server": {
        "first": "it begins with fragment 1, not 0",
        "count": "16384 bytes are not 5 fragments",
        "too-many": "17 fragments do not fit there",
        "most": "it begins with fragment 16777215, not 0",
        "end": "its summary is of another version",
        "end-with-data": "1 bytes are not 0 fragments",
        "past-the-end": "the next fragments: completed with status 5",
        "send": "it is not an RDMA WRITE with immediate data",
        "not-full": "it comes after a fragment that was not full",
        "summary": "what has come is not what its summary says",
        "silence": "the next fragments: no completion within 2 s",
    },
    "client": {
        "first": "it is no answer to what was sent",
        "too-many": "it is no answer to what was sent",
        "none": "it is no answer to what was sent",
        "send": "it is no answer to what was sent",
        "memory": "its size is not that of ours",
        "silence": "the server's answer: no completion within 2 s",
    },
}


class Lies(liars.Refused):
    def test_lies(self):
        self.all_refused(LIES, [HONEST], [LIAR])

    def test_files_that_cannot_be(self):
        for arguments, words in (
            (["--file", "/nowhere"], "/nowhere: cannot be opened"),
            (["--file", "/"], "/: cannot be read"),
        ):
            with self.subTest(arguments):
                self.assertRefused(
                    liars.run([HONEST], [HONEST, *arguments], stop_server=True), "client", words)
        # This client waits for an answer of the server that has ended, for its whole limit.
        self.assertRefused(
            liars.run([HONEST, "--save", "/nowhere/at/all"], [HONEST, "--timeout", "10"]), "server",
            "/nowhere/at/all: cannot be written")


class Sizes(unittest.TestCase):
    def test_every_edge(self):
        for size in (0, 1, 4096, 4097, 65536, 300_000):
            for length in (5, 16):
                with self.subTest(size, length=length):
                    outcome = liars.run(
                        [HONEST], [HONEST, "--size", str(size), "--run", str(length)])
                    self.assertFalse(outcome.failed, outcome.text())
                    self.assertIn(
                        f"received {size} bytes in {-(-size // 4096)} fragments", outcome.text())

    def test_a_file_arrives_as_it_is(self):
        with tempfile.TemporaryDirectory(dir=needs_device.BUILD) as folder:
            copy = Path(folder) / "a copy"
            outcome = liars.run([HONEST, "--save", str(copy)], [HONEST, "--file", HONEST])
            self.assertFalse(outcome.failed, outcome.text())
            self.assertEqual(
                hashlib.sha256(copy.read_bytes()).digest(),
                hashlib.sha256(Path(HONEST).read_bytes()).digest())


if __name__ == "__main__":
    needs_device.main()
