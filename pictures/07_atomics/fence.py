# SPDX-License-Identifier: MIT
from drawing.picture import Picture


def draw() -> str:
    p = Picture(
        318,
        "Fencing",
        (
            "Holder 2 marks the value with 2 and falls asleep. Holder 3 takes the lock after the"
            " lease, marks the value with 3 and changes it from 0 to 1. Holder 2 wakes up and tries"
            " to replace 2, 0 by 2, 1; the word is 3, 1, so nothing is written."))
    p.box(10, 10, 150, 298, "client", "holder 2")
    p.box(640, 10, 150, 298, "client", "holder 3")
    p.box(325, 10, 150, 298, "memory", "value", ("mark | number",))
    for y, mark, number in ((90, 2, 0), (160, 3, 0), (210, 3, 1), (285, 3, 1)):
        p.text(400, y, f"{mark} | {number}", style="code", anchor="middle")
    p.arrow(162, 84, 323, 84, "nic", label="marks it")
    p.text(85, 130, "asleep", anchor="middle", style="faint")
    p.text(85, 160, "…", anchor="middle", style="faint")
    p.arrow(638, 154, 477, 154, "nic", label="marks it")
    p.arrow(638, 204, 477, 204, "nic", label="3 | 0 becomes 3 | 1")
    p.text(85, 248, "wakes up", anchor="middle")
    p.arrow(162, 280, 323, 280, "bad", label="2 | 0 becomes 2 | 1")
    p.text(243, 300, "refused: it is 3 | 1", anchor="middle", style="small")
    return p.svg()
