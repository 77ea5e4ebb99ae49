# SPDX-License-Identifier: MIT
from bench.measured import Measured, size_words
from drawing.picture import Picture
from drawing.plot import footer, in_words, key, lines_of, missing, panel

PANELS = (
    (
        "One-sided, by polling: latency in µs",
        (
            ("write", "server", "circle"),
            ("ib_write_lat", "server", "circle"),
            ("read", "nic", "triangle"),
            ("ib_read_lat", "nic", "triangle"),
        )),
    (
        "Echo, by polling: latency in µs",
        (
            ("write_imm", "server", "circle"),
            ("send", "client", "square"),
            ("ib_send_lat", "client", "square"),
            ("ucx", "memory", "diamond"),
            ("libfabric_mean", "nic", "triangle"),
            ("rsockets_mean", "plain", "circle"),
        )),
    (
        "Echo, by events: latency in µs",
        (
            ("write_imm_events", "server", "circle"),
            ("send_events", "client", "square"),
            ("ib_send_lat -e", "client", "square"),
            ("tcp_mean", "plain", "diamond"),
        )))


def draw(measured: Measured | None = None) -> str:
    measured = measured or Measured.published()
    rows = measured.of_metric("latency", "latency_us")
    across = {
        float(row.parameter): size_words(row.parameter)
        for row in sorted(rows, key=lambda row: float(row.parameter))}
    p = Picture(0, "Latency by message size", "")
    notes, words, y = [], [], 8.0
    for title, cases in PANELS:
        lines = lines_of(rows, cases)
        y = panel(p, y, 190, title, across, "message size", lines)
        words += [f"{title}. " + "; ".join(in_words(line, size_words) for line in lines) + "."]
        notes += missing(rows, [case for case, _, _ in cases], size_words)
    p.description = (
        "Three plots with logarithmic axes, medians but where a mean is named. " + " ".join(words))
    footer(p, y, [*notes, key(), measured.where()])
    return p.svg()
