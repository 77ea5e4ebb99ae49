# SPDX-License-Identifier: MIT
from drawing.picture import Picture


def draw() -> str:
    p = Picture(
        300,
        "States of a slot",
        (
            "Free becomes claimed when a worker claims it, ready when the worker publishes, and"
            " free in the next lap when the consumer gives it back. Ready becomes passed when the"
            " ring comes round to it in the next lap and it has not been given back: it is passed"
            " in each lap until then, and free in the lap after that. Claimed becomes abandoned"
            " when the worker drops the claim or dies; the consumer passes over it and makes it"
            " free in the next lap. Free slots that are too few, before the ring's end or between"
            " two messages, become abandoned at once."))
    p.box(10, 30, 130, 60, "plain", "free", ("lap n",))
    p.box(235, 30, 150, 60, "client", "claimed", ("worker w, lap n",))
    p.box(470, 30, 130, 60, "memory", "ready", ("of w, lap n",))
    p.box(675, 30, 120, 60, "plain", "free", ("lap n + 1",))
    p.box(470, 130, 130, 60, "memory", "passed", ("of w, lap n + k",))
    p.box(675, 130, 120, 60, "plain", "free", ("lap n + k + 1",))
    p.box(470, 230, 130, 60, "bad", "abandoned", ("lap n",))
    p.box(675, 230, 120, 60, "plain", "free", ("lap n + 1",))
    p.arrow(142, 60, 233, 60, "client", label="claim")
    p.arrow(387, 60, 468, 60, "client", label="publish")
    p.arrow(602, 60, 673, 60, "server", label="give back")
    p.arrow(535, 92, 535, 128, "client")
    p.text(545, 115, "held when the ring comes round")
    p.arrow(602, 160, 673, 160, "server", label="give back")
    p.arrow(330, 92, 468, 240, "bad")
    p.text(333, 118, "dropped, or its", anchor="end")
    p.text(343, 136, "worker is dead", anchor="end")
    p.arrow(75, 92, 468, 275, "bad")
    p.text(20, 230, "too few before the ring's end,")
    p.text(20, 248, "or between two messages")
    p.arrow(602, 260, 673, 260, "server", label="pass over")
    return p.svg()
