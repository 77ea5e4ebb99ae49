# SPDX-License-Identifier: MIT
"""A traced run: ./lab trace shows it, ./lab dev record keeps it in pictures/*/*trace.txt, the tests
compare another with it.

The picture is drawn from the file, so it shows a real run, and the tests see whether runs are still
like it. Behind the titles and the programs' arguments, the file has a line for each event:

    a    ibv_alloc_pd  = pd1                 a call on host a, its arguments and its result
    b      ibv_open_device  rxe0             a call that librdmacm makes for the program
    b !  ibv_modify_qp  …  = EINVAL …        a call that fails
    b >> #1 SEND Only; QP 0x11; PSN …        a packet of work request #1 leaves; >x: it gets lost
    a << #1 SEND Only; QP 0x11; PSN …        and arrives
    b    send  "done"  [3]                   an event of the other host waits for this call
    a    recv  "done"  after [3]             and this is it
    b2   ibv_alloc_pd  = pd1                 a call of host b's second process
"""
from __future__ import annotations

import re
from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Sequence

from lab import normalise
from lab.paths import ROOT
from lab.wire import packets
from lab.wire.packets import GSI, Packet
from lab.wire.timeline import Call, Event

CHANNEL_CALLS = ("ibv_req_notify_cq", "ibv_get_cq_event", "ibv_ack_cq_events")
LINE = re.compile(r"(\w)([ \d])(>>|>x|<<|<x|! |  ) ((?:  )*)((?:#\d+ )*)(.*)")
CALL = re.compile(r"(\w+)(?:  (?!= )(.*?))??(?:  = (.*?))?(?:  after \[(\d+)\])?(?:  \[(\d+)\])?")


