# SPDX-License-Identifier: MIT
"""libverbs_trace.so says of each call what it was: of our examples, of stock tools, and of a
program made to be difficult."""
import itertools
import json
import os
import random
import re
import subprocess
import unittest
from collections import Counter

import needs_device
from lab import examples, pair, variants

PLACE = needs_device.PLACE
SANITIZED = "sanitize" in needs_device.BUILD.name
READY = re.compile("verbs-trace: listening")
MASK24 = 0xFFFFFF
HAS_RKEY = variants.since(PLACE, variants.EACH_REGION_HAS_AN_RKEY)
numbers = itertools.count()

# By a relative path, since LD_PRELOAD takes a space for the end of one.
os.chdir(needs_device.BUILD / "tools/trace")
PRELOAD = ["./libverbs_trace.so"]
if SANITIZED:  # whose library has to be the first one
    PRELOAD.insert(
        0,
        subprocess.run(
            ["g++", "-print-file-name=libasan.so"], capture_output=True, text=True, check=True
        ).stdout.strip())


# In rdma-core 44, rping's main thread may destroy the channel before its other thread, which has
# handled the last event, asks for one more. A later version ends that thread first.
END_OF_THE_CHANNEL = "rdma_get_cm_event", "rdma_get_cm_event: Bad file descriptor"


def on_device(*argv, **options):
    return subprocess.run(
        PLACE.wrap(list(argv)), stdin=subprocess.DEVNULL, capture_output=True, text=True,
        timeout=600, **options)


def gid_index():
    return (
        on_device(needs_device.program("hello_device"), "--device", PLACE.device)
        .stdout.split("examples use GID index ")[1]
        .split()[0])


class Call(dict):
    """A line of the file; what a call does not say is None."""

    __getattr__ = dict.get

    def __hash__(self):
        return id(self)


class Traced(unittest.TestCase):
    def setUp(self):
        self.file = f"/tmp/test-trace-{os.getpid()}-{next(numbers)}"
        self.addCleanup(on_device, "sh", "-c", f"rm -f {self.file}*")

    def under(self, suffix=""):
        return [
            "env", f"VERBS_TRACE={self.file}{suffix}", "VERBS_TRACE_ANNOUNCE=1",
            f"LD_PRELOAD={':'.join(PRELOAD)}"]

    def calls(self, suffix=""):
        """All of them, in the order of their beginnings. Each line has to be whole."""
        text = on_device("cat", self.file + suffix, check=True).stdout
        self.assertTrue(text.endswith("\n"))
        calls = [Call(json.loads(line)) for line in text.splitlines()]
        for call in calls:
            self.assertLessEqual(call.begin, call.end, call)
            self.assertEqual(
                {type(call[key]) for key in ("pid", "tid", "begin", "end", "depth")}, {int}, call)
        return sorted(calls, key=lambda call: call.begin)

    def pair(self, *argv, client=None, defect=None):
        """A stock tool as server and as client. @return the calls of both, and what both printed

        @param defect a defect of the tool: the call that may fail at the end, and what the tool
        prints before it ends with -1"""
        failing, says = defect or ("", "")
        outcome = pair.run(
            PLACE, [*self.under(".s"), *argv],
            pair.Client(READY, lambda _: [*self.under(".c"), *(client or [*argv, PLACE.address])]))
        has_failed = {
            role: bool(defect) and says in outcome.of(role) for role in ("server", "client")}
        self.assertEqual(
            outcome.status, {role: 255 if failed else 0 for role, failed in has_failed.items()},
            outcome.text())
        both = self.calls(".s"), self.calls(".c")
        for calls, failed in zip(both, has_failed.values()):
            self.assertEqual(
                [call.call for call in calls if call.failed and call.result != "did not return"],
                [failing] if failed else [])
            self.assertEqual(
                [call for call in calls if "?" in call.text + call.result and not call.tcp], [])
        return *both, outcome


def named(calls, *names):
    return [call for call in calls if call.call in names]


def states(calls):
    """What ibv_modify_qp set, by state."""
    return {call.state: call for call in named(calls, "ibv_modify_qp")}


def requests(calls, name):
    return [wr for call in named(calls, name) for wr in call.wrs]


def completions(calls, *names):
    return [wc for call in named(calls, *names) for wc in call.wcs]


