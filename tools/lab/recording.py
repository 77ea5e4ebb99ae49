# SPDX-License-Identifier: MIT
"""A traced run: ./lab trace shows it, ./lab record keeps it in picture/*_trace.json, the tests
compare another with it.

The picture is drawn from the file, so it shows a real run, and the tests see whether runs are still
like it.
"""
from __future__ import annotations

import dataclasses
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Sequence

from lab import normalise
from lab.packets import Packet
from lab.paths import ROOT
from lab.timeline import Call, Event, merge


CHANNEL_CALLS = ("ibv_req_notify_cq", "ibv_get_cq_event", "ibv_ack_cq_events")


@dataclass
class Recording:
    titles: dict[str, str]  # host -> what runs on it
    calls: dict[str, list[Call]]  # host -> in the order of its clock
    packets: dict[str, list[Packet]]  # host -> as it saw them
    arguments: Sequence[str] = ()  # what the programs were given

    @property
    def events(self) -> list[Event]:
        return merge(self.calls, self.packets)

    def save(self, file: Path) -> None:
        data = {
            "titles": self.titles,
            "arguments": list(self.arguments),
            "calls": {host: [call.data for call in calls] for host, calls in self.calls.items()},
            "packets": {
                host: [dataclasses.asdict(packet) for packet in packets]
                for host, packets in self.packets.items()
            },
        }
        # A line for each call and each packet, so that a difference between two runs can be read.
        file.write_text(json.dumps(data).replace("}, {", "},\n{") + "\n")

    @staticmethod
    def load(file: Path) -> "Recording":
        data = json.loads(file.read_text())

        def packet(fields: dict) -> Packet:
            fields["more"] = tuple(tuple(pair) for pair in fields["more"])
            fields["identity"] = tuple(fields["identity"])
            return Packet(**fields)

        return Recording(
            data["titles"],
            {host: [Call(call) for call in calls] for host, calls in data["calls"].items()},
            {
                host: [packet(fields) for fields in packets]
                for host, packets in data["packets"].items()
            },
            data["arguments"],
        )

    def lanes(self) -> dict[str, list[str]]:
        """What does not depend on who was faster: each program's calls, and the packets of each
        direction. Completions of receives have no order with those of sends, nor acknowledgements
        with what is sent the same way: each are a lane of their own. What is sent again, or
        acknowledged again, does depend on it, so that counts once; and whether a completion is
        there before a program goes to sleep does, so the calls of the completion channel do not
        count. Where a program sleeps on the device's or the connection manager's events as well as
        on completions, the order of its calls depends on which comes first: of that run, packets
        only."""
        by_events = any(
            call.call == "ibv_get_async_event"
            or (call.call, call.result[:6]) == ("rdma_get_cm_event", "EAGAIN")
            for calls in self.calls.values()
            for call in calls
        )
        lanes: dict[str, list[str]] = {}
        seen = set()
        for event in self.events:
            what = event.what
            if not event.is_packet and not by_events and what.call not in CHANNEL_CALLS:
                title = self.titles.get(event.host, event.host)
                for part in what.text.split("; ") if what.wcs else [what.text]:
                    if what.wcs:  # it names the queue once for all that it took
                        part = re.sub(r"^\w+: ", "", part)
                    receives = what.wcs and part.startswith("RECV")
                    lanes.setdefault(f"{title}, receives" if receives else title, []).append(
                        f"{what.call} {part} = {what.result}"
                    )
            elif event.is_packet and event.sent:
                details = " ".join(f"{name} {value}".strip() for name, value in what.details)
                packet = (event.host, what.name, what.dest_qp, what.psn, what.nak)
                if packet not in seen:
                    kind = "acknowledgements" if what.name == "Acknowledge" else "packets"
                    lanes.setdefault(f"{kind} from host {event.host}", []).append(
                        f"{what.name}, {what.length} B, {details}"
                    )
                seen.add(packet)
        return lanes

    def differences(self, other: "Recording", device: str) -> list[str]:
        """How `other` differs from this one, as lines; numbers that each run has of its own do not
        count."""
        return normalise.compare(self.lanes(), other.lanes(), device)


def file_of(stem: str, which: str = "") -> Path:
    """Where the run of an example is kept, with one of its lesson's changes, or another of its
    programs, or neither."""
    return ROOT / "picture" / f"{stem}{'_' + which if which else ''}_trace.json"
