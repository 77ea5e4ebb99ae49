# SPDX-License-Identifier: MIT
"""Reads a capture: each RoCEv2 packet as a Packet, dissected by tshark.

The headers' layout: InfiniBand Architecture Specification, volume 1, chapter 9;
lessons/reading_a_packet.md.
"""
from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Iterable, Optional

from lab import packages
from lab.errors import LabError
from lab.machine import network

BTH, ICRC, UDP = 12, 4, 8  # bytes
# tshark's name of each header that may follow the BTH -> its size in bytes
EXTENDED = {
    "deth": 8,
    "reth": 16,
    "atomiceth": 28,
    "aeth": 4,
    "atomicacketh": 8,
    "immdt": 4,
    "ieth": 4,
}
FIELDS = [
    "frame.time_epoch", "eth.src", "ip.id", "udp.length", "infiniband.bth.opcode",
    "infiniband.bth.destqp", "infiniband.bth.psn", "infiniband.bth.padcnt", "infiniband.bth.a",
    "infiniband.bth.se", "infiniband.deth.srcqp", "infiniband.reth.va", "infiniband.reth.r_key",
    "infiniband.reth.dmalen", "infiniband.aeth.syndrome", "infiniband.aeth.msn", "infiniband.immdt",
    "infiniband.ieth", "infiniband.atomiceth.cmpdt", "infiniband.atomiceth.swapdt",
    "infiniband.atomicacketh.origremdt", "infiniband.invariant.crc", "_ws.col.Info",
    *(f"infiniband.{name}" for name in EXTENDED)]

GSI = 1  # the QP of the connection manager
CNP = 0x81
# The BTH's opcode without its first three bits, which say the transport (RC, UC, RD, UD).
OPERATIONS = [
    "SEND First", "SEND Middle", "SEND Last", "SEND Last with Immediate", "SEND Only",
    "SEND Only with Immediate", "RDMA WRITE First", "RDMA WRITE Middle", "RDMA WRITE Last",
    "RDMA WRITE Last with Immediate", "RDMA WRITE Only", "RDMA WRITE Only with Immediate",
    "RDMA READ Request", "RDMA READ Response First", "RDMA READ Response Middle",
    "RDMA READ Response Last", "RDMA READ Response Only", "Acknowledge", "ATOMIC Acknowledge",
    "CmpSwap", "FetchAdd", "RESYNC", "SEND Last with Invalidate", "SEND Only with Invalidate",
    "operation 24", "operation 25", "operation 26", "operation 27", "FLUSH", "ATOMIC WRITE",
    "operation 30", "operation 31"]
# What the timer of an RNR NAK means, in milliseconds (Linux: drivers/infiniband/sw/rxe/rxe_comp.c
# has the table).
RNR_TIMER = [
    655.36, 0.01, 0.02, 0.03, 0.04, 0.06, 0.08, 0.12, 0.16, 0.24, 0.32, 0.48, 0.64, 0.96, 1.28,
    1.92, 2.56, 3.84, 5.12, 7.68, 10.24, 15.36, 20.48, 30.72, 40.96, 61.44, 81.92, 122.88, 163.84,
    245.76, 327.68, 491.52]
NAKS = {
    0: "PSN sequence error",
    1: "invalid request",
    2: "remote access error",
    3: "remote operational error",
}


@dataclass(frozen=True)
class Packet:
    time: int  # ns since 1970, by the clock of the host that recorded it
    host: str  # "a" or "b": who sent it
    # "SEND Only", "RDMA READ Response First", "Acknowledge", "CM ConnectRequest", …
    name: str
    dest_qp: int
    psn: int
    length: int  # bytes of payload
    # What the headers behind the BTH say, in words: "acknowledgement requested", "rkey 0x26f", …
    details: tuple[str, ...]
    # The same for a packet as sent and as received.
    identity: tuple = field(repr=False, default=())

    @property
    def nak(self) -> str:
        """Why this packet is a negative acknowledgement; "" if it is none."""
        return next((words for words in self.details if "NAK, " in words), "")

    @property
    def answers(self) -> bool:
        """Whether the receiver of a request sent it."""
        return "Acknowledge" in self.name or "READ Response" in self.name

    def detail(self, name: str) -> str:
        """The value that stands behind `name` in the details, or ""."""
        found = (words for words in self.details if words.startswith(name + " "))
        return next(found, "").removeprefix(name + " ")


def lanes(sent: Iterable[Packet]) -> dict[tuple[str, int], list[str]]:
    """What is the same in each run, however busy the machine is: for each QP, the requests that go
    to it in their order, and the answers. Not the same are:

    - the order of packets for two QPs, and of answers and requests for one;
    - how often a request is sent, because its acknowledgement is late: it counts once, and so do
      its answer and each message of the connection manager;
    - whether the receiver is ready at once, and sees no gap in what is sent again: a NAK does not
      count if an acknowledgement of its request, or of a later one, follows."""
    found: dict[tuple[str, int], dict] = {}
    for packet in sent:
        kind = "answers" if packet.answers else "requests"
        lane = found.setdefault((f"{kind} from host {packet.host}", packet.dest_qp), {})
        if packet.answers and not packet.nak:
            for name, psn, nak in list(lane):
                if nak and (packet.psn - psn) % 2**24 < 2**23:
                    del lane[name, psn, nak]
        key = (packet.name, 0 if packet.dest_qp == GSI else packet.psn, packet.nak)
        lane.setdefault(key, ", ".join([packet.name, f"{packet.length} B", *packet.details]))
    return {key: list(lane.values()) for key, lane in found.items()}


