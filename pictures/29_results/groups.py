# SPDX-License-Identifier: MIT
from bench.measured import Measured, slots_words
from drawing.picture import Picture
from drawing.plot import footer, in_words, key, lines_of, missing, panel

CASES = (
    ("group", "server", "circle"),
    ("ib_write_bw", "server", "circle"),
    ("chained", "client", "square"),
    ("separate", "nic", "triangle"),
)


def draw(measured: Measured | None = None) -> str:
    measured = measured or Measured.published()
    rows = measured.of_metric("groups", "messages_per_s")
    across = {
        float(row.parameter): row.parameter
        for row in sorted(rows, key=lambda row: float(row.parameter))}
    lines = lines_of(rows, CASES)
    p = Picture(
        0,
        "Rate by group size",
        "A plot with logarithmic axes, medians, messages a second. "
        + "; ".join(in_words(line, slots_words) for line in lines)
        + ".")
    y = panel(p, 8, 260, "Messages a second", across, "slots in a group", lines)
    names = [name for name, _, _ in CASES]
    footer(p, y, [*missing(rows, names, slots_words), key(), measured.where()])
    return p.svg()
