# SPDX-License-Identifier: MIT
"""A trace is what the programs did: checked against what they print, against the wire, and against
the run that each lesson's picture shows."""
import dataclasses
import os
import re
import tempfile
import unittest
import unittest.mock
from pathlib import Path

import two_hosts
from lab import examples, ladder
from lab.commands import trace
from lab.wire import recording, timeline, timeline_svg, timeline_text
from two_hosts import A, BUILD, lab


def on_host(recorded, host, packets=False):
    """The calls of a host's programs, or the packets that passed it."""
    return [event.what for event in recorded.events
            if event.host == host and event.is_packet == packets]


def calls(recorded, host, name):
    return [call for call in on_host(recorded, host) if call.call == name]


class Trace(unittest.TestCase):
    # The limits of time are among the arguments of calls, and some runs wait in vain.
    @unittest.mock.patch.dict(os.environ, {"RDMA_TIMEOUT": "5"})
    def test_runs_are_still_like_the_pictures(self):
        for lesson in ladder.read():
            for name in ["", *examples.breaks(lesson)]:
                file = recording.file_of(lesson.stem, name)
                if file.exists():
                    with self.subTest(file.stem):
                        kept = recording.Recording.load(file)
                        program = examples.program(lesson, name) if name else lesson.program
                        _, run = trace.of_example(lesson.kind, program, kept.arguments)
                        found = kept.differences(run, A.device)
                        self.assertEqual(found, [], "\n".join(found))

    def test_numbers_are_those_that_the_program_printed(self):
        outcome, recorded = trace.of_example("pair", "send_recv")
        for host, role, peer in (("a", "server", "b"), ("b", "client", "a")):
            qpn, psn = (
                int(number, 16)
                for number in re.search(
                    r"^me +\w+:(\w+):(\w+):", "\n".join(outcome.of(role)), re.M
                ).groups())
            self.assertEqual(calls(recorded, host, "ibv_create_qp")[0].qp, qpn)
            init, rtr, rts = calls(recorded, host, "ibv_modify_qp")
            self.assertEqual(
                (init.state, rtr.state, rts.state, rts.sq_psn), ("INIT", "RTR", "RTS", psn))
            self.assertEqual(calls(recorded, peer, "ibv_modify_qp")[1].rq_psn, psn)
            self.assertEqual(calls(recorded, host, "ibv_post_send")[0].wrs[0]["length"], 64)

    def test_every_cause_is_before_its_effect(self):
        _, recorded = trace.of_example("pair", "send_recv")
        events = recorded.events
        place = {id(event): number for number, event in enumerate(events)}
        for event in events:
            for cause in event.after:
                self.assertLess(place[id(cause)], place[id(event)])
        chain = [
            (
                event.what.name if event.is_packet else event.what.call, event.host,
                event.is_packet and event.sent)
            for event in events
            if event.requests == [1]
        ]
        self.assertEqual(
            chain[:3],
            [("ibv_post_send", "b", False), ("SEND Only", "b", True), ("SEND Only", "a", False)])
        self.assertEqual(
            sorted(chain[3:]),
            [
                ("Acknowledge", "a", True),
                ("Acknowledge", "b", False),
                ("ibv_poll_cq", "a", False),
                ("ibv_poll_cq", "b", False),
            ])

    def test_clocks_do_not_decide(self):
        """The same run, with host b's clock an hour off, gives the same timeline."""
        _, recorded = trace.of_example("pair", "send_recv")
        before = timeline_text.render(recorded)
        hour = 3600 * 10**9
        later = [
            timeline.Call({**call.data, "begin": call.begin + hour, "end": call.end + hour})
            for call in on_host(recorded, "b")]
        packets = [
            dataclasses.replace(packet, time=packet.time + hour)
            for packet in on_host(recorded, "b", packets=True)]
        off = recording.Recording(
            recorded.titles,
            timeline.merge(
                {"a": on_host(recorded, "a"), "b": later},
                {"a": on_host(recorded, "a", packets=True), "b": packets}))
        self.assertEqual(timeline_text.render(off), before)

    def test_kept_and_loaded_is_the_same(self):
        """But for the numbers that a run has of its own."""
        _, recorded = trace.of_example("pair", "send_recv")
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "trace.txt"
            recorded.save(file)
            again, text = recording.Recording.load(file), file.read_text()
            again.save(file)
            self.assertEqual(file.read_text(), text)
        first, second = (
            re.sub(r"\b(0x\w+|\w{6}:\w{6}:|\d{5}\b)", "N", timeline_svg.draw(drawn))
            for drawn in (recorded, again))
        self.assertEqual(re.sub(r"<[^>]*>", "", first), re.sub(r"<[^>]*>", "", second))

    def stock(self, *words):
        outcome, recorded = trace.of_command(list(words))
        self.assertEqual(set(outcome.status.values()), {0}, outcome.text())
        return recorded

    def test_stock_pingpong(self):
        for options, post in (
            ([], "ibv_post_send"),
            (["-N"], "ibv_wr_complete"),
            (["-e"], "ibv_post_send"),
        ):
            with self.subTest(options):
                recorded = self.stock(
                    "ibv_rc_pingpong", "-g", "1", "-n", "3", "-s", "3000", *options)
                for host in "ab":
                    posted = calls(recorded, host, post)
                    self.assertEqual([call.wrs[0]["length"] for call in posted], [3000] * 3)
                    done = [wc for call in on_host(recorded, host) for wc in call.wcs or []]
                    self.assertEqual(
                        sorted(wc["opcode"] for wc in done), ["RECV"] * 3 + ["SEND"] * 3)
                    self.assertEqual(
                        bool(calls(recorded, host, "ibv_get_cq_event")), options == ["-e"])
                packets = {
                    (packet.host, packet.psn)
                    for packet in on_host(recorded, "a", packets=True)
                    if packet.name.startswith("SEND")
                }
                self.assertEqual(len(packets), 2 * 3 * 3)  # 3000 bytes are three packets
                numbers = [event.requests for event in recorded.events if event.is_packet]
                self.assertEqual([number for number in numbers if len(number) != 1], [])
                self.assertEqual(
                    {number for numbers in numbers for number in numbers}, set(range(1, 7)))

    def test_datagrams(self):
        recorded = self.stock("ibv_ud_pingpong", "-g", "1", "-n", "3", "-s", "100")
        posted = calls(recorded, "b", "ibv_post_send")
        qpn = calls(recorded, "a", "ibv_create_qp")[0].qp
        self.assertEqual(
            [(call.wrs[0]["length"], call.wrs[0]["dest_qp"]) for call in posted], [(100, qpn)] * 3)
        self.assertTrue(all(event.requests for event in recorded.events if event.is_packet))

    def test_two_commands(self):
        """rdma_server does not listen on TCP: ./lab trace starts the client once it has called
        rdma_listen()."""
        recorded = self.stock("rdma_server", "--", "rdma_client", "-s", A.address)
        for host, name in (("a", "rdma_accept"), ("b", "rdma_connect")):
            (call,) = calls(recorded, host, name)
            inside = [
                each.state
                for each in calls(recorded, host, "ibv_modify_qp")
                if call.begin <= each.begin and each.end <= call.end
            ]
            self.assertEqual(inside[-2:], ["RTR", "RTS"])  # what librdmacm does for the program
            (posted,) = calls(recorded, host, "ibv_post_send")
            self.assertEqual((posted.wrs[0]["opcode"], posted.wrs[0]["length"]), ("SEND", 16))

    def test_a_failing_call_is_marked(self):
        outcome, recorded = trace.of_command(["ibv_rc_pingpong"])  # without -g: no GRH
        self.assertNotEqual(outcome.status["server"], 0)
        rtr = [call for call in calls(recorded, "a", "ibv_modify_qp") if call.state == "RTR"]
        self.assertEqual(
            [(call.failed, call.result) for call in rtr], [(True, "EINVAL Invalid argument")])

    def test_a_program_that_is_alone(self):
        result = lab("trace", "01_hello_device")
        self.assertIn("ibv_open_device  rxe0", result.stdout)
        self.assertNotIn("host b", result.stdout)
        self.assertIn("ibv_open_device", lab("trace", "--", "ibv_devinfo").stdout)

    def test_a_killed_program_leaves_its_trace(self):
        file = "/tmp/killed.json"
        two_hosts.on("a", "cp", str(BUILD / trace.LIBRARY), trace.PRELOADED)
        two_hosts.on(
            "a",
            "sh",
            "-c",
            (
                f"rm -f {file}; VERBS_TRACE={file} VERBS_TRACE_ANNOUNCE=1"
                f" LD_PRELOAD={trace.PRELOADED} ibv_rc_pingpong -g 1 >/dev/null 2>/tmp/said &"
                " program=$!; until grep -q listening /tmp/said; do :; done; kill -KILL $program"))
        found = timeline.read_calls(two_hosts.on("a", "cat", file))
        self.assertEqual(found[-1].call, "listen")
        self.assertIn("ibv_create_qp", [call.call for call in found])

    def test_wrong_words(self):
        self.assertIn("no example 99", lab("trace", "99", status=2).stderr)
        self.assertIn("required", lab("trace", status=2).stderr)


if __name__ == "__main__":
    two_hosts.main()
