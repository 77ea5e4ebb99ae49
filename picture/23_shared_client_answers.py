# SPDX-License-Identifier: MIT
from drawing.picture import Picture


def draw() -> str:
    p = Picture(
        230,
        "What becomes of an answer",
        (
            "The caller makes the word waiting before it publishes its request. The sender makes it"
            " answered when the answer comes. The caller reads the answer and gives the slots back."
            " A caller that gives up makes waiting unwanted, and then the sender gives the slots"
            " back when the answer comes."))
    p.box(10, 30, 130, 60, "client", "waiting", ("caller wants it",))
    p.box(310, 30, 150, 60, "memory", "answered", ("caller may read it",))
    p.box(670, 30, 120, 60, "plain", "slots free")
    p.box(310, 150, 150, 60, "bad", "unwanted", ("nobody collects",))
    p.arrow(142, 60, 308, 60, "server", label="it comes")
    p.arrow(462, 60, 668, 60, "client", label="read, and give back")
    p.arrow(75, 92, 308, 180, "client")
    p.text(20, 165, "dropped, posted,", style="small")
    p.text(20, 183, "or the caller is dead", style="small")
    p.arrow(462, 180, 730, 92, "server")
    p.text(520, 195, "it comes: the sender gives the slots back", style="small")
    return p.svg()
