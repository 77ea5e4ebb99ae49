# SPDX-License-Identifier: MIT
"""One timeline of two hosts: the calls of both programs and the packets between them, each with its
cause.

The two clocks differ, so they decide nothing that is known otherwise. On one host the order is that
of its own clock, which stamps calls and packets alike. Between hosts a packet is sent before it is
received, and a client starts after its server listens. What is left open is decided by the clocks,
set against each other by the packets' shortest way in either direction, as NTP does.

What belongs together is found by the numbers that the protocol has for it: a QP's first PSN and the
path MTU (ibv_modify_qp) and the sizes of what is posted say which PSNs each work request gets;
acknowledgements name those PSNs, and completions name wr_id and QP. Each work request of a send
queue gets a number of its own, which its call, its packets and both completions then carry.
"""
from __future__ import annotations

import heapq
import json
from collections import defaultdict, deque
from dataclasses import dataclass, field
from typing import Iterable, Optional, Union

from lab.machine.machine import HOSTS
from lab.wire.packets import GSI, Packet

RESULTS = (
    "recv",
    "read",
    "ibv_poll_cq",
    "ibv_start_poll",
    "ibv_next_poll",
    "ibv_get_cq_event",
    "ibv_get_async_event",
    "rdma_get_cm_event",
    "rdma_get_request",
)  # what these are about happens while they run
LISTENS = ("listen", "rdma_listen")
ENDS = ("Last", "Only")


@dataclass(frozen=True)
class Call:
    """What libverbs_trace.so wrote about one call; tools/trace/event.hpp lists the keys."""

    data: dict

    def __getattr__(self, key: str):
        return self.data.get(key)


@dataclass(eq=False)
class Event:
    host: str
    time: int  # ns, by the host's own clock
    what: Union[Call, Packet]
    sent: bool = False  # a packet: this is its sending, not its arrival
    other: Optional["Event"] = None  # a packet's other end; None for one that was lost
    after: list["Event"] = field(default_factory=list)  # on the other host, but surely earlier
    requests: list[int] = field(default_factory=list)  # the work requests that this is about
    again: bool = False  # a packet that was sent before

    @property
    def is_packet(self) -> bool:
        return isinstance(self.what, Packet)


def read_calls(text: str) -> list[Call]:
    """The calls of a trace file. A line that is none counts for nothing: a killed program may have
    left it half-written."""
    calls = []
    for line in text.split("\n"):
        try:
            call = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(call, dict):
            calls.append(Call(call))
    return calls


def merge(calls: dict[str, list[Call]], packets: dict[str, list[Packet]]) -> list[Event]:
    """All events in an order that no cause contradicts. Keys are hosts; packets are as each host
    saw them."""
    hosts = {
        host: [
            Event(host, call.end if call.call in RESULTS else call.begin, call)
            for call in calls.get(host, [])]
        + [
            Event(host, packet.time, packet, sent=packet.host == host)
            for packet in packets.get(host, [])]
        for host in HOSTS
    }
    for events in hosts.values():
        events.sort(key=lambda event: event.time)
    _join(hosts)
    ordered = _ordered(hosts)
    _Attribution().walk(ordered)
    return ordered


def _join(hosts: dict[str, list[Event]]) -> None:
    """Finds each packet's other end, and what else on one host follows from what on the other."""
    sent = defaultdict(deque)
    for event in (
        event for events in hosts.values() for event in events if event.is_packet and event.sent
    ):
        sent[event.what.identity].append(event)
    for event in (
        event for events in hosts.values() for event in events if event.is_packet and not event.sent
    ):
        if sent[event.what.identity]:
            event.other = sent[event.what.identity].popleft()
            event.other.other = event
            event.after.append(event.other)
    _join_tcp(hosts)
    listening = [
        event for event in hosts["a"] if not event.is_packet and event.what.call in LISTENS]
    first = next((event for event in hosts["b"] if not event.is_packet), None)
    if listening and first:
        first.after.append(listening[0])


def _join_tcp(hosts: dict[str, list[Event]]) -> None:
    """What is received over TCP comes after the sending of its last byte."""
    sent = defaultdict(list)  # connection -> (bytes sent by then, event)
    received = defaultdict(int)
    messages = [
        event
        for events in hosts.values()
        for event in events
        if not event.is_packet and event.what.tcp
    ]
    for event in messages:
        if not event.what.receives:
            before = sent[event.what.tcp][-1][0] if sent[event.what.tcp] else 0
            sent[event.what.tcp].append((before + event.what.bytes, event))
    for event in messages:
        if event.what.receives:
            received[event.what.tcp] += event.what.bytes
            cause = next(
                (
                    cause
                    for total, cause in sent[event.what.tcp]
                    if total >= received[event.what.tcp]),
                None)
            if cause and cause.host != event.host:
                event.after.append(cause)


def _offset(hosts: dict[str, list[Event]]) -> int:
    """How many ns host b's clock is ahead of host a's."""
    ways = [
        [
            event.time - event.other.time
            for event in hosts[host]
            if event.is_packet and not event.sent and event.other
        ]
        for host in ("b", "a")
    ]
    there, back = (min(way, default=None) for way in ways)
    if there is None or back is None:
        return there or -(back or 0)
    return (there - back) // 2