@unittest.skipIf(SANITIZED, "the sanitizer finds the stock tools' own leaks")
class Example(Traced):
    def test_send_recv(self):
        outcome = examples.run(PLACE, needs_device.BUILD, "send_recv", "pair", under=self.under())
        self.assertEqual(outcome.status, {"server": 0, "client": 0}, outcome.text())
        everything = self.calls()  # both wrote to the same file
        by_qp = {}
        for created in named(everything, "ibv_create_qp"):
            by_qp[created.qp] = [call for call in everything if call.pid == created.pid]
        self.assertEqual(len(by_qp), 2)
        for role in ("server", "client"):
            lines = [line.split() for line in outcome.of(role)]
            me, peer = (
                [int(field, 16) for field in words[1].split(":")[1:3]]
                for words in lines
                if words[0] in ("me", "peer"))
            calls = [call for call in by_qp[me[0]] if not call.tcp and call.call != "listen"]
            self.assertEqual(
                [call.call for call in calls if call.call != "ibv_poll_cq"],
                [
                    "ibv_open_device", "ibv_alloc_pd", "ibv_reg_mr", "ibv_create_cq",
                    "ibv_create_qp", "ibv_modify_qp", "ibv_post_recv", "ibv_modify_qp",
                    "ibv_modify_qp", "ibv_post_send", "ibv_destroy_qp", "ibv_destroy_cq",
                    "ibv_dereg_mr", "ibv_dealloc_pd", "ibv_close_device"])
            self.assertEqual({(call.depth, call.failed) for call in calls}, {(0, False)})
            self.assertEqual({call.tid for call in calls}, {calls[0].pid})
            created, registered = named(calls, "ibv_create_qp")[0], named(calls, "ibv_reg_mr")[0]
            self.assertEqual(
                (created.type, created.sq_sig_all, created.result), ("RC", False, f"qp {me[0]:#x}"))
            self.assertEqual((registered.length, registered.text), (128, "pd1, 128 B, LOCAL_WRITE"))
            rkey = f" rkey {registered.lkey:#x}" if HAS_RKEY else ""
            self.assertEqual(registered.result, f"mr1 lkey {registered.lkey:#x}{rkey}")
            self.assertEqual(
                [call.state for call in named(calls, "ibv_modify_qp")], ["INIT", "RTR", "RTS"])
            to = states(calls)
            self.assertEqual((to["RTR"].qp, to["RTR"].dest_qp, to["RTR"].rq_psn), (me[0], *peer))
            self.assertIn(to["RTR"].path_mtu, (256, 512, 1024, 2048, 4096))
            self.assertIn(f"dest QP {peer[0]:#x}", to["RTR"].text)
            self.assertEqual(
                (to["RTS"].qp, to["RTS"].sq_psn, to["RTS"].rq_psn), (me[0], me[1], None))
            self.assertIn("timeout 14, retry_cnt 6, rnr_retry 6", to["RTS"].text)
            self.assertEqual(
                [(call.qp, call.wrs) for call in named(calls, "ibv_post_recv")],
                [(me[0], [{"wr_id": 1, "length": 64}])])
            self.assertEqual(
                [(call.qp, call.wrs) for call in named(calls, "ibv_post_send")],
                [
                    (
                        me[0],
                        [
                            {
                                "wr_id": 2,
                                "opcode": "SEND",
                                "length": 64,
                                "signaled": True,
                                "inline": False,
                            }])])
            self.assertCountEqual(
                completions(calls, "ibv_poll_cq"),
                [
                    {"wr_id": 1, "status": "SUCCESS", "qp": me[0], "opcode": "RECV", "length": 64},
                    {"wr_id": 2, "status": "SUCCESS", "qp": me[0], "opcode": "SEND"}])
            self.assertEqual(
                [call.text for call in calls if call.call.startswith("ibv_de")],
                ["qp %#x" % me[0], "cq1", "mr1", "pd1"])


