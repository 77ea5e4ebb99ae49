# SPDX-License-Identifier: MIT
from drawing.picture import Picture


def draw() -> str:
    p = Picture(
        330,
        "One run of requests, and one run of answers",
        (
            "Four callers of the client have put their requests into the slots 6 to 9 of `out`. One"
            " WRITE_WITH_IMM with the immediate data 6, 4 sends them into the slots 6 to 9 of the"
            " server's `in`. The server copies them, puts its answers into the slots 6 to 9 of its"
            " own `out`, and sends them by one WRITE_WITH_IMM in the same way."))
    p.text(10, 20, "client", style="bold", role="client")
    p.text(790, 20, "server", style="bold", role="server", anchor="end")
    callers = (12, 3, 40, 7)
    for x, role, names in ((110, "client", ("out", "in")), (560, "server", ("in", "out"))):
        for half, name in enumerate(names):
            y = 32 + half * 150
            p.box(x, y, 130, 138, role)
            p.text(x + 10, y + 20, name, style="bold")
            for i, caller in enumerate(callers):
                what = "answer" if half else "request"
                p.box(x + 10, y + 28 + i * 26, 110, 24, "memory")
                p.text(x + 16, y + 45 + i * 26, f"{6 + i}: {what}, id {caller}", style="small")
    for i, caller in enumerate(callers):
        y = 72 + i * 26
        p.text(10, y + 4, f"caller {caller}", style="small")
        p.arrow(72, y, 108, y, "memory")
    p.arrow(242, 110, 558, 110, "nic", label="one WRITE_WITH_IMM, immediate data 6 | 4")
    p.text(400, 130, "takes one receive of the server", style="small", anchor="middle")
    p.arrow(558, 260, 242, 260, "nic", label="one WRITE_WITH_IMM, immediate data 6 | 4")
    p.text(400, 280, "takes one receive of the client", style="small", anchor="middle")
    p.text(700, 110, "copy, check", style="small")
    p.text(700, 180, "answer", style="small")
    return p.svg()
