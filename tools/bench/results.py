"""From single runs to what is reported: medians, spreads, quotients; and the files that say so.

Quotients are taken repeat by repeat, whose two sides ran one right after the other, and their median counts. Where the
spread, of a row's figures or of a quotient, is above SPREAD_LIMIT, the machine was not quiet enough to say anything, and
that is what is said: void. What makes both sides slower for a while makes the rows void, and the quotient need not be.
"""
from __future__ import annotations

import csv
import json
import math
import statistics
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Dict, List, Optional, Sequence, Tuple

from bench.arms import MAIN, UNITS
from bench.goals import GOALS, Goal

SPREAD_LIMIT = 0.15
Key = Tuple[str, str, str, int]  # group, arm, parameter, client


def spread(values: Sequence[float]) -> float:
    """The distance of the quartiles, as a part of the median."""
    middle = statistics.median(values)
    if len(values) < 2 or min(values) == max(values):
        return 0.0
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return (high - low) / middle if middle else float("inf")


@dataclass(frozen=True)
class Run:
    group: str
    arm: str
    parameter: str
    client: int
    repeat: int
    metric: str
    value: float


@dataclass(frozen=True)
class Row:
    group: str
    arm: str
    parameter: str
    client: int
    metric: str
    unit: str
    median: Optional[float]
    low: Optional[float]
    high: Optional[float]
    spread: Optional[float]
    repeats: int
    state: str  # ok, void, failed or skipped
    why: str


@dataclass(frozen=True)
class Ratio:
    name: str
    group: str
    ours: str
    peer: str
    parameter: str
    metric: str
    client: int
    ratio: Optional[float]
    low: Optional[float]
    high: Optional[float]
    limit: str
    state: str  # met, not met, void, failed or skipped
    why: str


class Results:
    def __init__(self) -> None:
        self.runs: List[Run] = []
        self.broken: Dict[Key, Tuple[str, str]] = {}  # state and why
        self.machines: Dict[int, dict] = {}           # of each client
        self.lost: Dict[int, str] = {}                # clients that went away

    def take(self, event: dict, client: int = 1) -> None:
        """What an engine has said, which client's it is being in there if it came by the agent."""
        client = event.get("client", client)
        if "machine" in event:
            self.machines[client] = event["machine"]
        elif "lost" in event:
            self.lost[client] = event["lost"]
        elif "state" in event:
            self.broken[event["group"], event["arm"], event["parameter"], client] = event["state"], event["why"]
        elif "samples" in event:
            self.runs += [Run(event["group"], arm, parameter, client, event["repeat"], metric, value)
                          for arm, parameter, metric, value in event["samples"]]

    def rows(self) -> List[Row]:
        values: Dict[Tuple[Key, str], List[float]] = {}
        for run in self.runs:
            key = run.group, run.arm, run.parameter, run.client
            if key not in self.broken:
                values.setdefault((key, run.metric), []).append(run.value)
        rows = []
        for (key, metric), said in values.items():
            found = [value for value in said if math.isfinite(value)]
            if not found:
                rows.append(Row(*key, metric, UNITS[metric], None, None, None, None, 0, "failed", "it has printed no number"))
                continue
            part, why = spread(found), ""
            if len(found) < len(said):  # perftest prints "inf" when it has found no frequency of the CPU
                why = f"{len(said) - len(found)} of {len(said)} runs have printed no number"
            elif part > SPREAD_LIMIT:
                why = f"it spreads by {part:.0%}"
            rows.append(Row(*key, metric, UNITS[metric], statistics.median(found), min(found), max(found), part, len(found),
                            "void" if why else "ok", why))
        for key, (state, why) in self.broken.items():
            metric = MAIN[key[0]]
            rows.append(Row(*key, metric, UNITS[metric], None, None, None, None, 0, state, why))
        return rows

    def ratios(self) -> List[Ratio]:
        """Of all goals of which something was to be run."""
        return [self._ratio(goal, client) for client in self._clients() for goal in GOALS
                if self._has(goal, goal.ours, client) and self._has(goal, goal.peer, client)]

    def _clients(self) -> List[int]:
        return sorted({run.client for run in self.runs} | {key[3] for key in self.broken})

    def _has(self, goal: Goal, arm: str, client: int) -> bool:
        return (goal.group, arm, goal.parameter, client) in self.broken or bool(self._values(goal, arm, client))

    def _values(self, goal: Goal, arm: str, client: int) -> Dict[int, float]:
        wanted = goal.group, arm, goal.parameter, client, goal.metric
        return {run.repeat: run.value for run in self.runs
                if (run.group, run.arm, run.parameter, run.client, run.metric) == wanted and math.isfinite(run.value)}

    def _ratio(self, goal: Goal, client: int) -> Ratio:
        fixed = (goal.name, goal.group, goal.ours, goal.peer, goal.parameter, goal.metric, client)
        sides = goal.ours, goal.peer
        for bad in ("failed", "skipped"):
            why = "; ".join(f"{arm}: {self.broken[goal.group, arm, goal.parameter, client][1]}" for arm in sides
                            if self.broken.get((goal.group, arm, goal.parameter, client), ("",))[0] == bad)
            if why:
                return Ratio(*fixed, None, None, None, goal.limit, bad, why)
        ours, peer = (self._values(goal, arm, client) for arm in sides)
        both = [ours[repeat] / peer[repeat] for repeat in ours if peer.get(repeat)]
        if not both:
            return Ratio(*fixed, None, None, None, goal.limit, "failed", "no repeat has both sides")
        middle, part = statistics.median(both), spread(both)
        why = ""
        if len(both) < max(len(ours), len(peer)):
            why = f"{len(both)} of {max(len(ours), len(peer))} repeats have both sides"
        elif part > SPREAD_LIMIT:
            why = f"the quotient spreads by {part:.0%}"
        state = "void" if why else "met" if goal.is_met(middle) else "not met"
        return Ratio(*fixed, middle, min(both), max(both), goal.limit, state, why)

    def write(self, folder: Path, machine: dict) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        for name, kind, lines in (("results", Row, self.rows()), ("runs", Run, self.runs), ("ratios", Ratio, self.ratios())):
            with open(folder / f"{name}.csv", "w", newline="") as file:
                writer = csv.writer(file, lineterminator="\n")
                writer.writerow([field.name for field in fields(kind)])
                writer.writerows([_text(value) for value in asdict(line).values()] for line in lines)
        (folder / "machine.json").write_text(json.dumps(machine, indent=2) + "\n")


def _text(value: object) -> str:
    return "" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)
