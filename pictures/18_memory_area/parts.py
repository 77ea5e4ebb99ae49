# SPDX-License-Identifier: MIT
from drawing.picture import Picture


def draw() -> str:
    p = Picture(
        300,
        "The memory area of a worker",
        (
            "The area has a count of submissions, a queue of submissions, an answer for each slot,"
            " and the slots. The worker writes the slot, then the submission, then the count. The"
            " sender reads the count, then the submission, then the slot. It writes the response"
            " into the same slot, and then the answer. The worker sees the answer."))
    p.text(90, 22, "worker", style="bold", role="client", anchor="middle")
    p.text(400, 22, "the area, in both processes", style="bold", role="memory", anchor="middle")
    p.text(710, 22, "sender", style="bold", role="server", anchor="middle")
    p.box(10, 34, 160, 256, "client")
    p.box(220, 34, 360, 256, "memory")
    p.box(630, 34, 160, 256, "server")
    rows = [
        (48, "submitted", ["4"]),
        (102, "queue", ["0, 10", "1, 3", "2, 5", "3, 4"]),
        (156, "answers", ["-", "1, 3", "-", "-"]),
        (210, "slots", ["elde…", "FIG", "apple", "plum"]),
    ]
    for y, name, cells in rows:
        p.text(236, y + 26, name, style="bold")
        for i, cell in enumerate(cells):
            p.box(320 + i * 62, y, 58, 42, "plain")
            p.text(349 + i * 62, y + 26, cell, style="code", anchor="middle")
    p.text(90, 236, "1 writes the slot", anchor="middle")
    p.arrow(172, 231, 218, 231, "client")
    p.text(90, 128, "2 its submission", anchor="middle")
    p.arrow(172, 123, 218, 123, "client")
    p.text(90, 74, "3 then the count", anchor="middle")
    p.arrow(172, 69, 218, 69, "client")
    p.text(710, 74, "4 sees the count", anchor="middle")
    p.arrow(582, 69, 628, 69, "server")
    p.text(710, 128, "5 copies it", anchor="middle")
    p.arrow(582, 123, 628, 123, "server")
    p.text(710, 236, "6 reads, and responds", anchor="middle")
    p.arrow(628, 231, 582, 231, "server")
    p.text(710, 182, "7 then the answer", anchor="middle")
    p.arrow(628, 177, 582, 177, "server")
    p.text(90, 182, "8 sees the answer", anchor="middle")
    p.arrow(218, 177, 172, 177, "client")
    return p.svg()