@unittest.skipIf(SANITIZED, "once is enough: the sizes are the same")
class CompletionQueues(Traced):
    """Each has room for all that may be posted: what fails or is flushed completes also without
    being signaled."""

    def overbooked(self, program):
        """@return the queues of a run that are too small: (process, queue, entries, requests)"""
        suffix = f".{program}"
        outcome = examples.run(PLACE, needs_device.BUILD, program, "pair", under=self.under(suffix))
        self.assertFalse(outcome.failed, outcome.text())
        entries, requests = {}, Counter()
        for call in self.calls(suffix):
            if call.call in ("ibv_create_cq", "ibv_create_cq_ex") and not call.failed:
                entries[call.pid, call.result.split()[0]] = int(call.text.split()[0])
            elif call.call in ("ibv_create_qp", "ibv_create_qp_ex") and not call.failed:
                cqs = re.search(r"(cq\d+)(?:\+(cq\d+))?", call.text)
                sends, receives = re.search(r"(\d+) sends, (\d+) receives", call.text).groups()
                requests[call.pid, cqs[1]] += int(sends)
                if "srq" not in call.text:
                    requests[call.pid, cqs[2] or cqs[1]] += int(receives)
        self.assertTrue(entries)
        return [(*cq, entries[cq], count) for cq, count in requests.items() if count > entries[cq]]

    def test_of_the_examples(self):
        for program in (
            "send_recv",
            "send_variants",
            "read_write",
            "write_with_imm",
            "atomics",
            "datagrams",
            "shared_receive",
            # and not when_it_breaks, which overruns its CQ on purpose
            "memory_windows",
        ):
            with self.subTest(program):
                self.assertEqual(self.overbooked(program), [])


