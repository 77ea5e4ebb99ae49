# SPDX-License-Identifier: MIT
"""What a run of ./lab bench has written: its rows, its ratios, and the machine that it ran on.

A results folder has results.csv, ratios.csv and machine.json. The run that the lesson shows is kept
in tools/bench/published, by publish.py. Pictures and tables read both through this module.
"""
from __future__ import annotations

import csv
import json
from dataclasses import dataclass, replace
from pathlib import Path

from lab.errors import LabError
from lab.paths import ROOT

FILES = ("results.csv", "ratios.csv", "machine.json")
PUBLISHED = ROOT / "tools/bench/published"

# What is measured, in words; what begins with ib_ is a command of perftest's.
NAMES = {
    "write": "WRITE",
    "write_imm": "WRITE_WITH_IMM, polling",
    "write_imm_events": "WRITE_WITH_IMM, events",
    "write_imm_not_inline": "WRITE_WITH_IMM, not inline",
    "send": "SEND, polling",
    "send_events": "SEND, events",
    "read": "READ",
    "ucx": "UCX",
    "tcp": "TCP, epoll",
    # A mean can be compared with a mean only.
    "write_imm_mean": "WRITE_WITH_IMM, polling (mean)",
    "libfabric_mean": "libfabric (mean)",
    "rsockets_mean": "rsockets (mean)",
    "tcp_mean": "TCP, epoll (mean)",
    "write_separate": "WRITE, separate posts",
    "write_chained": "WRITE, chained posts",
    "read_1": "READ, one under way",
    "read_4": "READ, 4 under way",
    "read_16": "READ, 16 under way",
    "separate": "separate posts",
    "chained": "chained posts",
    "group": "one group",
    "write_imm_rate": "WRITE_WITH_IMM of the same bytes",
    "shared": "shared client",
    "shared_no_groups": "shared client, no groups",
    "own": "own connections",
    "own_adaptive": "own connections, which look before they sleep",
    "tcp_adaptive": "TCP, which looks before it sleeps",
    "floor": "shared memory alone",
    "response_data": "shared client, response data by WRITE",
    "two_lanes": "shared client, two connections",
    "two_lane_threads": "shared client, two connections with a thread each",
    "wide": "shared client, wide ring",
    "narrow": "shared client, narrow ring",
}
PEERS = {"ucx", "libfabric_mean", "rsockets_mean", "tcp", "tcp_adaptive", "tcp_mean"}


def name_of(case: str) -> str:
    return NAMES.get(case, case)


def is_peer(case: str) -> bool:
    """Somebody else's program, or another transport: what this project's programs are compared
    with."""
    return case in PEERS or case.startswith("ib_")


def figure(value: float) -> str:
    """Three digits, which is more than noise leaves."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.{1 if value >= 10 else 2 if value >= 1 else 3}f}"


@dataclass(frozen=True)
class Row:
    group: str
    case: str
    parameter: str
    metric: str
    unit: str
    median: float | None
    low: float | None
    high: float | None
    runs: int
    state: str  # ok, failed or skipped
    why: str

    @property
    def is_ok(self) -> bool:
        return self.state == "ok" and self.median is not None


def _row(line: dict[str, str]) -> Row:
    numbers = {
        name: float(line[name]) if line[name] else None for name in ("median", "low", "high")}
    words = {name: line[name] for name in ("group", "case", "parameter", "metric", "unit", "state")}
    # The reason may be what a program has printed.
    why = " ".join(
        "".join(letter if letter.isprintable() else " " for letter in line["why"]).split())
    return Row(**words, **numbers, runs=int(line["runs"] or 0), why=why)


class Measured:
    def __init__(self, results: Path, ratios: Path, machine: Path):
        with results.open(newline="") as file:
            self.rows = [_row(line) for line in csv.DictReader(file)]
        with ratios.open(newline="") as file:
            self.ratios = list(csv.DictReader(file))
        self.machine = json.loads(machine.read_text())

    @classmethod
    def of(cls, folder: Path) -> Measured:
        """@raises LabError if that is no results folder"""
        absent = [name for name in FILES if not (folder / name).exists()]
        if absent:
            raise LabError(
                f"{folder} is no results folder of ./lab bench: it has no {', '.join(absent)}")
        return cls(*(folder / name for name in FILES))

    @classmethod
    def published(cls) -> Measured:
        return cls.of(PUBLISHED)

    def of_metric(self, group: str, metric: str) -> list[Row]:
        """What failed or was skipped altogether may have a single row, without a metric or a
        parameter: it stands for all."""
        rows = [row for row in self.rows if row.group == group and row.metric in (metric, "")]
        parameters = list(dict.fromkeys(row.parameter for row in rows if row.parameter))
        return [
            replace(row, parameter=parameter)
            for row in rows
            for parameter in ([row.parameter] if row.parameter else parameters)
        ]

    def where(self) -> str:
        """Device, machine, kernel and date in one line, for below a picture."""
        m = self.machine
        host = f"{m['cpus']} × {m['cpu']}" + (
            ", emulated machine" if m["emulated"] in ("TCG", "KVM") else "")
        return (
            f"{m['device']} ({m['driver']}, {m['link_layer']}, MTU {m['mtu']}); {host}; Linux"
            f" {m['kernel']}; {str(m['date']).split('T')[0].split(' ')[0]}")


def processes_of(parameter: str) -> tuple[int, int]:
    """How many processes, and how many requests each has in flight, of "64x16"."""
    processes, _, in_flight = parameter.partition("x")
    return int(processes), int(in_flight)


def in_flight_words(in_flight: int) -> str:
    return "one request at a time" if in_flight == 1 else f"{in_flight} requests in flight"


def size_words(parameter: str) -> str:
    length = int(parameter)
    return f"{length // 1024} KiB" if length and length % 1024 == 0 else f"{length} B"


def slots_words(parameter: str) -> str:
    return f"{parameter} slot" if parameter == "1" else f"{parameter} slots"


def load_words(parameter: str) -> str:
    processes, in_flight = processes_of(parameter)
    return f"{processes} process{'' if processes == 1 else 'es'}, {in_flight_words(in_flight)}"
