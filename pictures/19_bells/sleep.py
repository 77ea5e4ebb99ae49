# SPDX-License-Identifier: MIT
from drawing.picture import Picture


def draw() -> str:
    p = Picture(
        330,
        "The sleep race",
        (
            "Left: the worker looks for its answer, and then says that it sleeps. In between, the"
            " sender answers and looks whether the worker sleeps. So the sender does not ring."
            " Right: both first say what they do, and then look. In each order of the four steps,"
            " one of the two sees what the other has said."))
    for x, title in ((10, "look, then say"), (420, "say, then look")):
        p.text(x, 20, title, style="bold")
        p.box(x, 32, 170, 288, "client", "worker")
        p.box(x + 200, 32, 170, 288, "server", "sender")
    left = [
        (90, 0, "an answer? no"),
        (130, 1, "the answer is there"),
        (170, 1, "does it sleep? no"),
        (210, 0, "sleeps = 1"),
        (250, 1, "no need to ring"),
        (290, 0, "sleeps forever"),
    ]
    right = [
        (90, 0, "sleeps = 1"),
        (130, 1, "the answer is there"),
        (170, 1, "does it sleep? yes"),
        (210, 0, "an answer? yes"),
        (250, 1, "rings"),
        (290, 0, "does not sleep"),
    ]
    for base, steps in ((10, left), (420, right)):
        for number, (y, side, text) in enumerate(steps):
            bad = base == 10 and number >= 4
            p.text(base + 200 * side + 85, y, text, anchor="middle", role="bad" if bad else "")
    return p.svg()
