# SPDX-License-Identifier: MIT
"""Peers of 21_group_send and 22_credits that lie about their runs, messages and credits. And
numbers of callers, and sizes of groups, at the edges."""
import re

import liars
import needs_device

LIAR = str(needs_device.BUILD / "tests/faults/lying_runs")
GROUP, CREDITS = (needs_device.program(name) for name in ("group_send", "credits"))

NEXT = "the peer's run: it is not the one that must come next"
RUNS = {
    "plain": "it is not an RDMA WRITE with immediate data",
    "second": NEXT,
    "twice": NEXT,
    "more": "128 bytes are not 3 slots",
    "fewer": "128 bytes are not 1 slots",
    "half": "32 bytes are not 1 slots",
    "long": "the peer's message: it is longer than its slot",
    "longest": "the peer's message: it is longer than its slot",
    "outside": "completed with status 10",
    "memory": "the peer's memory: its size is not that of ours",
    "random": "the peer's ",
}
ANSWERS = {name: words for name, words in RUNS.items() if name != "twice"} | {
    "stranger": "the peer's answer: it is not for a caller that waits",
    "other-text": "the peer's answer: it is not for a caller that waits",
}
CREDIT = {
    "too-many": "the peer's credit: it has taken more runs than were sent",
    "backwards": "the peer's credit: it has taken more runs than were sent",
}


class Lies(liars.Refused):
    def test_group_send(self):
        self.all_refused(
            {
                "server": {**RUNS, "none": NEXT, "beyond": NEXT},
                "client": {**ANSWERS, "none": NEXT},
            }, [GROUP], [LIAR, "--slots", "3072"])

    def test_credits(self):
        self.all_refused(
            {
                "server": {
                    **RUNS,
                    **CREDIT, "beyond": NEXT,
                    "gone": "the peer's 'done': the peer closed the connection"
                },
                "client": {
                    **ANSWERS,
                    **CREDIT, "gone": "the peer: it is gone"
                },
            }, [CREDITS], [LIAR])

    def test_a_client_that_needs_no_credit(self):
        """It gets its answers, and never gives their slots back. So the server stops taking."""
        self.all_refused(
            {"server": {
                "impatient": "the peer's run: it has no credit for one more"
            }}, [CREDITS], [LIAR])


class Edges(liars.Refused):
    def both(self, program, *arguments):
        outcome = liars.run([program, *arguments], [program, *arguments])
        self.assertFalse(outcome.failed, outcome.text())
        return outcome

    def test_group_send(self):
        for callers, fewer in ((1, [1024, 1024]), (8, [128, 128]), (64, [128, 16])):
            with self.subTest(callers):
                text = self.both(GROUP, "--callers", str(callers)).text()
                found = re.findall(r"^\S* *(?:1|8|64) +1024 +(\d+)", text, re.M)
                self.assertEqual([int(each) for each in found], [1024, *fewer])
                self.assertIn("3072 requests answered", text)
        self.both(GROUP, "--callers", "1024")

    def test_credits(self):
        for callers, requests, group in ((1, 1000, 16), (3, 700, 2), (500, 20, 1), (64, 100, 64),
                                         (1000, 10, 255), (65, 64, 7)):
            with self.subTest((callers, requests, group)):
                text = self.both(
                    CREDITS, "--callers", str(callers), "--requests", str(requests), "--group",
                    str(group)).text()
                count = callers * requests
                self.assertIn(f"{count} requests answered", text)
                self.assertIn(f"{count} requests of {callers} callers are answered", text)


if __name__ == "__main__":
    needs_device.main()
