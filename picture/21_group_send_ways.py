# SPDX-License-Identifier: MIT
from drawing.picture import Picture


def draw() -> str:
    p = Picture(
        326,
        "Three ways to send four slots",
        (
            "Separate: four calls, four requests, four receives, four completions at the server."
            " Chained: one call, and still four of everything else. Group: one call, one request,"
            " one receive, one completion."))
    ways = ((10, "separate", 4, 4), (278, "chained", 1, 4), (546, "group", 1, 1))
    for x, title, calls, requests in ways:
        p.text(x, 20, title, style="bold")
        p.text(x, 46, "calls", style="small faint")
        p.text(x + 84, 46, "requests", style="small faint")
        p.text(x + 176, 46, "slots", style="small faint")
        for i in range(calls):
            height = 4 * 40 - 8 if calls == 1 else 32
            p.box(x, 56 + 40 * i, 56, height, "client")
        for i in range(requests):
            height = 4 * 40 - 8 if requests == 1 else 32
            middle = 56 + 40 * i + height / 2
            p.box(x + 84, 56 + 40 * i, 64, height, "nic")
            p.arrow(x + 58, middle, x + 82, middle, "client")
            for y in [middle] if requests > 1 else [72 + 40 * slot for slot in range(4)]:
                p.arrow(x + 150, y, x + 174, y, "nic")
            if calls == 1 and requests == 4 and i < 3:
                p.arrow(x + 116, middle + 17, x + 116, middle + 23, "plain")
        for i in range(4):
            p.box(x + 176, 56 + 40 * i, 60, 32, "memory")
        for line, text in enumerate(
            (
                f"{calls} system call{'s' if calls > 1 else ''}",
                f"{requests} time{'s' if requests > 1 else ''} through the NIC",
                (
                    f"{requests} receive{'s' if requests > 1 else ''} and"
                    f" completion{'s' if requests > 1 else ''} there"))
        ):
            p.text(x, 244 + 20 * line, text, style="small")
    p.text(
        400,
        318,
        (
            "A system call for each post is what SoftRoCE needs; a NIC needs a doorbell instead."
            " The rest is the same."),
        style="faint small",
        anchor="middle")
    return p.svg()