def read(file: Path, may_be_empty: bool = False) -> list[Packet]:
    """The RoCEv2 packets of a pcap file, in its order.

    @raises LabError if there are none, unless that may be: a transfer without a packet is none"""
    packages.need("wire")
    fields = [word for name in FIELDS for word in ("-e", name)]
    result = subprocess.run(
        [
            "tshark", "-n", "-r", str(file), "-Y", "infiniband", "-T", "fields", "-E",
            "occurrence=f", *fields],
        capture_output=True,
        text=True)
    if result.returncode:
        raise LabError(f"tshark cannot read {file}: {result.stderr.strip()}")
    packets = dissected(result.stdout)
    if not packets and not may_be_empty:
        raise LabError(f"{file} holds no RoCEv2 packet: nothing came over the wire")
    return packets


def dissected(text: str) -> list[Packet]:
    """The packets of tshark's output, a line each.

    @raises LabError if one is not whole: a peer may send anything, and a capture may be cut"""
    packets = []
    for line in filter(None, text.split("\n")):
        try:
            packets.append(_packet(dict(zip(FIELDS, line.split("\t")))))
        except (KeyError, TypeError, ValueError) as error:
            raise LabError(
                f"RoCEv2 packet {len(packets) + 1} of the capture is not whole: {error}"
            ) from error
    return packets


def _packet(fields: dict[str, str]) -> Packet:
    def number(name: str) -> Optional[int]:
        text = fields[f"infiniband.{name}"]
        return int(text, 0) if text else None

    opcode = number("bth.opcode")
    seconds, fraction = fields["frame.time_epoch"].split(".")
    # The connection manager's datagrams carry such headers of their own further in.
    extended = (
        ["deth"]
        if number("bth.destqp") == GSI
        else [name for name in EXTENDED if fields[f"infiniband.{name}"]])
    length = (
        int(fields["udp.length"])
        - UDP
        - BTH
        - ICRC
        - sum(EXTENDED[name] for name in extended)
        - (number("bth.padcnt") or 0))
    details = ["acknowledgement requested"] if _true(fields["infiniband.bth.a"]) else []
    details += ["solicited"] if _true(fields["infiniband.bth.se"]) else []
    if "aeth" in extended:
        details += [_acknowledges(number("aeth.syndrome")), f"MSN {number('aeth.msn')}"]
    if "deth" in extended:
        details.append(f"from QP {number('deth.srcqp'):#x}")
    if "reth" in extended or "atomiceth" in extended:
        details += [f"address {number('reth.va'):#x}", f"rkey {number('reth.r_key'):#x}"]
    if "reth" in extended:
        details.append(f"DMA length {number('reth.dmalen')}")
    if "atomiceth" in extended:
        compare, swap = number("atomiceth.cmpdt"), number("atomiceth.swapdt")
        swaps = OPERATIONS[opcode & 31] == "CmpSwap"
        details += [f"compare {compare}", f"swap {swap}"] if swaps else [f"add {swap}"]
    if "immdt" in extended:
        details.append(f"immediate {_bytes(fields['infiniband.immdt'])}")
    if "ieth" in extended:
        details.append(f"invalidates rkey {_bytes(fields['infiniband.ieth'])}")
    if "atomicacketh" in extended:
        details.append(f"original value {number('atomicacketh.origremdt')}")
    return Packet(
        time=int(seconds) * 10**9 + int(fraction.ljust(9, "0")),
        host=HOST_OF.get(fields["eth.src"], "?"),
        name=_name(opcode, number("bth.destqp"), fields["_ws.col.Info"]),
        dest_qp=number("bth.destqp"),
        psn=number("bth.psn"),
        length=length,
        details=tuple(details),
        identity=tuple(
            fields[name]
            for name in (
                "eth.src", "ip.id", "infiniband.bth.opcode", "infiniband.bth.destqp",
                "infiniband.bth.psn", "infiniband.invariant.crc")))


HOST_OF = {network.mac(host): host for host in network.NUMBERS if host}


def _name(opcode: int, dest_qp: int, info: str) -> str:
    """As the specification has it; for a management datagram the name of its message, which tshark
    gives."""
    if dest_qp == GSI:
        return re.sub(r"\s*QP=.*|:", "", info).strip()
    return "CNP" if opcode == CNP else OPERATIONS[opcode & 31]


def _acknowledges(syndrome: int) -> str:
    if syndrome >> 5 == 0:
        return "ACK"
    if syndrome >> 5 == 1:
        return f"RNR NAK, retry after {RNR_TIMER[syndrome & 31]:g} ms"
    return f"NAK, {NAKS.get(syndrome & 31, f'code {syndrome & 31}')}"


def _bytes(text: str) -> str:
    """A field of tshark's that is a row of bytes, most significant first: "0000002a" -> "0x2a"."""
    return f"0x{int(text.replace(':', ''), 16):x}"


def _true(text: str) -> bool:
    return text in ("1", "True")
