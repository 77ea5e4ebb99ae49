# SPDX-License-Identifier: MIT
"""The published measurements as tables in Markdown, for `<!-- table NAME -->` in a lesson."""
from __future__ import annotations

import json

from bench.measured import (
    Measured, Row, figure, in_flight_words, name_of, processes_of, size_words, slots_words)
from lab.paths import ROOT

METRICS = {
    "latency_us": "latency",
    "messages_per_s": "rate",
    "us_per_request": "time",
    "cpu_us_per_request": "CPU time",
}
COUNTERS = {
    "posts": "posts",
    "completions": "completions",
    "wakes": "wakes",
    "system_calls": "system calls",
}
PERCENTILES = {"request_median_us": "median", "request_p99_us": "99th percentile"}
NOTHING = "the published run has not measured this"


def table(head: list[str], rows: list[list[str]]) -> list[str]:
    """Words in the first column, figures in the others."""
    return [
        "", f"| {' | '.join(head)} |", "|---" + "|---:" * (len(head) - 1) + "|",
        *(f"| {' | '.join(row)} |" for row in rows), ""]


def named(case: str) -> str:
    return f"`{name_of(case)}`" if case.startswith("ib_") else name_of(case)


def cell(row: Row | None) -> str:
    return "–" if row is None else figure(row.median) if row.is_ok else row.state


def by_parameter(rows: list[Row], first: str, words, order) -> list[str]:
    """A row for each case, a column for each parameter."""
    if not rows:
        raise ValueError(NOTHING)
    found = {(row.case, row.parameter): row for row in rows}
    parameters = sorted({row.parameter for row in rows}, key=order)
    return table(
        [first, *(words(parameter) for parameter in parameters)],
        [
            [named(case), *(cell(found.get((case, parameter))) for parameter in parameters)]
            for case in dict.fromkeys(row.case for row in rows)])


def load(parameter: str) -> str:
    return "{} × {}".format(*processes_of(parameter))


def by_load(parameter: str) -> tuple[int, ...]:
    return processes_of(parameter)[::-1]


def timetable(measured: Measured) -> list[str]:
    found = {
        (row.case, row.parameter, metric): row
        for metric in PERCENTILES
        for row in measured.of_metric("timetable", metric)
    }
    if not found:
        raise ValueError(NOTHING)
    columns = [
        (percent, metric)
        for percent in sorted({percent for _, percent, _ in found}, key=int)
        for metric in PERCENTILES
    ]
    return table(
        [
            "µs until the response, at this part of the highest rate",
            *(f"{percent} %, {PERCENTILES[metric]}" for percent, metric in columns)],
        [
            [named(case), *(cell(found.get((case, *column))) for column in columns)]
            for case in dict.fromkeys(case for case, *_ in found)])


def counters(measured: Measured) -> list[str]:
    """With as many processes as there were at most."""
    rows = [
        row for name in COUNTERS for row in measured.of_metric("requests", f"{name}_per_request")]
    most = max((processes_of(row.parameter)[0] for row in rows), default=0)
    found = {(row.case, row.parameter, row.metric): row for row in rows}
    loads = sorted(
        {row.parameter for row in rows if processes_of(row.parameter)[0] == most}, key=processes_of)
    lines = [
        [
            f"{named(case)}, {in_flight_words(processes_of(parameter)[1])}",
            *(cell(found.get((case, parameter, f"{name}_per_request"))) for name in COUNTERS)]
        for parameter in loads
        for case in dict.fromkeys(row.case for row in rows)
        if any((case, parameter, f"{name}_per_request") in found for name in COUNTERS)
    ]
    if not lines:
        raise ValueError(NOTHING)
    return table([f"{most} processes, for a request", *COUNTERS.values()], lines)


def ratio(words: str) -> str:
    """So that 1.034 does not look like a goal of 1.03 that is met."""
    if not words:
        return "–"
    return f"{float(words):.3f}" if float(words) < 2 else figure(float(words))


def limit(words: str) -> str:
    return words.replace("<=", "≤").replace(">=", "≥") or "–"


def condition(line: dict[str, str]) -> str:
    parameter = line["parameter"]
    if line["group"] == "requests":
        return load(parameter)
    return slots_words(parameter) if line["group"] == "groups" else size_words(parameter)


def goals(measured: Measured) -> list[str]:
    lines = [
        [
            f"{named(line['ours'])} / {named(line['peer'])}",
            METRICS.get(line["metric"], line["metric"]) or "–",
            condition(line) if line["parameter"] else "–", ratio(line["ratio"]),
            f"{ratio(line['low'])}–{ratio(line['high'])}" if line["low"] and line["high"] else "–",
            limit(line["limit"]), line["state"]]
        for line in measured.ratios]
    head = ["compared", "by", "at", "ratio", "its interval", "goal", "result"]
    return [
        "", f"| {' | '.join(head)} |", "|---|---|---|---:|---:|---:|---|",
        *(f"| {' | '.join(line)} |" for line in lines), ""]


def machine(measured: Measured) -> list[str]:
    m = measured.machine
    versions = "; ".join(f"{name} {version}" for name, version in m["versions"].items() if version)
    return [
        "",
        f"Measured on: {measured.where()}"
        + (f"; {versions}" if versions else "")
        + f"; commit {(m['commit'] or 'unknown')[:12]}.",
        "",
    ]


def system_calls(measured: Measured) -> list[str]:
    """What tests/counts has counted, which no run of the benchmark changes."""
    counted = json.loads((ROOT / "tests/counts/whole_programs.json").read_text())["bookworm x86_64"]
    return table(
        ["system calls for a request or message", "client's processes", "server"],
        [
            [
                name.replace(" x ", " × "),
                *(f"{counts[f'{side}: system calls']:.3g}" for side in ("client", "server"))]
            for name, counts in counted.items()
            if "client: system calls" in counts
        ])


TABLES = {
    "latency": lambda it: by_parameter(
        it.of_metric("latency", "latency_us"), "latency in µs, median", size_words, int),
    "p99": lambda it: by_parameter(
        it.of_metric("latency", "p99_us"), "latency in µs, 99th percentile", size_words, int),
    "rate": lambda it: by_parameter(
        it.of_metric("rate", "messages_per_s"), "messages a second", size_words, int),
    "groups": lambda it: by_parameter(
        it.of_metric("groups", "messages_per_s"), "messages a second, by slots in a group", str, int
    ),
    "requests": lambda it: by_parameter(
        it.of_metric("requests", "us_per_request"), "µs for a request, by processes × in flight",
        load, by_load),
    "cpu": lambda it: by_parameter(
        it.of_metric("requests", "cpu_us_per_request"),
        "µs of CPU for a request, by processes × in flight", load, by_load),
    "request": lambda it: by_parameter(
        it.of_metric("requests", "request_median_us"),
        "µs until the response, median, by processes × in flight", load, by_load),
    "request_p99": lambda it: by_parameter(
        it.of_metric("requests", "request_p99_us"),
        "µs until the response, 99th percentile, by processes × in flight", load, by_load),
    "timetable": timetable,
    "counters": counters,
    "system-calls": system_calls,
    "goals": goals,
    "machine": machine,
}


def make(name: str) -> list[str]:
    """@raises LabError if nothing has been published, KeyError if there is no such table"""
    return TABLES[name](Measured.published())
