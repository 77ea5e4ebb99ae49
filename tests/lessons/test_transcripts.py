# SPDX-License-Identifier: MIT
"""The transcripts in lessons/transcripts: a command, and what it prints."""
import re
import unittest

import needs_device
from lab import transcript, variants
from lab.paths import ROOT


class Transcripts(unittest.TestCase):
    def test_transcripts(self):
        for path in transcript.files():
            expected = variants.expected(path, needs_device.PLACE).read_text()
            with self.subTest(path.name):
                found = transcript.run(expected)
                if needs_device.PLACE.kind == "machine":
                    found = transcript.differences(expected, found, needs_device.PLACE.device)
                    self.assertEqual(found, [], "\n".join(found))

    def test_what_a_capture_may_differ_in(self):
        expected = (ROOT / "lessons/transcripts/02_send_recv.capture.txt").read_text()
        command, title, *rows = expected.splitlines(True)
        send, ack, answer, last = rows
        not_ready = ack.replace("ACK", "RNR NAK, retry after 0.64 ms")
        gap = re.sub(r"0x\w+ +ACK", "0x9537bd  NAK, PSN sequence error", ack)

        def differences(*packets):
            return transcript.differences(expected, "".join([command, title, *packets]), "rxe0")

        for same in (
            rows, [send, answer, ack, last], [send, send, ack, ack, answer, last],
            [send, not_ready, send, ack, answer, last], [send, gap, send, ack, answer, last],
        ):
            self.assertEqual(differences(*same), [])
        for number in range(len(rows)):
            self.assertTrue(differences(*rows[:number], *rows[number + 1 :]))
        self.assertTrue(differences(send, not_ready, answer, last))
        self.assertTrue(differences(send, ack, gap, answer, last))
        self.assertTrue(differences(send.replace("64 ", "65 "), ack, answer, last))


if __name__ == "__main__":
    needs_device.main()
