# SPDX-License-Identifier: MIT
from drawing.picture import Picture


def draw() -> str:
    p = Picture(
        300,
        "Two clients count",
        (
            "Left: both clients READ 7, then both WRITE 8; one increment is lost. Right: both send"
            " FETCH_ADD 1; the server's NIC executes one after the other, and the word becomes 8,"
            " then 9."))
    for x, title in ((10, "READ, then WRITE"), (420, "FETCH_ADD")):
        p.text(x, 20, title, style="bold")
        p.box(x, 32, 80, 256, "client", "client 1")
        p.box(x + 290, 32, 80, 256, "client", "client 2")
        p.box(x + 150, 32, 70, 256, "memory", "word")
    for y, value in ((85, "7"), (205, "8"), (260, "8")):
        p.text(195, y, value, style="code bold", anchor="middle")
    p.arrow(160, 95, 92, 95, "nic", label="7")
    p.arrow(230, 120, 298, 120, "nic", label="7")
    p.arrow(92, 190, 158, 190, "nic", label="8")
    p.arrow(298, 245, 232, 245, "bad", label="8")
    p.text(50, 150, "7 + 1", anchor="middle")
    p.text(340, 175, "7 + 1", anchor="middle")
    for y, value in ((85, "7"), (150, "8"), (240, "9")):
        p.text(605, y, value, style="code bold", anchor="middle")
    p.arrow(502, 110, 568, 130, "nic", label="+1")
    p.arrow(568, 160, 502, 180, "nic", label="was 7")
    p.arrow(708, 200, 642, 220, "nic", label="+1")
    p.arrow(642, 250, 708, 270, "nic", label="was 8")
    return p.svg()