def _ordered(hosts: dict[str, list[Event]]) -> list[Event]:
    """Kahn's algorithm; among what may come next, the earliest by the adjusted clocks does."""
    ahead = {"a": 0, "b": _offset(hosts)}
    before: dict[int, int] = {}
    follows = defaultdict(list)
    for events in hosts.values():
        for number, event in enumerate(events):
            causes = events[number - 1 : number] + event.after
            before[id(event)] = len(causes)
            for cause in causes:
                follows[id(cause)].append(event)
    ready = []

    def push(event: Event) -> None:
        heapq.heappush(ready, (event.time - ahead[event.host], event.host, id(event), event))

    for events in hosts.values():
        if events and not before[id(events[0])]:
            push(events[0])
    ordered = []
    while ready:
        event = heapq.heappop(ready)[-1]
        ordered.append(event)
        for following in follows[id(event)]:
            before[id(following)] -= 1
            if not before[id(following)]:
                push(following)
    return ordered


@dataclass(eq=False)
class _Request:
    """A work request of a send queue."""

    number: int
    wr_id: int
    first: int  # its PSNs, counted on without the wrap at 2**24
    last: int
    signaled: bool
    done: bool = False


class _Queue:
    """What is known about a QP."""

    def __init__(self):
        self.type, self.mtu, self.dest_qp, self.next_psn = "RC", 1024, None, 0
        self.requests: list[_Request] = []
        self.sent: set[int] = set()  # PSNs
        # Messages that take a receive, in the order of their arrival.
        self.arrived: dict[tuple, None] = {}
        # Of these messages, the requests whose completion was not seen yet.
        self.taken: deque = deque()

    def post(self, wr: dict, number: int) -> None:
        packets = 1
        # These requests stay between the program and its own NIC.
        if wr["opcode"].startswith(("LOCAL", "BIND")):
            packets = 0
        elif self.type != "UD" and not wr["opcode"].startswith("ATOMIC"):
            packets = max(1, -(-wr["length"] // self.mtu))
        self.requests.append(
            _Request(
                number, wr["wr_id"], self.next_psn, self.next_psn + packets - 1, wr["signaled"]))
        self.next_psn += packets

    def at(self, psn: int) -> Optional[_Request]:
        """The newest request that PSN `psn` belongs to."""
        for request in reversed(self.requests):
            if (psn - request.first) % 2**24 <= request.last - request.first:
                return request
        return None


class _Attribution:
    """Walks through an ordered timeline and says of each event which work requests it is about."""

    def __init__(self):
        self.queues: dict[tuple[str, int], _Queue] = defaultdict(_Queue)
        self.count = 0

    def walk(self, events: Iterable[Event]) -> None:
        for event in events:
            if event.is_packet:
                self.packet(event)
            elif not event.what.failed or event.what.wrs:
                self.call(event)

    def call(self, event: Event) -> None:
        call = event.what
        queue = self.queues[event.host, call.qp]
        if call.type:
            queue.type = call.type
        if call.sq_psn is not None:
            queue.next_psn = call.sq_psn
        queue.mtu = call.path_mtu or queue.mtu
        if call.dest_qp is not None:
            queue.dest_qp = None if call.is_itself else call.dest_qp  # none of the wire's packets
        if call.wrs and "opcode" in call.wrs[0]:
            for wr in call.wrs[: call.bad]:
                self.count += 1
                queue.post(wr, self.count)
                event.requests.append(self.count)
        for completion in call.wcs or []:
            self.completion(event, completion)

    def completion(self, event: Event, wc: dict) -> None:
        queue = self.queues[event.host, wc.get("qp")]
        if wc.get("opcode", "").startswith("RECV"):
            if queue.taken:
                event.requests.append(queue.taken.popleft())
            return
        waiting = [
            request
            for request in queue.requests
            if request.wr_id == wc["wr_id"] and not request.done
        ]
        # An unsignaled request completes only if it fails. But a QP may signal all requests.
        if wc["status"] == "SUCCESS":
            waiting = [request for request in waiting if request.signaled] or waiting
        if waiting:
            event.requests.append(waiting[0].number)
            for request in queue.requests:  # and those before it, in order
                request.done |= request.number <= waiting[0].number

    def packet(self, event: Event) -> None:
        packet = event.what
        if packet.dest_qp == GSI:
            return
        peer = "b" if packet.host == "a" else "a"
        # The packet answers a request of the peer.
        if packet.answers:
            request = self.queues[peer, packet.dest_qp].at(packet.psn)
        else:
            queue = self.sender(packet)
            request = queue.at(packet.psn) if queue else None
            if event.other and not event.sent:
                event.again = event.other.again
            elif queue:
                event.again = packet.psn in queue.sent
                queue.sent.add(packet.psn)
            if request and not event.sent and _takes_receive(packet.name):
                self.arrival(self.queues[peer, packet.dest_qp], packet, request)
        if request:
            event.requests.append(request.number)

    def sender(self, packet: Packet) -> Optional[_Queue]:
        source = packet.detail("from QP")
        if source:
            return self.queues[packet.host, int(source, 0)]
        return next(
            (
                queue
                for (host, _), queue in self.queues.items()
                if host == packet.host and queue.dest_qp == packet.dest_qp),
            None)

    @staticmethod
    def arrival(queue: _Queue, packet: Packet, request: _Request) -> None:
        key = (packet.psn, request.number)
        if key not in queue.arrived:
            queue.arrived[key] = None
            queue.taken.append(request.number)


def _takes_receive(name: str) -> bool:
    return name.startswith("SEND") and any(end in name for end in ENDS) or "Immediate" in name
