# SPDX-License-Identifier: MIT
"""The transcripts in tests/expected: a command, and what it prints."""
import unittest

import needs_device
from lab import transcript, variants
from lab.paths import ROOT


class Transcripts(unittest.TestCase):
    def test_transcripts(self):
        for path in sorted((ROOT / "tests/expected").glob("*.transcript.txt")):
            expected = variants.expected(path, needs_device.PLACE).read_text()
            with self.subTest(path.name):
                found = transcript.run(expected)
                if needs_device.PLACE.kind == "machine":
                    found = transcript.differences(expected, found, needs_device.PLACE.device)
                    self.assertEqual(found, [], "\n".join(found))


if __name__ == "__main__":
    needs_device.main()
