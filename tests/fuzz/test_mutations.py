# SPDX-License-Identifier: MIT
"""Feeds the lab's parsers with changed bytes: the trace's calls, the capture's packets, and the
frames between client, daemon and agent. libFuzzer does not reach them, since they are Python.

Ten seconds in all; LAB_FUZZ_SECONDS=3600 makes that an hour. LAB_FUZZ_SEED repeats a run.
"""
import json
import os
import random
import time
import unittest

from lab.errors import LabError
from lab.machine import frames
from lab.wire import packets, timeline

SECONDS = int(os.environ.get("LAB_FUZZ_SECONDS", "9")) / 3
SEED = int(os.environ.get("LAB_FUZZ_SEED", random.randrange(1, 1 << 31)))

CALLS = "\n".join(
    json.dumps(call)
    for call in (
        {"call": "ibv_modify_qp", "begin": 1, "end": 2, "qp": 17, "sq_psn": 7, "mtu": 1024},
        {
            "call": "ibv_post_send",
            "begin": 3,
            "end": 4,
            "qp": 17,
            "wrs": [{"wr_id": 1, "opcode": "SEND", "length": 3000, "signaled": True}],
        },
        {
            "call": "ibv_poll_cq",
            "begin": 5,
            "end": 6,
            "wcs": [{"wr_id": 1, "qp": 17, "status": 0, "opcode": "SEND"}],
        },
        {"call": "send", "begin": 7, "end": 8, "tcp": "a", "bytes": 57})
).encode()
# As tshark prints them: a SEND, its acknowledgement and a datagram of the connection manager.
PACKET = {name: "" for name in packets.FIELDS} | {
    "frame.time_epoch": "1700000000.123456789",
    "eth.src": "02:00:00:00:00:01",
    "ip.id": "0x1234",
    "udp.length": "40",
    "infiniband.bth.opcode": "4",
    "infiniband.bth.destqp": "0x000011",
    "infiniband.bth.psn": "7",
    "infiniband.bth.padcnt": "0",
    "infiniband.bth.a": "1",
    "infiniband.invariant.crc": "0x12345678",
}
PACKETS = "\n".join(
    "\t".join(packet.values())
    for packet in (
        PACKET,
        PACKET
        | {
            "infiniband.bth.opcode": "17",
            "infiniband.aeth": "1",
            "infiniband.aeth.syndrome": "31",
            "infiniband.aeth.msn": "1",
        },
        PACKET
        | {
            "infiniband.bth.opcode": "100",
            "infiniband.bth.destqp": "0x000001",
            "infiniband.deth.srcqp": "1",
            "_ws.col.Info": "CM: ConnectRequest QP=0x01",
        },
        PACKET
        | {
            "infiniband.bth.opcode": "11",
            "infiniband.reth": "1",
            "infiniband.reth.va": "0x7f00",
            "infiniband.reth.r_key": "0x12",
            "infiniband.reth.dmalen": "64",
            "infiniband.immdt": "00:00:00:2a",
        })
).encode()
FRAMES = b"".join(
    frames.pack(job, kind, data)
    for job, kind, data in (
        (1, frames.START, b'{"argv": ["true"]}'),
        (1, frames.STDOUT, b"hello\n" * 100),
        (2, frames.CREDIT, frames.NUMBER.pack(100)),
        (1, frames.EXIT, frames.NUMBER.pack(0)),
    ))


class Mutator:
    """Changes a text in a few places: bits, bytes, pieces that go, come twice or are swapped."""

    numbers = (b"0", b"-1", b"255", b"4294967295", b"1e999", b"NaN", b"null", b"[]", b"{}", b'""')

    def __init__(self, seed):
        self.random = random.Random(seed)

    def changed(self, text):
        text = bytearray(text)
        for _ in range(self.random.choice((1, 1, 2, 3, 8))):
            at = self.random.randrange(len(text) + 1)
            size = self.random.choice((1, 1, 4, 30))
            what = self.random.randrange(6)
            if what == 0 and at < len(text):
                text[at] ^= 1 << self.random.randrange(8)
            elif what == 1:
                text[at : at + size] = self.random.randbytes(size)
            elif what == 2:
                del text[at : at + size]
            elif what == 3:
                text[at:at] = text[at : at + size]
            elif what == 4:
                text[at : at + size] = self.random.choice(self.numbers)
            else:
                del text[at:]  # a program that was killed leaves half a line
        return bytes(text)


class Mutations(unittest.TestCase):
    def mutate(self, text, check, found=()):
        """For its third of the time.

        @param found inputs that were wrong once"""
        for once in found:
            check(once)
        mutator = Mutator(SEED)
        end = time.monotonic() + SECONDS
        count = 0
        while time.monotonic() < end:
            changed = mutator.changed(text)
            count += 1
            try:
                check(changed)
            except Exception:
                print(f"LAB_FUZZ_SEED={SEED}, input {count}: {changed!r}", flush=True)
                raise
        print(f"LAB_FUZZ_SEED={SEED}: {count} inputs", flush=True)
        self.assertGreater(count, 10)

    def test_calls(self):
        """What is read is calls: the timeline can ask each for its keys."""

        def check(changed):
            for call in timeline.read_calls(changed.decode(errors="replace")):
                self.assertIsInstance(call, timeline.Call)
                self.assertIsInstance(call.data, dict)
                str(call.call), call.begin, call.nothing_of_this_name

        self.mutate(CALLS, check, (b"null", b"[1]", b"7", b"[" * 100_000))

    def test_packets(self):
        """A capture is read, or the error says what is wrong with it."""

        def check(changed):
            text = changed.decode(errors="replace")
            try:
                for packet in packets.dissected(text):
                    str(packet.nak), packet.details
            except LabError as error:
                self.assertTrue(str(error))

        no_opcode = PACKETS.replace(b"\t4\t", b"\t\t", 1)
        self.mutate(PACKETS, check, (b"\t", b"x", no_opcode, PACKETS[:40]))

    def test_frames(self):
        """However a stream of bytes is cut into pieces, the frames are the same, and no byte is
        lost or invented."""
        cuts = random.Random(SEED)

        def check(changed):
            whole = list(frames.Splitter().feed(changed))
            splitter, pieces, at = frames.Splitter(), [], 0
            while at < len(changed):
                size = cuts.randrange(1, 100)
                pieces += splitter.feed(changed[at : at + size])
                at += size
            self.assertEqual(pieces, whole)
            used = b"".join(frames.pack(*frame) for frame in whole)
            self.assertEqual(used + bytes(splitter.buffer), changed)

        self.mutate(FRAMES, check)


if __name__ == "__main__":
    unittest.main(verbosity=2)
