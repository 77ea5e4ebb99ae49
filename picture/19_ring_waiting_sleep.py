# SPDX-License-Identifier: MIT
from drawing.picture import Picture


def draw() -> str:
    p = Picture(
        330,
        "The sleep race",
        (
            "Left: the worker looks whether the consumer sleeps and then publishes; the consumer"
            " looks for a message and says that it sleeps in between; nobody rings. Right: both"
            " first say what they do and then look; whichever order the four steps have, one of the"
            " two sees the other."))
    for x, title in ((10, "look, then say"), (420, "say, then look")):
        p.text(x, 20, title, style="bold")
        p.box(x, 32, 170, 288, "client", "worker")
        p.box(x + 200, 32, 170, 288, "server", "consumer")
    left = [
        (90, 0, "is it awake? yes"),
        (130, 1, "anything ready? no"),
        (170, 1, "awaited = 7"),
        (210, 0, "slot 7: ready"),
        (250, 0, "no need to ring"),
        (290, 1, "sleeps forever"),
    ]
    right = [
        (90, 1, "awaited = 7"),
        (130, 0, "slot 7: ready"),
        (170, 0, "awaited? it is 7"),
        (210, 1, "slot 7 ready? yes"),
        (250, 0, "rings"),
        (290, 1, "does not sleep"),
    ]
    for base, steps in ((10, left), (420, right)):
        for number, (y, side, text) in enumerate(steps):
            bad = base == 10 and number >= 4
            p.text(base + 200 * side + 85, y, text, anchor="middle", role="bad" if bad else "")
    return p.svg()
