# SPDX-License-Identifier: MIT
"""What the benchmark is to show: quotients of two cases, each with a limit; and so which programs
run next to each other."""
from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Dict, List, Sequence, Tuple

from bench.cases import Probe

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
    goals = [
        _latency("write", "ib_write_lat", "<= 1.03"),
        _latency("write_imm", "ib_send_lat", "<= 1.05")]
    goals += [_latency("write_imm", "ucx", "< 0.95")]
    goals += [
        _latency("write_imm_mean", peer, "< 0.95") for peer in ("libfabric_mean", "rsockets_mean")]
    goals += [_latency("write_imm_events", "ib_send_lat -e", "<= 1.03")]
    goals += [_latency("write_imm_not_inline", "write_imm", ">= 1.0")]
    for size in ("64", "4096"):
        goals += [
            Goal("rate", "write_separate", "ib_write_bw", size, "messages_per_s", ">= 1.0"),
            Goal("rate", "write_chained", "ib_write_bw -l 64", size, "messages_per_s", ">= 1.0")]
    for peer, parameter, limit in (
        ("separate", "16", 9),
        ("separate", "64", 13),
        ("chained", "64", 10),
        ("ib_write_bw", "16", 0.97),
        ("ib_write_bw", "64", 0.97),
        ("ib_write_bw", "255", 0.97),
    ):
        goals.append(Goal("groups", "group", peer, parameter, "messages_per_s", f">= {limit}"))
    for ours, peer, metric, limits in (
        (
            "own", "shared", "us_per_request",
            {"16x1": ">= 2.8", "64x1": ">= 4.2", "16x16": ">= 6", "64x16": ">= 8"}),
        (
            "shared_no_groups", "shared", "us_per_request",
            {"64x1": ">= 1.5", "64x4": ">= 3", "64x16": ">= 4.5"}),
        ("own", "shared", "cpu_us_per_request", {"64x1": ">= 3", "64x16": ">= 8"}),
        ("shared", "own", "us_per_request", {"1x1": "<= 1"}),
        ("shared", "tcp", "us_per_request", {"1x1": "<= 1"}),
        (
            "shared", "floor", "us_per_request",
            {"16x1": "<= 1.5", "64x1": "<= 1.4", "16x16": "<= 1.9", "64x16": "<= 1.6"}),
        ("response_data", "shared", "us_per_request", {"64x1": "<= 2"}),
        ("two_lanes", "shared", "us_per_request", {"64x16": "<= 1"}),
        ("two_lane_threads", "shared", "us_per_request", {"64x16": "<= 1"}),
        ("wide", "narrow", "us_per_request", {"64x1": "<= 1.1"}),
        (
            "tcp", "shared", "us_per_request",
            {"16x1": ">= 2.2", "64x1": ">= 3.5", "16x16": ">= 1.6", "64x16": ">= 2.2"}),
    ):
        goals += [
            Goal("requests", ours, peer, parameter, metric, limit)
            for parameter, limit in limits.items()]
    return goals


GOALS = _all()


@dataclass(frozen=True)
class Pair:
    """Probes that run one right after the other, in any order: the two sides of goals; or one,
    which has both, or no goal; or a case of the timetable at all its rates."""

    name: str
    probes: Tuple[Probe, ...]
    goals: Tuple[Goal, ...]


def pairs(probes: Sequence[Probe]) -> List[Pair]:
    """Each probe is in one pair, at least."""
    by_case = {
        (probe.group, case, parameter): probe
        for probe in probes
        for case, parameter in probe.measures
    }
    found: Dict[Tuple[Probe, ...], List[Goal]] = {}
    for goal in GOALS:
        sides = [by_case.get((goal.group, case, goal.parameter)) for case in (goal.ours, goal.peer)]
        if all(sides):
            found.setdefault(
                tuple(dict.fromkeys(sorted(sides, key=lambda probe: probe.key))), []
            ).append(goal)
    with_goal = {probe.key for its in found for probe in its}
    alone: Dict[Tuple[str, ...], List[Probe]] = {}
    for probe in probes:
        if probe.key not in with_goal:
            alone.setdefault(
                (probe.group, probe.case) if probe.group == "timetable" else probe.key, []
            ).append(probe)
    found.update({tuple(its): [] for its in alone.values()})
    return [
        Pair(" | ".join("/".join(probe.key) for probe in its), its, tuple(goals))
        for its, goals in found.items()]
