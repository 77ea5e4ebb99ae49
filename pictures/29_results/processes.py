# SPDX-License-Identifier: MIT
from bench.measured import Measured, in_flight_words, load_words, processes_of
from drawing.picture import Picture
from drawing.plot import footer, in_words, key, lines_of, missing, panel

CASES = (
    ("shared", "server", "circle"),
    ("shared_no_groups", "memory", "diamond"),
    ("own", "client", "square"),
    ("tcp", "plain", "triangle"),
)


def draw(measured: Measured | None = None) -> str:
    measured = measured or Measured.published()
    rows = [
        row
        for row in measured.of_metric("requests", "us_per_request")
        if row.case in {case for case, _, _ in CASES}
    ]
    p = Picture(0, "Time for a request by number of processes", "")
    words, y = [], 8.0
    for in_flight in sorted({processes_of(row.parameter)[1] for row in rows}):
        these = [row for row in rows if processes_of(row.parameter)[1] == in_flight]
        numbers = sorted({processes_of(row.parameter)[0] for row in these})
        lines = lines_of(these, CASES, lambda row: processes_of(row.parameter)[0])
        y = panel(
            p,
            y,
            190,
            (
                f"Each process with {in_flight_words(in_flight)}: µs for a request, all processes"
                " together"),
            {number: str(number) for number in numbers},
            "processes",
            lines)
        words += ["; ".join(in_words(line, load_words) for line in lines) + "."]
    p.description = "Plots with logarithmic axes, medians, µs for a request. " + " ".join(words)
    names = [name for name, _, _ in CASES]
    footer(p, y, [*missing(rows, names, load_words), key(), measured.where()])
    return p.svg()
