# SPDX-License-Identifier: MIT
from bench.measured import Measured, figure, in_flight_words, load_words, name_of, processes_of
from drawing.picture import Picture
from drawing.plot import bars, footer, key, missing

CASES = (
    ("shared", "server", ""),
    ("shared_no_groups", "memory", ""),
    ("own", "client", ""),
    ("tcp", "plain", ""),
)
WIDTH = 385


def draw(measured: Measured | None = None) -> str:
    measured = measured or Measured.published()
    rows = [
        row
        for row in measured.of_metric("requests", "cpu_us_per_request")
        if row.case in {case for case, _, _ in CASES}
    ]
    p = Picture(
        0,
        "CPU time for a request",
        "Bars, medians, µs of CPU time for a request. "
        + "; ".join(
            f"{name_of(row.case)} with {load_words(row.parameter)}: {figure(row.median)}"
            for row in rows
            if row.is_ok)
        + ".")
    p.text(10, 22, "CPU time for a request in µs, all programs together", style="bold")
    top = bottom = 32.0
    for number, in_flight in enumerate(sorted({processes_of(row.parameter)[1] for row in rows})):
        these = [row for row in rows if processes_of(row.parameter)[1] == in_flight]
        places = {
            row.parameter: load_words(row.parameter).split(",")[0]
            for row in sorted(these, key=lambda row: processes_of(row.parameter))}
        if number % 2 == 0:
            top = bottom
        end = bars(
            p, 10 + 400 * (number % 2), top, WIDTH, in_flight_words(in_flight).capitalize(), these,
            CASES, places)
        bottom = max(bottom, end)
    footer(
        p,
        bottom,
        [
            *missing(rows, [case for case, _, _ in CASES], load_words),
            "Each column has a scale of its own. " + key("bars"), measured.where()])
    return p.svg()
