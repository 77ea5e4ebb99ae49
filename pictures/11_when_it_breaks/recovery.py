# SPDX-License-Identifier: MIT
from drawing.picture import Picture


def draw() -> str:
    p = Picture(
        230,
        "How a queue pair recovers",
        (
            "RESET, INIT, RTR and RTS follow each other. A failure leads from RTS to ERR. From any"
            " state RESET is reached; the completion queue is emptied there, receives are posted in"
            " INIT, and both sides exchange new PSNs before RTR."))
    for x, name in ((20, "RESET"), (220, "INIT"), (420, "RTR"), (620, "RTS")):
        p.box(x, 60, 110, 40, "nic")
        p.text(x + 55, 86, name, style="bold", anchor="middle")
    for x, what in ((130, "1"), (330, "2"), (530, "3")):
        p.arrow(x + 2, 80, x + 88, 80, "nic")
    p.box(620, 160, 110, 40, "bad")
    p.text(675, 186, "ERR", style="bold", anchor="middle")
    p.arrow(675, 102, 675, 158, "bad")
    p.text(690, 135, "a failure")
    p.arrow(618, 180, 77, 104, "plain", label="")
    p.text(330, 168, "back, on both sides", style="halo", anchor="middle")
    p.text(75, 30, "empty the CQ", style="small", anchor="middle")
    p.text(75, 48, "of what is old", style="small", anchor="middle")
    p.text(275, 30, "post the receives,", style="small", anchor="middle")
    p.text(275, 48, "exchange new PSNs", style="small", anchor="middle")
    return p.svg()