@unittest.skipIf(SANITIZED, "the sanitizer finds the stock tools' own leaks")
class StockTools(Traced):
    def setUp(self):
        super().setUp()
        # they cannot choose a free one by themselves
        self.port = str(random.randrange(20000, 30000))

    def pingpong(self, tool, *extra, post="ibv_post_send"):
        count, size = 7, 96
        *both, outcome = self.pair(
            tool, "-d", PLACE.device, "-g", gid_index(), "-p", self.port, "-n", str(count), "-s",
            str(size), *extra)
        for calls, role, other in zip(both, ("server", "client"), ("client", "server")):
            qpn, psn = re.search(
                r"local address:.* QPN 0x(\w+), PSN 0x(\w+)", "\n".join(outcome.of(role))
            ).groups()
            peer, peer_psn = re.search(
                r"local address:.* QPN 0x(\w+), PSN 0x(\w+)", "\n".join(outcome.of(other))
            ).groups()
            qpn, peer = int(qpn, 16), int(peer, 16)
            sent = requests(calls, post)
            self.assertEqual(
                [(wr["opcode"], wr["length"], wr["wr_id"], wr["signaled"]) for wr in sent],
                [("SEND", size, 2, True)] * count)
            self.assertTrue(
                all(call.qp == qpn and len(call.wrs) == 1 for call in named(calls, post)))
            done = Counter(
                (wc["opcode"], wc.get("length"), wc["status"], wc["qp"])
                for wc in completions(calls, "ibv_poll_cq"))
            received = size + 40 if "ud" in tool else size  # with the GRH
            self.assertEqual(
                done,
                {("SEND", None, "SUCCESS", qpn): count, ("RECV", received, "SUCCESS", qpn): count})
            self.assertEqual(states(calls)["RTS"].sq_psn, int(psn, 16))
            if "ud" in tool:
                self.assertEqual({wr["dest_qp"] for wr in sent}, {peer})
                self.assertEqual(named(calls, "ibv_create_ah")[0].result, "ah1")
            else:
                self.assertEqual(
                    (states(calls)["RTR"].dest_qp, states(calls)["RTR"].rq_psn),
                    (peer, int(peer_psn, 16)))
        return both

    def test_rc_pingpong(self):
        for calls in self.pingpong("ibv_rc_pingpong"):
            self.assertTrue(named(calls, "ibv_create_qp"))

    def test_rc_pingpong_with_builders(self):
        for calls in self.pingpong("ibv_rc_pingpong", "-N", post="ibv_wr_complete"):
            self.assertEqual(named(calls, "ibv_post_send"), [])
            self.assertTrue(named(calls, "ibv_create_qp_ex"))

    def test_rc_pingpong_with_events(self):
        for calls in self.pingpong("ibv_rc_pingpong", "-e"):
            self.assertEqual({call.result for call in named(calls, "ibv_get_cq_event")}, {"cq1"})
            self.assertEqual({call.text for call in named(calls, "ibv_req_notify_cq")}, {"cq1"})
            self.assertTrue(named(calls, "ibv_create_cq")[0].text.endswith(", channel1"))
            acked = sum(int(call.text.split()[-1]) for call in named(calls, "ibv_ack_cq_events"))
            self.assertEqual(acked, len(named(calls, "ibv_get_cq_event")))

    def test_ud_pingpong(self):
        self.pingpong("ibv_ud_pingpong")

    def test_rping(self):
        count, size = 3, 100
        ours = ["-a", PLACE.address, "-p", self.port, "-C", str(count), "-S", str(size)]
        server, client, _ = self.pair(
            "rping", "-s", *ours, client=["rping", "-c", *ours], defect=END_OF_THE_CHANNEL)
        sizes = {
            opcode: [
                wr["length"] for wr in requests(server, "ibv_post_send") if wr["opcode"] == opcode]
            for opcode in ("RDMA_READ", "RDMA_WRITE", "SEND")}
        self.assertEqual(
            sizes,
            {"RDMA_READ": [size] * count, "RDMA_WRITE": [size] * count, "SEND": [16] * 2 * count})
        # The server reads and writes what the client has registered.
        reachable = {
            (call.addr, call.rkey) for call in named(client, "ibv_reg_mr") if call.length == size}
        used = {
            (wr["addr"], wr["rkey"])
            for wr in requests(server, "ibv_post_send")
            if wr["opcode"].startswith("RDMA")
        }
        self.assertLessEqual(used, reachable)
        # Either may end before it hears of the end of the connection.
        self.assertEqual(
            [call.event for call in named(client, "rdma_get_cm_event") if call.event][:3],
            ["ADDR_RESOLVED", "ROUTE_RESOLVED", "ESTABLISHED"])
        self.assertEqual(
            [
                (call.event, call.id, call.status)
                for call in named(server, "rdma_get_cm_event")
                if call.event
            ][:2],
            [("CONNECT_REQUEST", "id2", 0), ("ESTABLISHED", "id2", 0)])
        # What librdmacm does on the program's behalf.
        for calls, peer in ((server, client), (client, server)):
            created = named(calls, "ibv_create_qp")
            self.assertEqual([(call.depth, call.type) for call in created], [(2, "RC")])
            to = states(calls)
            self.assertEqual(to["RTR"].dest_qp, named(peer, "ibv_create_qp")[0].qp)
            self.assertEqual(to["RTR"].rq_psn, states(peer)["RTS"].sq_psn)
            self.assertEqual(
                {
                    call.depth
                    for call in named(calls, "rdma_create_qp", "rdma_accept", "rdma_connect")},
                {0})
            self.assertEqual(
                [call.result for call in named(calls, "rdma_create_id") if call.depth == 0], ["id1"]
            )

    def test_udaddy(self):
        # It always takes the same port.
        server, client, _ = self.pair(
            "udaddy", "-b", PLACE.address,
            client=["udaddy", "-s", PLACE.address, "-b", PLACE.address])
        receiver = named(server, "ibv_create_qp")[0]
        self.assertEqual(receiver.type, "UD")
        self.assertEqual({wr["dest_qp"] for wr in requests(client, "ibv_post_send")}, {receiver.qp})
        self.assertIn(
            f"from QP {named(client, 'ibv_create_qp')[0].qp:#x}",
            named(server, "ibv_create_ah_from_wc")[0].text)

    def test_perftest(self):
        for tool, opcode in (
            ("ib_send_bw", "SEND"),
            ("ib_write_bw", "RDMA_WRITE"),
            ("ib_read_lat", "RDMA_READ"),
        ):
            with self.subTest(tool):
                self.setUp()
                _, client, _ = self.pair(
                    tool, "-d", PLACE.device, "-x", gid_index(), "-p", self.port, "-n", "20", "-s",
                    "256", "-F")
                self.assertEqual(
                    Counter(
                        (wr["opcode"], wr["length"]) for wr in requests(client, "ibv_post_send")),
                    {(opcode, 256): 20})

    def test_a_failing_call(self):
        # Without -g there is no GRH, which RoCE cannot do without.
        outcome = pair.run(
            PLACE,
            [*self.under(".s"), "ibv_rc_pingpong", "-d", PLACE.device, "-p", self.port],
            pair.Client(
                READY,
                lambda _: [
                    *self.under(".c"), "ibv_rc_pingpong", "-d", PLACE.device, "-p", self.port,
                    PLACE.address]))
        self.assertNotIn(0, outcome.status.values(), outcome.text())
        failed = [call for call in self.calls(".s") if call.failed]
        self.assertEqual(
            [(call.call, call.state, call.result) for call in failed],
            [("ibv_modify_qp", "RTR", "EINVAL Invalid argument")])
        # its server does not answer any more
        self.assertEqual([call for call in self.calls(".c") if call.failed], [])


