# SPDX-License-Identifier: MIT
"""What lesson 06 and its page on costs say: the event is lost every time, and a burst wakes a
program once that sleeps for its last message. Times are not compared: other programs run at the
same time."""
import json
import os
import subprocess
import unittest

import needs_device
from lab import examples

# As in completion_costs: messages of a burst, and how often each way to wait has its turn.
BURST, TURNS = 32, 5


def run(program, *arguments, under=()):
    return examples.run(
        needs_device.PLACE, needs_device.BUILD, program, "pair", arguments, under=under)


def on_device(script, *arguments):
    return subprocess.run(
        needs_device.PLACE.wrap(["sh", "-e", "-c", script, "sh", *arguments]),
        stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True).stdout


def rounds(calls):
    """Of each round of the server's (messages, how the CQ was armed each time, events). Its answer,
    a SEND, ends a round."""
    messages, armed, events = 0, [], 0
    for call in calls:
        if call["failed"]:
            continue
        if call["call"] == "ibv_req_notify_cq":
            armed.append("solicited only" in call["text"])
        elif call["call"] == "ibv_get_cq_event":
            events += 1
        elif call["call"] in ("ibv_poll_cq", "ibv_start_poll"):
            messages += sum(wc["opcode"] == "RECV" for wc in call["wcs"])
        elif call["call"] == "ibv_post_send":
            yield messages, armed, events
            messages, armed, events = 0, [], 0


def most_events(found):
    """How many events these rounds can have. Each time that the CQ is armed for any message raises
    one. A round raises one in which the server sleeps for solicited messages: only its last message
    is solicited. Nothing else does, but the CQ may stay armed at the end of a turn."""
    most, unarmed, sleeps_for_solicited = TURNS + 1, 0, False
    for _, armed, _ in found:
        if not armed:  # the messages were there: it did not have to sleep
            unarmed += 1
            continue
        was, sleeps_for_solicited = sleeps_for_solicited, all(armed)
        most += 1 + was * unarmed if sleeps_for_solicited else len(armed)
        unarmed = 0
    return most


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
            outcome = run("completions")
            self.assertFalse(outcome.failed, outcome.text())
            self.assertIn("armed too late: 0 events, but 1 message", outcome.of("server"))

    def test_asynchronous_events(self):
        """A new GID, or a port that is up, is no reason to stop waiting. A broken device is."""
        outcome = examples.run(
            needs_device.PLACE, needs_device.BUILD, "../tests/examples/async_events", "device")
        self.assertEqual(outcome.of("")[0], "harmless events: slept on", outcome.text())
        self.assertRegex(outcome.of("")[1], "^a broken device: the device reports: ")

    def test_a_burst_wakes_once(self):
        """A server that polls gets no event. One that sleeps for solicited messages gets one event
        for a burst. It may get it in a later round: the poll after arming can find the message."""
        trace = f"/tmp/waiting-{os.getpid()}"
        self.addCleanup(on_device, 'rm -f "$1"*', trace)
        on_device(
            'cp "$1" "$2".so', str(needs_device.BUILD / "tools/trace/libverbs_trace.so"), trace)
        under = ["env", f"VERBS_TRACE={trace}", f"LD_PRELOAD={trace}.so"]
        outcome = run("completion_costs", under=under)
        self.assertFalse(outcome.failed, outcome.text())
        calls = [json.loads(line) for line in on_device('cat "$1"', trace).splitlines()]
        calls.sort(key=lambda call: call["begin"])
        (server,) = {call["pid"] for call in calls if call["call"] == "ibv_start_poll"}
        found = list(rounds(call for call in calls if call["pid"] == server))
        polling = [events for messages, armed, events in found if messages and not armed]
        # three ways to wait for single messages and for bursts, and five ways to send
        self.assertGreaterEqual(len(polling), (3 * 2 + 5) * TURNS)
        self.assertEqual(sum(polling), 0, found)
        self.assertLessEqual(sum(events for _, _, events in found), most_events(found), found)
        self.assertTrue(
            any(messages == BURST and armed and all(armed) for messages, armed, _ in found), found)

    def test_one_round(self):
        outcome = run("completion_costs", "--measure", "1")
        self.assertFalse(outcome.failed, outcome.text())
        self.assertNotIn("nan", outcome.text())


if __name__ == "__main__":
    needs_device.main()
