# SPDX-License-Identifier: MIT
"""From single runs to what is reported: medians, ratios with their confidence intervals, verdicts;
and the files that say so.

A ratio is that of two runs, one right after the other: what makes the machine slower for a while
makes both slower. The verdict on a goal is made by the interval in which the median of these ratios
lies, whatever their distribution is. The benchmark looks at it several times, and stops for a pair
that is decided. Looking often finds more by chance, so the level is divided among the looks.
"""
from __future__ import annotations

import csv
import json
import math
import statistics
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Dict, List, Optional, Sequence, Tuple

from bench import cases
from bench.cases import MAIN, UNITS
from bench.goals import GOALS, Goal

LEVEL = 0.95  # of all looks at a ratio together
LOOKS = (15, 30, 60)  # repeats
FAILURES = 3  # of a case, after which it is not run any more
Key = Tuple[str, str, str]  # group, case, parameter


def looks(most: int) -> List[int]:
    """After which repeats the ratios are looked at, if there are `most`."""
    return [look for look in LOOKS if look < most] + [most]


def interval(values: Sequence[float], level: float) -> Optional[Tuple[float, float]]:
    """The confidence interval of the median, by order statistics. Each value is below the median
    with probability 1/2, so how many are below it is a binomial number, and the k-th smallest and
    the k-th largest value enclose the median unless that number is less than k or more than n - k.

    @return None if there are too few values for this level"""
    ordered, count = sorted(values), len(values)
    outside, found = 0.0, None
    for k in range(count // 2):
        outside += 2 * math.comb(count, k) / 2**count
        if outside > 1 - level:
            break
        found = ordered[k], ordered[count - 1 - k]
    return found


def quartiles(values: Sequence[float]) -> Tuple[float, float]:
    if len(values) < 2:
        return values[0], values[0]
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, high


def verdict(goal: Goal, within: Optional[Tuple[float, float]]) -> str:
    ends = {goal.is_met(end) for end in within} if within else {True, False}
    return "undecided" if len(ends) == 2 else "met" if True in ends else "missed"


@dataclass(frozen=True)
class Run:
    number: int  # in the order in which they were made
    pair: str  # what it ran next to
    group: str
    case: str
    parameter: str
    repeat: int
    metric: str
    value: float


@dataclass(frozen=True)
class Row:
    group: str
    case: str
    parameter: str
    metric: str
    unit: str
    median: Optional[float]
    low: Optional[float]  # the quartiles: half of the runs lie between them
    high: Optional[float]
    runs: int
    state: str  # ok, failed or skipped
    why: str


@dataclass(frozen=True)
class Ratio:
    name: str
    group: str
    ours: str
    peer: str
    parameter: str
    metric: str
    ratio: Optional[float]  # the median
    low: Optional[float]  # the ends of its interval
    high: Optional[float]
    repeats: int
    limit: str
    state: str  # met, missed, undecided, failed or skipped
    why: str


class Results:
    def __init__(self, max_repeats: int) -> None:
        self.level = 1 - (1 - LEVEL) / len(looks(max_repeats))
        self.runs: List[Run] = []
        self.skipped: Dict[Key, str] = {}  # why
        self.failures: Dict[Key, List[str]] = {}  # why, of each run that failed
        self.machine: dict = {}  # the client's

    def take(self, event: dict) -> None:
        """What the engine has said."""
        if "machine" in event:
            self.machine = event["machine"]
        elif "state" in event:
            key = event["group"], event["case"], event["parameter"]
            if event["state"] == "skipped":
                self.skipped[key] = event["why"]
            else:
                self.failures.setdefault(key, []).append(event["why"])
        elif "samples" in event:
            self.runs += [
                Run(
                    event["number"], event["pair"], event["group"], case, parameter,
                    event["repeat"], metric, value)
                for case, parameter, metric, value in event["samples"]]

    def is_given_up(self, key: Key) -> bool:
        return key in self.skipped or len(self.failures.get(key, [])) >= FAILURES

    def broken(self) -> Dict[Key, Tuple[str, str]]:
        """State and why of the cases without figures. A case whose runs fail now and then has
        figures."""
        measured = {(run.group, run.case, run.parameter) for run in self.runs}
        failed = {
            key: ("failed", whys[0])
            for key, whys in self.failures.items()
            if self.is_given_up(key) or key not in measured
        }
        return {**failed, **{key: ("skipped", why) for key, why in self.skipped.items()}}

    def rows(self) -> List[Row]:
        broken = self.broken()
        values: Dict[Tuple[Key, str], List[float]] = {}
        for run in self.runs:
            key = run.group, run.case, run.parameter
            if key not in broken:
                values.setdefault((key, run.metric), []).append(run.value)
        rows = []
        for (key, metric), said in values.items():
            found = [value for value in said if math.isfinite(value)]
            if not found:
                rows.append(
                    Row(
                        *key, metric, UNITS[metric], None, None, None, 0, "failed",
                        "it has printed no number"))
                continue
            # perftest prints "inf" when it has found no frequency of the CPU
            why = (
                f"{len(said) - len(found)} of {len(said)} runs have printed no number"
                if len(found) < len(said)
                else "")
            if key in self.failures:
                why = f"{len(self.failures[key])} more runs have failed: {self.failures[key][0]}"
            rows.append(
                Row(
                    *key, metric, UNITS[metric], statistics.median(found), *quartiles(found),
                    len(found), "ok", why))
        for key, (state, why) in broken.items():
            metric = MAIN[key[0]]
            rows.append(Row(*key, metric, UNITS[metric], None, None, None, 0, state, why))
        places = {measure: place for place, measure in enumerate(cases.measures())}
        # They ran in random order.
        return sorted(
            rows, key=lambda row: places.get((row.group, row.case, row.parameter), len(places)))

    def ratios(self, goals: Sequence[Goal] = GOALS) -> List[Ratio]:
        """Of those goals of which something was to be run."""
        return [
            self._ratio(goal)
            for goal in goals
            if self._has(goal, goal.ours) and self._has(goal, goal.peer)
        ]

    def _has(self, goal: Goal, case: str) -> bool:
        return (goal.group, case, goal.parameter) in self.broken() or bool(self._values(goal, case))

    def _values(self, goal: Goal, case: str) -> Dict[Tuple[str, int], float]:
        """By pair and repeat."""
        wanted = goal.group, case, goal.parameter, goal.metric
        return {
            (run.pair, run.repeat): run.value
            for run in self.runs
            if (run.group, run.case, run.parameter, run.metric) == wanted
            and math.isfinite(run.value)
        }

    def _pairs(self, goal: Goal) -> Dict[int, Tuple[float, float]]:
        """By repeat: both sides, of the goal's own pair. A program that measures both sides at once
        runs in other pairs, too. Those runs are left out: how many there are depends on other
        goals."""
        ours, peer = (self._values(goal, case) for case in (goal.ours, goal.peer))
        own = min(
            (pair for pair, _ in ours if any(pair == other for other, _ in peer)),
            key=lambda pair: pair.count(" | "),
            default="",
        )
        return {
            repeat: (value, peer[own, repeat])
            for (pair, repeat), value in ours.items()
            if pair == own and peer.get((own, repeat))
        }

    def _ratio(self, goal: Goal) -> Ratio:
        fixed = (goal.name, goal.group, goal.ours, goal.peer, goal.parameter, goal.metric)
        sides, broken = (goal.ours, goal.peer), self.broken()
        for bad in ("failed", "skipped"):
            why = "; ".join(
                f"{case}: {broken[goal.group, case, goal.parameter][1]}"
                for case in sides
                if broken.get((goal.group, case, goal.parameter), ("",))[0] == bad)
            if why:
                return Ratio(*fixed, None, None, None, 0, goal.limit, bad, why)
        both = [ours / peer for ours, peer in self._pairs(goal).values()]
        if not both:
            return Ratio(
                *fixed, None, None, None, 0, goal.limit, "failed", "no repeat has both sides")
        within = interval(both, self.level)
        return Ratio(
            *fixed, statistics.median(both), *(within or (None, None)), len(both), goal.limit,
            verdict(goal, within), "" if within else f"{len(both)} repeats are too few")

    def write(self, folder: Path, machine: dict) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        for name, kind, lines in (
            ("results", Row, self.rows()),
            ("runs", Run, self.runs),
            ("ratios", Ratio, self.ratios()),
        ):
            with open(folder / f"{name}.csv", "w", newline="") as file:
                writer = csv.writer(file, lineterminator="\n")
                writer.writerow([field.name for field in fields(kind)])
                writer.writerows(
                    [_text(value) for value in asdict(line).values()] for line in lines)
        (folder / "machine.json").write_text(json.dumps(machine, indent=2) + "\n")


def _text(value: object) -> str:
    return "" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)
