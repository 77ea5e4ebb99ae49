# SPDX-License-Identifier: MIT
from drawing.picture import Picture

LEFT = (
    ("leave(), runs the handler", 0),
    ("the handler returns", 0),
    ("come_back(): true", 0),
    ("sends the answer", 0),
)
RIGHT = (
    ("leave(), runs the handler", 0),
    ("an event: takes the loop", 1),
    ("the handler returns", 0),
    ("come_back(): false", 0),
    ("sends the answer", 1),
    ("stands by", 0),
)
TOP, STEP, COLUMN = 92, 38, 190


def draw() -> str:
    p = Picture(
        TOP + STEP * len(RIGHT),
        "A handler runs in the thread that had the loop",
        (
            "Two threads, A and B, in two cases. Left: A leaves the loop and runs the handler; the"
            " handler returns before any event, so A comes back, has the loop, and sends the"
            " answer; B sleeps all the time. Right: an event comes while the handler runs, so B"
            " takes the loop. When the handler returns, A does not come back to the loop: B sends"
            " the answer, and A stands by."))
    for base, title, steps in (
        (10, "the handler returns first", LEFT),
        (430, "an event comes first", RIGHT),
    ):
        p.text(base, 20, title, style="bold")
        for column, name in enumerate(("thread A", "thread B")):
            role = "server" if column == 0 else "memory"
            p.box(base + column * COLUMN, 32, COLUMN - 14, TOP - 56 + STEP * len(RIGHT), role, name)
        for number, (text, column) in enumerate(steps):
            p.text(
                base + column * COLUMN + (COLUMN - 14) / 2, TOP + STEP * number, text,
                style="small", anchor="middle")
        if steps is LEFT:
            p.text(
                base + COLUMN + (COLUMN - 14) / 2, TOP + STEP, "sleeps", style="small",
                anchor="middle")
    return p.svg()