@dataclass
class Recording:
    titles: dict[str, str]  # host -> what runs on it
    events: list[Event]  # in the order of timeline.merge()
    arguments: Sequence[str] = ()  # what the programs were given

    def save(self, file: Path) -> None:
        numbers, causes, processes = _Numbers(), {}, defaultdict(dict)
        for event in self.events:
            if not event.is_packet:
                causes |= {id(cause): 0 for cause in event.after}
        lines = [f"{host}: {title}" for host, title in self.titles.items()]
        lines.append(f"arguments: {' '.join(self.arguments)}".rstrip())
        for event in self.events:
            if id(event) in causes:
                causes[id(event)] = 1 + max(causes.values())
            line = numbers.renewed(event, _line(event, causes))
            if not event.is_packet:
                its = processes[event.host].setdefault(event.what.pid, len(processes[event.host]))
                line = line.replace(" ", str(its + 1), 1) if its else line
            lines.append(line)
        file.write_text("\n".join(lines) + "\n")

    @staticmethod
    def load(file: Path) -> "Recording":
        head, given, lines = re.fullmatch(
            r"((?:\w: .*\n)+)arguments:(.*)\n((?:.*\n)*)", file.read_text()).groups()
        titles = dict(line.split(": ", 1) for line in head.splitlines())
        found = Recording(titles, [], given.split())
        under_way: dict[str, list[Event]] = defaultdict(list)  # packets, by what their lines say
        causes: dict[str, Event] = {}
        for line in lines.splitlines():
            host, process, mark, indent, tags, words = LINE.fullmatch(line).groups()
            if mark[0] in "<>":
                name, qp, psn, length, *details = words.split("; ")
                event = Event(host, 0, None, mark[0] == ">")
                event.again = details[-1:] == ["again"]
                sender = host if event.sent else "b" if host == "a" else "a"
                event.what = Packet(
                    0, sender, name, int(qp[3:], 16), int(psn[4:], 16), int(length[:-2]),
                    tuple(details[:-1] if event.again else details))
                if mark == ">>":
                    under_way[words].append(event)
                elif mark == "<<":
                    event.other = under_way[words].pop(0)
                    event.other.other = event
                    event.after = [event.other]
            else:
                call, text, result, after, number = CALL.fullmatch(words).groups()
                event = Event(host, 0, Call({
                    "call": call, "text": text or "", "result": result or "",
                    "failed": mark == "! ", "depth": len(indent) // 2, "pid": process}))
                event.after = [causes[after]] if after else []
                if number:
                    causes[number] = event
            event.requests = [int(tag) for tag in re.findall(r"\d+", tags)]
            found.events.append(event)
        return found

    def lanes(self, device: str, by_events: bool) -> dict[str, list[str]]:
        """What is the same in each run, however busy the machine is: the calls of each process in
        their order, the completions that it takes from each queue, and packets.lanes(). Not the
        same are:

        - when a completion comes: those of receives have no order with others, none has one with
          calls, and it does not count how many a call takes;
        - whether a completion is there before the program goes to sleep: the calls of the
          completion channel do not count;
        - with `by_events`, in which order a program that sleeps on several things at once is woken,
          how often in vain, whether it learns of its last SEND before it ends, and whether it posts
          a receive again that no message takes: the calls have an order for each object only, and
          completions of SENDs and such receives do not count."""
        lanes = packets.lanes(
            event.what for event in self.events if event.is_packet and event.sent)
        not_taken = self._posted_again_in_vain() if by_events else set()
        for event in self.events:
            call = event.what
            if event.is_packet or call.call in CHANNEL_CALLS or id(event) in not_taken:
                continue
            title = self.titles.get(event.host, event.host)
            # The first object that it names; what goes over TCP, in quotes, names none.
            its = re.match(r"[^\"]*?\b(qp 0x\w+|[a-z]+\d+)", f"{call.text} {call.result}")
            # A poll names the queue once for all that it took.
            queue, parts = re.fullmatch(r"(cq\d+: )?(.*)", call.text).groups()
            for part in parts.split("; ") if queue else [parts]:
                if by_events and (call.result[:6] == "EAGAIN" or queue and part[:5] == "SEND "):
                    continue
                kind = (", receives" if part[:4] == "RECV" else ", completions") if queue else ""
                lane = (title + kind, (call.pid, its[1] if its and (by_events or queue) else ""))
                lanes.setdefault(lane, []).append(f"{call.call} {part} = {call.result}")
        return normalise.lanes(lanes, device)

    def _posted_again_in_vain(self) -> set[int]:
        """The posts of a receive, but its first, that no message takes: as ids of events."""
        posts: dict[tuple, list[int]] = defaultdict(list)
        taken: Counter = Counter()
        for event in self.events:
            call = event.what
            if not event.is_packet and call.call in ("ibv_post_recv", "ibv_post_srq_recv"):
                queue, wr_id = re.match(r"(.*): wr_id (\d+)", call.text).groups()
                posts[event.host, call.pid, wr_id, queue].append(id(event))
            elif not event.is_packet and call.call == "ibv_poll_cq":
                for wr_id in re.findall(r"RECV wr_id (\d+)", call.text):
                    taken[event.host, call.pid, wr_id] += 1
        return {
            post for (*receive, _), its in posts.items()
            for post in its[max(1, taken[tuple(receive)]):]}

    def differences(self, other: "Recording", device: str) -> list[str]:
        """How `other` differs from this one, as lines; numbers that each run has of its own do not
        count."""
        by_events = any(
            not event.is_packet and event.what.result[:6] == "EAGAIN" for event in self.events)
        return normalise.compare(
            self.lanes(device, by_events), other.lanes(device, by_events), device)


def file_of(stem: str, which: str = "") -> Path:
    """Where the run of an example is kept, with one of its lesson's changes, or another of its
    programs, or neither."""
    return ROOT / "pictures" / stem / f"{which + '_' if which else ''}trace.txt"


def _line(event: Event, causes: dict[int, int]) -> str:
    what = event.what
    tags = "".join(f"#{number} " for number in event.requests)
    if event.is_packet:
        way = ">" if event.sent else "<"
        words = [what.name, f"QP {what.dest_qp:#x}", f"PSN {what.psn:#x}", f"{what.length} B"]
        words += [*what.details, *(["again"] if event.again else [])]
        return f"{event.host} {way}{way if event.other else 'x'} {tags}{'; '.join(words)}"
    parts = [what.call, what.text, what.result and f"= {what.result}"]
    parts += [f"after [{causes[id(cause)]}]" for cause in event.after]
    parts += [f"[{causes[id(event)]}]"] if id(event) in causes else []
    mark = "!" if what.failed else " "
    return f"{event.host} {mark}  {'  ' * what.depth}{tags}{'  '.join(filter(None, parts))}"


class _Numbers:
    """Replaces the numbers that each run has of its own: in the order of their first appearance,
    QPs are 0x11, 0x12, …, keys 0x100, 0x200, … What is near a number stays near it: the PSNs of a
    QP, the addresses in a buffer, the keys of a memory window. Hosts number for themselves, so a
    number is that of a host."""

    # kind -> the first number, the step from number to number, and what is near
    KINDS = {"qp": (0x11, 1, 1), "PSN": (0x10000, 0x10000, 0x1000), "key": (0x100, 0x100, 4),
             "address": (0x100000, 0x100000, 0x10000), "port": (40001, 1, 1)}
    SAID = re.compile(r"(\w+ )?\b(qp|QP|PSN|lkey|rkey|address) 0x([0-9a-f]+)")
    # What the examples tell each other over TCP (common's exchange).
    EXCHANGED = re.compile(
        r"(?<=\"0000:)(\w{6}):(\w{6})(:\w{32}:\d+)(?::(\w{16}):(\w{8}))?")
    PORT = re.compile(r"(\[::\]|\d+(?:\.\d+){3}):(\d+)")

    def __init__(self):
        self.first: dict[str, list[tuple[str, int]]] = defaultdict(list)

    def renewed(self, event: Event, line: str) -> str:
        what, peer = event.what, "b" if event.host == "a" else "a"
        if event.is_packet:
            sender, receiver = (event.host, peer) if event.sent else (peer, event.host)
        own = not event.is_packet and re.search(r"\b(BIND_MW|LOCAL_INV)\b", line)
        is_itself = "(itself)" in line

        def owner(before: str, word: str, at: int) -> str:
            if event.is_packet:
                if word == "PSN" and what.dest_qp == GSI:
                    return sender + ", connection manager"
                its = before == "from " or word == "PSN" and not what.answers
                return sender if its else receiver
            theirs = before in ("dest ", "to ", "from ", "receive ") and not is_itself
            if word == "rkey":
                theirs = not own and "  = " not in line[:at]
            return peer if theirs else event.host

        def said(match: re.Match) -> str:
            before, word, number = match[1] or "", match[2], int(match[3], 16)
            kind = "key" if "key" in word else word.replace("QP", "qp")
            number = self.new(kind, owner(before, word, match.start()), number)
            return f"{before}{word} {number:#x}"

        def exchanged(match: re.Match) -> str:
            of = peer if what.call in ("recv", "read") else event.host
            qp, psn, address, key = (
                self.new(kind, of, int(match[group] or "0", 16))
                for kind, group in (("qp", 1), ("PSN", 2), ("address", 4), ("key", 5)))
            memory = f":{address:016x}:{key:08x}" if match[4] else ""
            return f"{qp:06x}:{psn:06x}{match[3]}{memory}"

        line = self.EXCHANGED.sub(exchanged, self.SAID.sub(said, line))
        return self.PORT.sub(
            lambda match: f"{match[1]}:{self.new('port', '', int(match[2]))}", line)

    def new(self, kind: str, host: str, number: int) -> int:
        first, step, near = self.KINDS[kind]
        # Not a number of this run's: none, the connection manager's QP, and all QPs of a group.
        if number == 0 and kind != "PSN" or kind == "qp" and number in (GSI, 0xFFFFFF):
            return number
        if kind == "address" and number < 0x10000:  # an offset: no process has memory there
            return number
        known = self.first[kind]
        for place, (its, value) in enumerate(known):
            if its == host and abs(number - value) < near:
                return first + place * step + number - value
        known.append((host, number))
        return first + (len(known) - 1) * step
