# SPDX-License-Identifier: MIT
from drawing.picture import Picture


def panel(p: Picture, x: int, title: str, cured: bool) -> None:
    program, queue, right = x + 20, x + 215, x + 375
    p.text(x, 22, title, style="bold")
    p.box(program, 36, 110, 30, "server", "program")
    p.box(queue, 36, 110, 30, "nic", "CQ")
    at, cq = program + 55, queue + 55
    p.line(at, 66, at, 330, "server")
    p.line(cq, 66, cq, 330, "nic")
    p.arrow(at, 96, cq - 2, 96, "server", label="1. poll: empty")
    p.arrow(right, 140, cq + 2, 140, "nic", label="message")
    p.text(cq + 8, 160, "not armed:", style="small", role="bad")
    p.text(cq + 8, 176, "no event", style="small", role="bad")
    p.arrow(at, 204, cq - 2, 204, "server", label="2. arm")
    p.text(cq + 8, 208, "armed", style="small")
    if cured:
        p.arrow(cq, 248, at + 2, 248, "nic", label="3. poll again: 1")
        p.box(program - 10, 276, 150, 54, "server", "", ("goes on,", "with the message"))
    else:
        p.box(program - 10, 232, 150, 98, "bad", "sleeps", ("for an event that", "will not come"))
        p.text(cq + 8, 290, "1 completion", style="small")
        p.text(cq + 8, 306, "lies here", style="small")


def draw() -> str:
    p = Picture(
        345,
        "The missed event, and poll, arm, poll",
        (
            "Left: a program polls an empty completion queue; a message completes; the program arms"
            " the queue and sleeps. The completion came before the arming, so there is no event,"
            " and the program sleeps forever. Right: the same, but the program polls again after"
            " arming and finds the completion."))
    panel(p, 10, "Poll, arm, sleep: missed", False)
    panel(p, 415, "Poll, arm, poll: found", True)
    p.line(400, 10, 400, 335, dashed=True)
    return p.svg()
