# SPDX-License-Identifier: MIT
"""Captured packets say what the programs said: PSNs, QP numbers, sizes, keys, addresses, immediate
data."""
import re
import subprocess
import unittest
from pathlib import Path

import two_hosts
from lab.errors import LabError
from lab.machine.tap import Tap
from lab.wire import packets
from two_hosts import A, B, lab, pcap

ROW = re.compile(r" *\d+\.\d{3}  (a|b) -> (a|b)  (.+?)  +0x(\w+) +0x(\w+) +(\d*)  ?(.*)$")


def rows(text):
    return [ROW.match(line).groups() for line in text.splitlines()[1:]]


def once(sent):
    """What was sent again counts once: under emulation an acknowledgement may come after its
    sender's timeout of 67 ms."""
    return list(dict.fromkeys(sent))


def packet_once(found):
    return list(
        {
            (packet.host, packet.name, packet.dest_qp, packet.psn): packet for packet in found
        }.values())


class Capture(unittest.TestCase):
    def stock(self, server, client):
        """The packets of a stock tool between the two hosts."""
        with Tap(A, pcap("test")):
            listener = subprocess.Popen(
                A.wrap(server), stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            self.addCleanup(listener.kill)
            two_hosts.on("a", "sh", "-c", f"until ss -ltn | grep -q ':{client[-1]} '; do :; done")
            done = subprocess.run(B.wrap(client[:-1]), capture_output=True, text=True, timeout=600)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            listener.communicate(timeout=600)
        return packet_once(packets.read(pcap("test")))

    def perftest(self, tool, *options):
        both = [tool, "-x", "1", "-n", "5", "-F", "-p", "18600", *options]
        return self.stock(both, [*both, A.address, "18600"])

    def test_send_recv_to_the_letter(self):
        result = lab("capture", "02_send_recv", "--at", "a")
        seen = {(row[0], row[2]): row for row in once(rows(result.stdout))}
        self.assertEqual(len(seen), 4, result.stdout)
        # The server's SEND may overtake its acknowledgement: the program is told of what came
        # before the peer is.
        first, ack, second, second_ack = (
            seen.get(key, ("",) * 6)
            for key in (
                ("b", "SEND Only"),
                ("a", "Acknowledge"),
                ("a", "SEND Only"),
                ("b", "Acknowledge"),
            ))
        self.assertEqual(
            first[:3] + first[5:], ("b", "a", "SEND Only", "64", "acknowledgement requested"))
        self.assertEqual(
            second[:3] + second[5:], ("a", "b", "SEND Only", "64", "acknowledgement requested"))
        self.assertEqual(ack[:3] + ack[5:], ("a", "b", "Acknowledge", "", "ACK, MSN 1"))
        # each acknowledges the other's PSN
        self.assertEqual((ack[4], second_ack[4]), (first[4], second[4]))
        # and each QP has its number
        self.assertEqual((ack[3], first[3]), (second[3], second_ack[3]))

    def test_numbers_are_those_that_the_program_printed(self):
        with Tap(B, pcap("test")):
            result = lab("run", "--two-hosts", "02_send_recv")
        lines = {
            role: re.search(rf"\[{role}\] me +\w+:(\w+):(\w+):", result.stdout).groups()
            for role in ("server", "client")}
        numbers = {role: (int(qpn, 16), int(psn, 16)) for role, (qpn, psn) in lines.items()}
        sends = {
            packet.host: packet
            for packet in packets.read(pcap("test"))
            if packet.name == "SEND Only"
        }
        self.assertEqual(
            (sends["b"].dest_qp, sends["b"].psn), (numbers["server"][0], numbers["client"][1]))
        self.assertEqual(
            (sends["a"].dest_qp, sends["a"].psn), (numbers["client"][0], numbers["server"][1]))

    def test_rnr_nak(self):
        result = lab("capture", "02_send_recv", "--break", "no_receive")
        kinds = [(row[2], row[6]) for row in rows(result.stdout)]
        send, nak = ("SEND Only", "acknowledgement requested"), (
            "Acknowledge", "RNR NAK, retry after 0.64 ms, MSN 0")
        self.assertEqual((kinds[:2], set(kinds)), ([send, nak], {send, nak}))
        # rnr_retry is 6; under emulation a timeout of the acknowledgement may come between.
        self.assertAlmostEqual(kinds.count(nak), 7, delta=1, msg=result.stdout)

    def test_write_is_cut_into_packets(self):
        """3000 bytes at a path MTU of 1024; RETH in the first packet only."""
        writes = [
            packet
            for packet in self.perftest("ib_write_bw", "-s", "3000")
            if "WRITE" in packet.name
        ]
        self.assertEqual(
            [(packet.name, packet.length) for packet in writes[:3]],
            [("RDMA WRITE First", 1024), ("RDMA WRITE Middle", 1024), ("RDMA WRITE Last", 952)])
        has_reth = [bool(packet.detail("address")) for packet in writes[:3]]
        self.assertEqual(has_reth, [True, False, False])
        self.assertEqual(writes[0].detail("DMA length"), "3000")
        self.assertEqual([packet.psn - writes[0].psn for packet in writes[:3]], [0, 1, 2])

    def test_read_and_atomics(self):
        reads = self.perftest("ib_read_lat", "-s", "3000")
        self.assertEqual(
            [(packet.host, packet.name, packet.length) for packet in reads[:4]],
            [
                ("b", "RDMA READ Request", 0),
                ("a", "RDMA READ Response First", 1024),
                ("a", "RDMA READ Response Middle", 1024),
                ("a", "RDMA READ Response Last", 952),
            ])
        # the responses have used up PSNs of the requester's
        self.assertEqual(reads[4].psn - reads[0].psn, 3)
        atomics = self.perftest("ib_atomic_lat", "-A", "CMP_AND_SWAP")
        self.assertEqual([packet.name for packet in atomics[:2]], ["CmpSwap", "ATOMIC Acknowledge"])
        names = [words.rpartition(" ")[0] for words in atomics[0].details]
        self.assertEqual(names[-4:], ["address", "rkey", "compare", "swap"])
        adds = self.perftest("ib_atomic_lat", "-A", "FETCH_AND_ADD")
        self.assertEqual(adds[0].name, "FetchAdd")
        old = [
            int(packet.detail("original value"))
            for packet in adds
            if packet.name == "ATOMIC Acknowledge"
        ]
        self.assertEqual([later - old[0] for later in old], list(range(5)))

    def test_wireshark_opens_it(self):
        lab("capture", "02")
        about = subprocess.run(
            ["capinfos", "-E", "-t", pcap("send_recv")], capture_output=True, text=True, check=True)
        self.assertIn("nanosecond", about.stdout)

    def test_empty_capture_is_an_error(self):
        with Tap(A, pcap("test")):
            pass
        with self.assertRaisesRegex(LabError, "no RoCEv2 packet"):
            packets.read(pcap("test"))

    def test_what_sends_nothing_is_refused(self):
        result = lab("capture", "01_hello_device", status=2)
        self.assertIn("sends nothing", result.stderr)

    def test_without_tcpdump_it_is_named(self):
        """On a host whose PATH has none of it (the package is there, since ./lab installs it)."""

        class Bare:
            host = "a"

            @staticmethod
            def wrap(argv):
                return A.wrap(["env", "PATH=/nowhere", *argv])

        with self.assertRaisesRegex(LabError, "tcpdump on host a ended"):
            with Tap(Bare, Path("nothing.pcap")):
                pass


if __name__ == "__main__":
    two_hosts.main()
