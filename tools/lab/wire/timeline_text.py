# SPDX-License-Identifier: MIT
"""A timeline as text: host a's calls on the left, host b's on the right, packets as arrows between
them.

What stands higher came first, on each host for itself and along each arrow. Calls side by side have
no order. #1, #2, … are the work requests: the call that posted one, its packets, and the
completions it led to.
"""
from __future__ import annotations

import re
import textwrap
from typing import Optional

from lab.wire.packets import GSI, Packet
from lab.wire.recording import Recording
from lab.wire.timeline import Call, Event

WIDTH = 56  # of a column
GAP = 2


def render(recording: Recording) -> str:
    """The timeline; a host without a title has no column."""
    titles = recording.titles
    columns = {host: _Column() for host in titles}
    lines: list[str] = []
    for row in rows(recording.events):
        if not row.is_packet:
            if row.event.after:  # something on the other host
                lines += _side_by_side(columns)
            columns[row.host].add(row)
            continue
        lines += _side_by_side(columns)
        lines.append(arrow(row))
    lines += _side_by_side(columns)
    head = (" " * GAP).join(title.ljust(WIDTH) for title in titles.values()).rstrip()
    return "\n".join([head, "=" * (WIDTH * len(titles) + GAP * (len(titles) - 1)), *lines]) + "\n"


class Row:
    """An event, or several in a row that differ in nothing but their numbers."""

    def __init__(self, event: Event, name: str):
        self.event, self.name, self.count = event, name, 1
        self.requests = list(event.requests)
        self.last = event

    @property
    def host(self) -> str:
        return self.event.host

    @property
    def is_packet(self) -> bool:
        return self.event.is_packet

    def absorb(self, event: Event) -> None:
        self.count += 1
        self.requests += event.requests
        self.last = event

    @property
    def tags(self) -> str:
        """ "#1 #2 ", or "#1..#9 " """
        numbers = sorted(set(self.requests))
        if len(numbers) > 3:
            return f"#{numbers[0]}..#{numbers[-1]} "
        return "".join(f"#{number} " for number in numbers)


def rows(events: list[Event]) -> list[Row]:
    """The events as rows: a packet is one row, where it arrives, or where it was sent if it never
    does. Runs of the same call or the same kind of packet are drawn together."""
    found: list[Row] = []
    last: dict[str, Optional[Row]] = {}
    for event in events:
        if event.is_packet:
            if event.sent and event.other:
                continue
            packet = event.what
            name = f"{packet.host}{packet.name}{packet.nak}{bool(event.other)}{event.again}"
            key = "packet"
        else:
            name, key = (
                f"{event.what.call}{event.what.result if event.what.failed else ''}", event.host)
        before = last.get(key)
        alike = (
            before
            and before.name == name
            and (
                event.what.name.endswith("Middle")
                if event.is_packet
                else _same_words(before.last.what, event.what)))
        if alike:
            before.absorb(event)
            continue
        found.append(Row(event, name))
        if event.is_packet:
            last.clear()
        last[key] = found[-1]
        if not event.is_packet:
            last.pop("packet", None)
    return found


def _same_words(one: Call, other: Call) -> bool:
    return one.text == other.text and one.result == other.result


def call_words(row: Row) -> tuple[str, str]:
    """A call's name, and what there is to say of it. Calls that librdmacm makes for the program are
    indented."""
    call = row.event.what
    words = row.tags + re.sub("0{12,}", "0..0", call.text)  # a GID with an IPv4 address in it
    if call.result:
        words += (" = " if words else "= ") + call.result
    if row.count > 1:
        words += f"  (x{row.count})"
    return "  " * call.depth + call.call, words.strip()


def packet_words(row: Row) -> str:
    packet: Packet = row.event.what
    words = row.tags + (packet.nak or packet.name)
    if packet.dest_qp == GSI:  # whose numbers and sizes say nothing
        return words
    if row.count > 1:
        words += (
            f" x{row.count}, PSN {packet.psn:#x}..{row.last.what.psn:#x}, {packet.length} B each")
    else:
        words += f", PSN {packet.psn:#x}" + (f", {packet.length} B" if packet.length else "")
    usual = re.compile("ACK|acknowledgement requested|.*NAK, .*|MSN .*|from QP .*")
    words += "".join(f", {said}" for said in packet.details if not usual.fullmatch(said))
    return words + (", again" if row.event.again else "")


def arrow(row: Row) -> str:
    """One packet, from the left to the right or back; an x is where it was lost."""
    width = 2 * WIDTH + GAP
    words = f" {packet_words(row)} "
    if row.event.what.host == "a":
        end = "> " if row.event.other else "x "
        return "  " + words.center(width - 4, "-") + end.rstrip()
    return (" <" if row.event.other else " x") + words.center(width - 4, "-")


class _Column:
    def __init__(self):
        self.lines: list[str] = []

    def add(self, row: Row) -> None:
        name, words = call_words(row)
        indent = " " * (len(name) - len(name.lstrip()) + 4)
        self.lines += textwrap.wrap(
            f"{name.strip()}  {words}", WIDTH, initial_indent=indent[4:], subsequent_indent=indent,
            break_on_hyphens=False)


def _side_by_side(columns: dict[str, _Column]) -> list[str]:
    """What the columns have gathered, as lines; the columns are empty then."""
    height = max(len(column.lines) for column in columns.values())
    lines = []
    for number in range(height):
        cells = [
            (column.lines[number : number + 1] or [""])[0].ljust(WIDTH)
            for column in columns.values()]
        lines.append((" " * GAP).join(cells).rstrip())
    for column in columns.values():
        column.lines.clear()
    return lines