class Program(Traced):
    """traced.cpp checks by itself that results and errno are as without a trace."""

    def run_traced(self, subcommand, traced=True, status=0):
        environment = self.under() if traced else ["env", f"LD_PRELOAD={':'.join(PRELOAD)}"]
        result = on_device(
            *environment, str(needs_device.BUILD / "tests/trace/traced"), "--device", PLACE.device,
            subcommand)
        # Another test may have stopped the emulated machine when nobody used it: then ./lab says
        # that it starts it.
        said = "".join(
            line for line in result.stderr.splitlines(True) if not line.startswith("lab: starting ")
        )
        self.assertEqual((result.returncode, said), (status, ""), result.stdout)
        return result.stdout

    def traced(self, subcommand):
        output = self.run_traced(subcommand)
        told = dict(zip(*[iter(output.split())] * 2))
        return {
            name: int(number) for name, number in told.items() if number.isdigit()
        }, self.calls()

    def test_every_kind_of_post(self):
        told, calls = self.traced("post")
        good, bad = named(calls, "ibv_post_send")
        plain = {"signaled": False, "inline": False}
        there = {"addr": told["addr"], "rkey": told["rkey"]}
        atomic = {**there, "compare_add": 2**64 - 1}
        self.assertEqual(good.qp, told["sender"])
        self.assertEqual(
            good.wrs,
            [
                {
                    "wr_id": 2**64 - 1,
                    "opcode": "SEND_WITH_IMM",
                    "length": 30,
                    **plain,
                    "signaled": True,
                    "solicited": True,
                    "imm": 0xFEDCBA98,
                },
                {"wr_id": 1, "opcode": "RDMA_WRITE", "length": 10, **plain, **there},
                {
                    "wr_id": 2,
                    "opcode": "RDMA_WRITE_WITH_IMM",
                    "length": 10,
                    **plain,
                    "imm": 7,
                    **there,
                },
                {"wr_id": 3, "opcode": "RDMA_READ", "length": 30, **plain, **there},
                {
                    "wr_id": 4,
                    "opcode": "ATOMIC_CMP_AND_SWP",
                    "length": 8,
                    **plain,
                    **atomic,
                    "swap": 12,
                },
                {
                    "wr_id": 5,
                    "opcode": "ATOMIC_FETCH_AND_ADD",
                    "length": 8,
                    **plain,
                    "signaled": True,
                    "fenced": True,
                    **atomic,
                },
            ])
        self.assertEqual((good.failed, good.bad), (False, None))
        self.assertEqual((bad.failed, bad.bad, bad.result), (True, 1, "EINVAL Invalid argument"))
        self.assertEqual(
            [(call.qp, wr) for call in named(calls, "ibv_post_recv") for wr in call.wrs],
            [
                (told["receiver"], {"wr_id": 1, "length": 32}),
                (told["receiver"], {"wr_id": 2, "length": 32}),
            ])
        done = completions(calls, "ibv_poll_cq")
        self.assertEqual(
            [wc for wc in done if wc["qp"] == told["receiver"]],
            [
                {
                    "wr_id": 1,
                    "status": "SUCCESS",
                    "qp": told["receiver"],
                    "opcode": "RECV",
                    "length": 30,
                    "imm": 0xFEDCBA98,
                },
                {
                    "wr_id": 2,
                    "status": "SUCCESS",
                    "qp": told["receiver"],
                    "opcode": "RECV_RDMA_WITH_IMM",
                    "length": 10,
                    "imm": 7,
                },
            ])
        self.assertEqual(
            [(wc["wr_id"], wc["opcode"]) for wc in done if wc["qp"] == told["sender"]],
            [(2**64 - 1, "SEND"), (5, "FETCH_ADD")])
        self.assertTrue(
            all(
                isinstance(call.empty, int) and call.cq == "cq1"
                for call in named(calls, "ibv_poll_cq")))
        # A PD keeps its label if it could not go.
        self.assertEqual(
            [(call.text, call.result) for call in named(calls, "ibv_dealloc_pd")],
            [("pd1", "EBUSY Device or resource busy"), ("pd1", "")])
        refused = named(calls, "ibv_reg_mr")[1]
        self.assertEqual(
            (refused.failed, refused.result, refused.lkey), (True, "EINVAL Invalid argument", None))

    def test_extended(self):
        told, calls = self.traced("extended")
        posted, refused = named(calls, "ibv_wr_complete")  # and not what was aborted
        self.assertEqual((refused.failed, refused.bad, len(refused.wrs)), (True, 0, 1))
        there = {"addr": told["addr"], "rkey": told["rkey"]}
        self.assertEqual(
            (posted.qp, posted.wrs),
            (
                told["qp"],
                [
                    {
                        "wr_id": 10,
                        "opcode": "RDMA_WRITE",
                        "length": 300,
                        "signaled": True,
                        "inline": False,
                        **there,
                    },
                    {
                        "wr_id": 11,
                        "opcode": "SEND_WITH_IMM",
                        "length": 12,
                        "signaled": True,
                        "inline": True,
                        "imm": 0x55AA,
                    },
                ]))
        done = {
            cq: [
                wc
                for call in named(calls, "ibv_start_poll", "ibv_next_poll")
                if call.cq == cq
                for wc in call.wcs
            ]
            for cq in ("cq1", "cq2")
        }
        self.assertEqual(
            done["cq1"],
            [
                {
                    "wr_id": 1,
                    "status": "SUCCESS",
                    "qp": told["qp"],
                    "opcode": "RECV",
                    "length": 12,
                    "imm": 0x55AA,
                },
                {"wr_id": 1, "status": "WR_FLUSH_ERR", "qp": told["qp"]},
            ])
        # This CQ cannot name the QP, but there is only one that completes to it.
        self.assertEqual(
            [(wc["wr_id"], wc["qp"], wc["opcode"]) for wc in done["cq2"]],
            [(10, told["qp"], "RDMA_WRITE"), (11, told["qp"], "SEND")])
        (created,) = named(calls, "ibv_create_qp_ex")
        self.assertEqual((created.qp, created.type, created.sq_sig_all), (told["qp"], "RC", True))

    def test_rarer_objects(self):
        told, calls = self.traced("objects")
        got = {call.call: (call.text, call.result) for call in calls}
        self.assertEqual(got["ibv_create_srq"], ("pd1, 16 receives", "srq1"))
        self.assertEqual(got["ibv_post_srq_recv"][0], "srq1: wr_id 5, 0 B")
        self.assertEqual(
            [(call.srq, call.wrs) for call in named(calls, "ibv_post_srq_recv")],
            [("srq1", [{"wr_id": 5, "length": 0}])])
        self.assertEqual(got["ibv_modify_srq"][0], "srq1, limit 1")
        self.assertEqual(got["ibv_alloc_mw"], ("pd1, type 1", f"mw1 rkey {told['window']:#x}"))
        self.assertEqual(got["ibv_dealloc_mw"][0], "mw1")
        self.assertEqual(got["ibv_req_notify_cq"][0], "cq1, solicited only")
        self.assertEqual(got["ibv_resize_cq"][0], "cq1, 100 entries")
        self.assertEqual(got["ibv_create_ah"][1], "ah1")
        self.assertEqual([call for call in calls if call.failed], [])

    def test_threads(self):
        _, calls = self.traced("threads")
        posts = Counter(
            (call.tid, call.wrs[0]["wr_id"] >> 32) for call in named(calls, "ibv_post_recv"))
        self.assertEqual((len(posts), set(posts.values())), (4, {500}))
        self.assertEqual(
            len(named(calls, "ibv_open_device")), len(named(calls, "ibv_close_device")))
        self.assertEqual({call.depth for call in calls}, {0})

    def test_fork(self):
        output = self.run_traced("fork")
        children = {
            int(line.split()[1]) for line in output.splitlines() if line.startswith("child")}
        self.assertEqual(len(children), 20)
        by_pid = Counter(call.pid for call in named(self.calls(), "ibv_open_device"))
        self.assertEqual({by_pid[child] for child in children}, {1})

    def test_a_killed_program(self):
        self.run_traced("crash", status=-9)
        calls = self.calls()
        self.assertEqual([wr["wr_id"] for wr in requests(calls, "ibv_post_recv")], list(range(20)))
        self.assertEqual(named(calls, "ibv_close_device"), [])

    def test_without_the_variable(self):
        owners = dict(
            line.split(None, 1) for line in self.run_traced("untouched", traced=False).splitlines())
        self.assertEqual([owner for owner in owners.values() if "verbs_trace" in owner], [], owners)
        # the check itself works
        owners = dict(line.split(None, 1) for line in self.run_traced("untouched").splitlines())
        self.assertTrue(all("verbs_trace" in owner for owner in owners.values()), owners)


if __name__ == "__main__":
    needs_device.main()
