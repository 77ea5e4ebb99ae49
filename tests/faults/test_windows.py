# SPDX-License-Identifier: MIT
"""Peers of 10_memory_windows that lie about the window, or never give it back."""
import liars
import needs_device

LIAR = str(needs_device.BUILD / "tests/faults/lying_window")
HONEST = needs_device.program("memory_windows")
CASE = ["--case", "given-back"]
LIES = {
    "server": {
        "plain": "the client's message: it gives nothing back",
        "other-key": "the client's message: completed with status",
    },
    "client": {
        "version": "it is of another version",
        "rights": "its rights are not READ, or READ and WRITE",
        "no-rights": "its rights are not READ, or READ and WRITE",
        "small": "its window is too small",
        "wraps": "its window ends past the last address that there is",
        "long": "its window ends past the last address that there is",
        "short": "it has not the size of one",
        "silence": "the grant: no completion within 2 s",
    },
}


class Lies(liars.Refused):
    def test_lies(self):
        self.all_refused(LIES, [HONEST, *CASE], [LIAR, *CASE])

    def test_client_that_keeps_what_it_owes(self):
        short = [*CASE, "--timeout", "2"]
        outcome = liars.run([HONEST, *short], [LIAR, "--lie", "silence", *short])
        self.assertFalse(outcome.failed, outcome.text())
        self.assertIn("NOT given back, taken", outcome.text())
        self.assertIn("too late: remote access error", outcome.text())

    def test_a_case_that_is_none(self):
        self.assertEqual(liars.run([HONEST, *CASE, "--lease", "0"], [HONEST]).status["server"], 2)


if __name__ == "__main__":
    needs_device.main()
