"""What the benchmark is to show: quotients of two arms, each with a limit."""
from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import List

COMPARE = {"<=": operator.le, "<": operator.lt, ">=": operator.ge}


@dataclass(frozen=True)
class Goal:
    group: str
    ours: str  # the numerator
    peer: str  # the denominator
    parameter: str
    metric: str
    limit: str  # "<= 1.03"

    @property
    def name(self) -> str:
        return f"{self.ours}/{self.peer}"

    def is_met(self, ratio: float) -> bool:
        sign, value = self.limit.split()
        return COMPARE[sign](ratio, float(value))


def _latency(ours: str, peer: str, limit: str) -> Goal:
    return Goal("latency", ours, peer, "64", "latency_us", limit)


def _all() -> List[Goal]:
    goals = [_latency("write", "ib_write_lat", "<= 1.03"), _latency("write_imm", "ib_send_lat", "<= 1.05")]
    goals += [_latency("write_imm", "ucx", "< 0.95")]
    goals += [_latency("write_imm_mean", peer, "< 0.95") for peer in ("libfabric_mean", "rsockets_mean")]
    goals += [_latency("write_imm_events", "ib_send_lat -e", "<= 1.03")]
    for size in ("64", "4096"):
        goals += [Goal("rate", "write_separate", "ib_write_bw", size, "messages_per_s", ">= 1.0"),
                  Goal("rate", "write_chained", "ib_write_bw -l 64", size, "messages_per_s", ">= 1.0")]
    for peer, parameter, limit in (("separate", "16", 9), ("separate", "64", 13), ("chained", "64", 10), ("ib_write_bw", "16", 0.97),
                                   ("ib_write_bw", "64", 0.97), ("ib_write_bw", "255", 0.97)):
        goals.append(Goal("groups", "group", peer, parameter, "messages_per_s", f">= {limit}"))
    for ours, peer, metric, limits in (
        ("own", "shared", "us_per_request", {"16x1": ">= 2.5", "64x1": ">= 3.5", "16x16": ">= 8", "64x16": ">= 10"}),
        ("shared_no_groups", "shared", "us_per_request", {"64x1": ">= 1.5", "64x4": ">= 3", "64x16": ">= 4.5"}),
        ("own", "shared", "cpu_us_per_request", {"64x1": ">= 3", "64x16": ">= 8"}),
        ("shared", "own", "us_per_request", {"1x1": "<= 2"}),
        ("wide", "narrow", "us_per_request", {"64x1": "<= 1.1"}),
        ("tcp", "shared", "us_per_request", {"64x1": ">= 3.4", "64x16": ">= 1.0"}),
    ):
        goals += [Goal("requests", ours, peer, parameter, metric, limit) for parameter, limit in limits.items()]
    return goals


GOALS = _all()
