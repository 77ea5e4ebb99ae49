# SPDX-License-Identifier: MIT
"""A timeline as a picture: each host's program and its NIC, and the wire between them.

A program hands its NIC a work request, packets go from NIC to NIC, and a completion comes back:
arrows in that order. The number of the work request stands at each of them, and a bar beside the
NIC's line lasts from its posting to its completion.
"""
from __future__ import annotations

import re

from drawing.picture import Picture
from lab.wire.recording import Recording
from lab.wire.timeline import LISTENS, Event
from lab.wire.timeline_text import Row, call_words, packet_words, rows

WIDTH = 1080
NIC = {"a": 400, "b": WIDTH - 400}  # x of the lifelines
LEFT = {"a": 12, "b": WIDTH - 344}  # x where a program's calls begin
HAND = {"a": -44, "b": 44}  # how far from its NIC a program stands
CODE = 7.9  # pixels of a letter of a call's name
TEXT = 335  # pixels for a program's calls
WIRE_TEXT = 270  # pixels for a packet's words
# Heights in pixels: of a call's first line, of its other lines, and of the gap behind it.
NAME, LINE, AFTER = 15, 14, 5
SLOPE = 12  # how far a packet's arrow falls on its way
PACKET = 22  # height of a packet
TOP = 54
POSTS = ("ibv_post_send", "ibv_wr_complete")
POLLS = ("ibv_poll_cq", "ibv_start_poll", "ibv_next_poll")
ROLE = {"a": "server", "b": "client"}


def pixels(text: str) -> float:
    """About how wide small text is: capitals are wider than the rest."""
    # Added up in tenths: since Python 3.12 the sum of floats is rounded differently, which moves a
    # line's end.
    return sum(81 if letter.isupper() or letter in "_#" else 63 for letter in text) / 10


def pieces(word: str, width: float) -> list[str]:
    """A word that is wider than a line, cut behind its colons and bars, and where that does not do,
    anywhere."""
    found = [""]
    for part in re.findall(r"[^:|]*[:|]|[^:|]+", word) if pixels(word) > width else [word]:
        if pixels(found[-1] + part) > width and found[-1]:
            found.append("")
        for letter in part if pixels(part) > width else [part]:
            if pixels(found[-1] + letter) > width:
                found.append("")
            found[-1] += letter
    return found


def wrapped(words: str, width: float) -> list[str]:
    lines = [""]
    for word in (piece for word in words.split() for piece in pieces(word, width)):
        longer = f"{lines[-1]} {word}".strip()
        if pixels(longer) <= width or not lines[-1]:
            lines[-1] = longer
        else:
            lines.append(word)
    return lines


def draw(recording: Recording) -> str:
    """The picture, as SVG; a host without a title is not in it."""
    return _Drawing(recording.events, recording.titles).svg()


