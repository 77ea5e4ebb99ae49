# SPDX-License-Identifier: MIT
"""What is printed at the end: each quotient with its goal, then what has no goal."""
from __future__ import annotations

from typing import Iterable, List

from bench.cases import MAIN
from bench.results import Ratio, Results

HEADS = ("row", "ours", "peer", "ratio", "interval", "goal", "")


def _figure(value: "float | None") -> str:
    return "" if value is None else f"{value:.0f}" if value >= 10_000 else f"{value:.4g}"


def _align(lines: Iterable[List[str]]) -> List[str]:
    lines = list(lines)
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    # Words to the left, figures to the right; the last column is of any length.
    return [
        "  ".join(
            cell.rjust(width) if 1 <= column <= 4 else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(line, widths))
        ).rstrip()
        for line in lines
    ]


def _goal_line(ratio: Ratio, medians: dict) -> List[str]:
    ours, peer = (
        medians.get((ratio.group, case, ratio.parameter, ratio.metric))
        for case in (ratio.ours, ratio.peer))
    name = f"{ratio.group} {ratio.parameter}: {ratio.name}" + (
        ", CPU" if ratio.metric.startswith("cpu") else "")
    return [
        name, _figure(ours), _figure(peer), _figure(ratio.ratio),
        f"{_figure(ratio.low)} to {_figure(ratio.high)}" if ratio.low is not None else "",
        ratio.limit, ratio.state + (f": {ratio.why}" if ratio.why else "")]


def table(results: Results) -> str:
    rows, ratios = results.rows(), results.ratios()
    medians = {(row.group, row.case, row.parameter, row.metric): row.median for row in rows}
    text = []
    if ratios:
        text += _align([list(HEADS)] + [_goal_line(ratio, medians) for ratio in ratios])
    with_goal = {
        (ratio.group, case, ratio.parameter)
        for ratio in ratios
        for case in (ratio.ours, ratio.peer)
    }
    others = [
        row
        for row in rows
        if row.metric == MAIN[row.group] and (row.group, row.case, row.parameter) not in with_goal
    ]
    if others:
        text += ["", "without a goal:"] if text else []
        text += _align(
            [
                f"{row.group} {row.parameter}: {row.case}", _figure(row.median),
                row.unit if row.median is not None else "", "", "", "",
                row.state + (f": {row.why}" if row.why else "")]
            for row in others)
    return "\n".join(text)
