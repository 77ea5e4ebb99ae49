# SPDX-License-Identifier: MIT
"""The transcripts in tests/expected: a command, and what it prints. Some are of packets, and the
order of packets of two queue pairs, or of a packet and a TCP message, changes while other programs
keep the processors busy. So this test runs alone."""
import re
import subprocess
import unittest

import needs_device
from lab import normalise, variants
from lab.paths import ROOT

LIMIT = 900


def without_repeats(said):
    """A capture without the packets that were sent once more because their acknowledgement was late
    (not because of an RNR NAK)."""
    kept, seen = [], set()
    for line in said.splitlines(True):
        packet = re.search(r"[ab] -> [ab] .*", line)
        if packet and packet[0] in seen:
            continue
        if packet:
            seen = set() if "RNR NAK" in line else seen | {packet[0]}
        kept.append(line)
    return "".join(kept)


class Transcripts(unittest.TestCase):
    def test_transcripts(self):
        for path in sorted((ROOT / "tests/expected").glob("*.transcript.txt")):
            command, expected = (
                variants.expected(path, needs_device.PLACE).read_text().split("\n", 1)
            )
            with self.subTest(path.name):
                # On a busy machine an acknowledgement may come late, and change places with the
                # next packet. Or a packet may come after what follows it over TCP.
                tries = 20 if "capture" in command else 1
                while found := self.differences(command.removeprefix("$ "), expected):
                    tries -= 1
                    self.assertGreater(tries, 0, "\n".join(found))

    def test_a_repeated_packet_is_left_out(self):
        repeated = (
            "1.0  b -> a  SEND\n1.5  b -> a  SEND\n2.0  a -> b  RNR NAK\n3.0  b -> a  SEND\n4.0  a"
            " -> b  ACK\n4.5  a -> b  ACK\n"
        )
        self.assertEqual(
            without_repeats(repeated),
            "1.0  b -> a  SEND\n2.0  a -> b  RNR NAK\n3.0  b -> a  SEND\n4.0  a -> b  ACK\n")

    @staticmethod
    def differences(command, expected):
        command, head, _ = command.partition(" | head")
        result = subprocess.run(
            ["sh", "-c", command], cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, timeout=LIMIT)
        if needs_device.PLACE.kind != "machine":
            return []
        # ./lab's own remarks depend on what is running and built already.
        said = "".join(
            line
            for line in result.stdout.splitlines(True)
            if not re.match(r"lab: |ninja: |\[\d+/\d+\]", line)
        )
        said = without_repeats(said)
        if head:
            said = "".join(said.splitlines(True)[: len(expected.splitlines())])
        return normalise.differences(
            expected, normalise.split_roles(said), needs_device.PLACE.device
        )


if __name__ == "__main__":
    needs_device.main()