class _Drawing:
    def __init__(self, events: list[Event], titles: dict[str, str]):
        width = WIDTH if len(titles) > 1 else NIC["a"] + 60
        self.picture = Picture(
            0, "Verbs calls and packets", "; ".join(titles.values()), width=width)
        self.titles = titles
        self.y = dict.fromkeys(titles, TOP)
        self.at: dict[int, float] = {}  # id of an event -> where it is drawn
        self.posted: dict[int, tuple[str, float]] = {}  # work request -> host, y
        # By distance from the NIC: where the bars end that are drawn already.
        self.bars = {host: [] for host in titles}
        self.rows = {id(row.event): row for row in rows(events)}
        for event in events:
            if event.host in titles:
                self.event(event)

    def svg(self) -> str:
        bottom = max(self.y.values()) + 8
        for host, title in self.titles.items():
            x = NIC[host]
            self.picture.text(LEFT[host], 27, title, style="bold", role=ROLE[host])
            self.picture.box(x - 32, 8, 64, 26, "nic")
            self.picture.text(x, 26, f"NIC {host}", anchor="middle")
            self.picture.under(f'<path class="line l-nic" d="M{x} 34V{bottom}"/>')
        self.picture.height = round(bottom + 8)
        return self.picture.svg()

    def event(self, event: Event) -> None:
        row = self.rows.get(id(event))
        here = self.y[event.host]
        if not event.is_packet:
            if row:
                self.call(row)
        elif event.sent:
            self.at[id(event)] = here
            # The packet has a row of its own only if it never arrives.
            drawn = row or self.rows.get(id(event.other))
            if drawn:
                self.y[event.host] = here + PACKET + LINE * (len(self.words(drawn)) - 1)
            if row:
                self.packet(row, here, here + SLOPE)
        elif row:
            start = self.at.get(id(event.other), here)
            end = max(here, start + SLOPE)
            self.packet(row, start, end)
            self.y[event.host] = end + PACKET - SLOPE + LINE * (len(self.words(row)) - 1)

    # ---- a call

    def call(self, row: Row) -> None:
        call, host = row.event.what, row.host
        for cause in row.event.after:
            start = self.at[id(cause)] + 8
            self.y[host] = max(self.y[host], start + SLOPE - 8)
            self.picture.arrow(
                NIC[cause.host] + HAND[cause.host], start, NIC[host] + HAND[host], self.y[host] + 8,
                dashed=True)
            words = "TCP" if cause.what.call not in LISTENS else "the client is started"
            self.picture.text(
                (NIC["a"] + NIC["b"]) / 2, (start + self.y[host] + 8) / 2 - 5, words,
                anchor="middle", style="small faint halo")
        y = self.y[host]
        self.at[id(row.event)] = y
        name, words = call_words(row)
        failed = call.failed or "failed wr_id" in call.text
        role = "bad" if failed else ROLE[host]
        x = LEFT[host] + 14 * call.depth
        self.picture.text(x, y + 12, name.strip(), style="code bold", role=role)
        beside = CODE * len(name.strip()) + 8
        room = TEXT - 14 * call.depth
        if pixels(words) < room - beside:
            self.picture.text(x + beside, y + 12, words, style="small")
            height = NAME
        else:
            lines = wrapped(words, room - 12)
            for number, line in enumerate(lines, 1):
                self.picture.text(x + 12, y + 12 + LINE * number, line, style="small")
            height = NAME + LINE * len(lines)
        self.hand_over(row, y + 8, role)
        self.y[host] = y + height + AFTER

    def hand_over(self, row: Row, y: float, role: str) -> None:
        """The arrow between a program and its NIC."""
        call, host = row.event.what, row.host
        inner, outer = NIC[host], NIC[host] + HAND[host]
        if call.call in POSTS and row.requests:
            self.picture.arrow(outer, y, inner, y, role)
            self.posted.update(dict.fromkeys(row.requests, (host, y)))
        elif call.call in POLLS:
            self.picture.arrow(inner, y, outer, y, role)
            for number in row.requests:
                if self.posted.get(number, ("",))[0] == host:
                    self.bar(host, self.posted.pop(number)[1], y)
        else:
            return
        self.badges(outer, y, row.tags, role)

    def bar(self, host: str, begin: float, end: float) -> None:
        bars = self.bars[host]
        place = next((place for place, taken in enumerate(bars) if taken < begin), len(bars))
        bars[place : place + 1] = [end]
        x = NIC[host] + (4 + 5 * place if host == "b" else -8 - 5 * place)
        if place < 5:
            self.picture.under(
                f'<rect class="b-{ROLE[host]}" x="{x}" y="{begin:g}" width="4" '
                f'height="{end - begin:g}"/>')

    def badges(self, x: float, y: float, tags: str, role: str) -> None:
        """The numbers of work requests, each in a circle."""
        text = tags.replace("#", "").strip().replace(" ", ",")
        if not text:
            return
        width = max(17, 8 + 6.5 * len(text))
        self.picture.box(x - width / 2, y - 8.5, width, 17, role)
        self.picture.text(x, y + 4, text, style="small bold", anchor="middle", role=role)

    # ---- a packet

    @staticmethod
    def words(row: Row) -> list[str]:
        return wrapped(packet_words(row)[len(row.tags) :], WIRE_TEXT)

    def packet(self, row: Row, start: float, end: float) -> None:
        packet, event = row.event.what, row.event
        x1, x2 = NIC[packet.host], NIC["b" if packet.host == "a" else "a"]
        lines = self.words(row)
        start, end = (y + 12 + LINE * (len(lines) - 1) for y in (start, end))
        role = (
            "bad"
            if packet.nak or not event.other
            else "plain"
            if packet.name == "Acknowledge"
            else ROLE[packet.host])
        if not event.other:
            x2, end = x1 + (x2 - x1) * 0.7, start + (end - start) * 0.7
            self.picture.text(
                x2 + (8 if x2 > x1 else -8), end + 5, "✕ lost", role="bad", style="small bold",
                anchor="start" if x2 > x1 else "end")
        self.picture.arrow(x1, start, x2, end, role, dashed=event.again)
        middle = (NIC["a"] + NIC["b"]) / 2
        for number, line in enumerate(reversed(lines)):
            self.picture.text(
                middle, (start + end) / 2 - 7 - LINE * number, line, style="small halo",
                anchor="middle")
        self.badges(
            x1 + (22 if x1 < x2 else -22), start + (end - start) * 22 / abs(x2 - x1), row.tags, role
        )
