# SPDX-License-Identifier: MIT
"""What lesson 06 says of waiting: the event is lost every time, and sleeping saves CPU time where
it says so. Others that run at the same time would be measured, too."""
import re
import unittest

import needs_device
from lab import examples

ROW = re.compile(r"^  (\S.*?)((?: +\d+\.\d{3} us)+)$")


def run(program, *arguments):
    return examples.run(needs_device.PLACE, needs_device.BUILD, program, "pair", arguments)


def table(lines):
    """name of the way -> its numbers."""
    rows = filter(None, map(ROW.match, lines))
    return {row[1]: [float(number) for number in re.findall(r"[\d.]+", row[2])] for row in rows}


class Waiting(unittest.TestCase):
    @unittest.skipUnless(
        needs_device.PLACE.device.startswith("rxe"),
        "others may raise an event for what is there already")
    def test_the_event_is_lost_every_time(self):
        for _ in range(5):
            outcome = run("completions.no_second_poll")
            self.assertEqual(outcome.status, {"server": 1, "client": 1}, outcome.text())
            self.assertIn("armed too late: 0 events, but 0 message", outcome.of("server"))
            self.assertIn("error: the completion: no event within 2000 ms", outcome.text())

    def test_the_event_is_never_missed(self):
        for _ in range(5):
            outcome = run("completions", "--measure", "0")
            self.assertFalse(outcome.failed, outcome.text())
            self.assertIn("armed too late: 0 events, but 1 message", outcome.of("server"))

    def test_asynchronous_events(self):
        """A new GID, or a port that is up, is no reason to stop waiting. A broken device is."""
        outcome = examples.run(
            needs_device.PLACE, needs_device.BUILD, "../tests/examples/async_events", "device"
        )
        self.assertEqual(outcome.of("")[0], "harmless events: slept on", outcome.text())
        self.assertRegex(outcome.of("")[1], "^a broken device: the device reports: ")

    def test_sleeping_costs_less(self):
        """On a machine that is busy with other things not every run shows it: the emulated machine
        takes the time in which it did not run for CPU time of its programs."""
        for _ in range(20):
            outcome = run("completions")
            self.assertFalse(outcome.failed, outcome.text())
            waits, sends = table(outcome.of("server")), table(outcome.of("client"))
            self.assertEqual((len(waits), len(sends)), (5, 5), outcome.text())
            time, cpu, *_ = waits["sleep, any event"]
            if (
                cpu < time
                and waits["sleep, solicited event"][3] < waits["poll, one at a time"][3] / 2
            ):
                return
        self.fail(outcome.text())

    def test_one_round(self):
        outcome = run("completions", "--measure", "1")
        self.assertFalse(outcome.failed, outcome.text())
        self.assertNotIn("nan", outcome.text())


if __name__ == "__main__":
    needs_device.main()
