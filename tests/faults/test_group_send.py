# SPDX-License-Identifier: MIT
"""Peers of 21_group_send that lie about their runs and their credits, and shapes at the edges.

What can be wrong within a run: tests/unit/test_inbox.cpp."""
import liars
import needs_device

LIAR = str(needs_device.BUILD / "tests/faults/lying_runs")
HONEST = needs_device.program("group_send")
LIES = {
    "server": {
        "beyond": "2 slots from 1023 on: there are only 1024",
        "short": "64 bytes are not 4 slots",
        "outside": "a request: completed with status 10",
        "elsewhere": "there is no kind 0",
        "kind": "there is no kind 9",
        "send": "it is not an RDMA WRITE with immediate data",
        "memory": "its size is not that of ours",
        "gone": "the peer: it is gone",
    },
    "client": {
        "other": "it is not for what was sent",
        "twice": "it is not for what was sent",
        "send": "it is not an RDMA WRITE with immediate data",
        "gone": "the peer: it is gone",
    },
}


def run(*both):
    return liars.run(*([*argv, "--timeout", "2"] for argv in both))


class Lies(liars.Refused):
    def test_lies(self):
        self.all_refused(LIES, [HONEST], [LIAR])


class Shapes(liars.Refused):
    def both(self, *arguments):
        return run([HONEST, *arguments], [HONEST, "--measure", "0", *arguments])

    def test_every_edge(self):
        for arguments, messages in (
            (("--slots", "1", "--slot-size", "64", "--longest", "40", "--messages", "50"), 200),
            (("--slots", "8", "--slot-size", "128", "--processes", "7", "--messages", "100"), 700),
            (("--slots", "1024", "--longest", "16000", "--messages", "20", "--processes", "2"), 40),
            (("--slots", "4096", "--slot-size", "192", "--group", "1", "--messages", "0"), 0),
        ):
            with self.subTest(arguments):
                outcome = self.both(*arguments)
                self.assertFalse(outcome.failed, outcome.text())
                self.assertIn(f"{messages} messages of", "\n".join(outcome.of("server")))
                self.assertIn("nothing is lost, doubled or torn", outcome.text())

    def test_a_message_that_does_not_fit(self):
        self.assertRefused(
            self.both("--slots", "2", "--longest", "200"), "client", "a producer: it has failed")

    def test_shapes_that_differ(self):
        self.assertRefused(
            run([HONEST], [HONEST, "--slots", "512", "--slot-size", "128"]), "server",
            "its --slots, --slot-size or --processes are not ours")
        self.assertRefused(
            run([HONEST], [HONEST, "--processes", "3"]), "server",
            "its --slots, --slot-size or --processes are not ours")


if __name__ == "__main__":
    needs_device.main()
