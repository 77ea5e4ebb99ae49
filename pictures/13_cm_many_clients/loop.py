# SPDX-License-Identifier: MIT
from drawing.picture import Picture


def draw() -> str:
    p = Picture(
        430,
        "The server: one thread, one place to sleep, and the clients in one place",
        (
            "epoll wakes the thread for connection events, for completions, for the timer and for"
            " signals. Each leads to the one client that it is about, by the id's context or by the"
            " queue pair's number. Each client owns its id, protection domain, regions and queue"
            " pair; the completion queue is everybody's."))
    p.box(10, 10, 250, 300, "server", "one thread")
    p.box(26, 44, 218, 40, "plain", "epoll: asleep")
    sources = [
        (104, "event channel", "take_cm_event"),
        (154, "completion channel", "ibv_get_cq_event"),
        (204, "timer", "the earliest deadline"),
        (254, "SIGTERM", "signalfd"),
    ]
    for y, what, by in sources:
        p.box(26, y, 218, 44, "nic" if y < 200 else "plain")
        p.text(38, y + 19, what, style="bold small")
        p.text(38, y + 36, by, style="code")
    p.box(420, 10, 370, 300, "plain", "clients, by the number of their queue pair")
    for number, (y, who) in enumerate(
        (
            (44, "one of ours: it works, we sleep"),
            (130, "rping: we READ and WRITE"),
            (216, "closed: waits for its flushed requests"),
        )
    ):
        p.box(436, y, 338, 76, "client", who)
        p.text(446, y + 42, "id, PD, 2 MRs, QP", style="code")
        p.text(446, y + 62, "deadline, number of posted requests", style="faint")
    p.arrow(244, 126, 436, 80, "nic", label="event->id->context", above=14)
    p.arrow(244, 176, 436, 168, "nic", label="wc.qp_num", above=4)
    p.arrow(244, 226, 436, 254, "plain", label="deadline", above=2)
    p.box(10, 330, 780, 86, "plain", "the way of a client")
    steps = [
        (26, "CONNECT_REQUEST", 150),
        (200, "accepted", 90),
        (314, "ESTABLISHED", 110),
        (448, "served", 80),
        (552, "closed: ERR, flush", 140),
        (716, "gone", 60),
    ]
    for (x, what, width), after in zip(steps, [*steps[1:], None]):
        p.box(x, 366, width, 32, "bad" if what.startswith("closed") else "nic")
        p.text(x + width / 2, 387, what, style="small", anchor="middle")
        if after:
            p.arrow(x + width, 382, after[0], 382)
    return p.svg()
