# SPDX-License-Identifier: MIT
from drawing.picture import Picture

# Zone, what each of its slots is, its colour. An edge is neat only where one number says where it
# is: next_ and head.
COLOURS = {"f": "plain", "a": "server", "s": "nic", "r": "memory", "w": "client"}
ZONES = (
    ("free", "fff", "plain"),
    ("answered", "afaas", "server"),
    ("sent", "sas", "nic"),
    ("ready", "rrwr", "memory"),
    ("being written", "wrw", "client"),
    ("free", "ffff", "plain"),
)
EDGES = (
    ("give back", "the reader of the answer:", "slot by slot, in any order"),
    ("answer", "the peer: run by run,", "in any order"),
    ("take", "the consumer moves next_:", "only over what is ready"),
    ("publish", "each worker: its own", "slots, in any order"),
    ("claim", "any worker moves head,", "by one instruction"),
)
LEFT, WIDTH = 14, 35


def draw() -> str:
    p = Picture(
        256,
        "The zones of a ring of slots, and who moves each edge",
        (
            "From the oldest position to the newest: free slots, answered, sent, ready, being"
            " written, and free again. Two edges are each one number: the consumer moves next_,"
            " between sent and ready, and workers move head, between being written and free. At the"
            " three others each slot goes over by itself: the reader of an answer gives its slots"
            " back, the peer answers, and workers publish, all in any order."))
    p.text(
        LEFT, 18, "positions grow to the right; after the ring's last slot comes its first",
        style="faint")
    x = LEFT
    for number, (name, slots, role) in enumerate(ZONES):
        for slot, what in enumerate(slots):
            p.box(x + WIDTH * slot, 60, WIDTH - 3, 48, COLOURS[what])
        p.text(
            x + (WIDTH * len(slots) - 3) / 2, 50, name, style="bold", anchor="middle",
            role="" if role == "plain" else role)
        x += WIDTH * len(slots)
        if number < len(EDGES):
            what, who, how = EDGES[number]
            is_number, low = what in ("take", "claim"), 50 if number % 2 else 0
            p.arrow(x - 1.5, 140 + low, x - 1.5, 112, "plain", dashed=not is_number)
            for line, (text, style) in enumerate(
                ((what, "bold halo"), (who, "small halo"), (how, "small halo"))
            ):
                p.text(x - 1.5, 156 + low + 15 * line, text, style=style, anchor="middle")
    return p.svg()
