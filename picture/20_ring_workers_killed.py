# SPDX-License-Identifier: MIT
from drawing.picture import Picture

ROWS = (
    ("the victim has claimed four slots, another worker has published one", "wwwwrfff", ""),
    ("the victim is killed; the consumer waits at the first slot", "wwwwrfff", "next_"),
    ("its pidfd wakes the consumer, and reclaim() abandons the four slots", "aaaarfff", "next_"),
    ("take() passes over them, and takes the message behind them", "ffffsfff", ""),
)
ROLES = {"w": "client", "a": "bad", "r": "memory", "s": "server", "f": "plain"}
WORDS = {"w": "claimed", "a": "abandoned", "r": "ready", "s": "taken", "f": "free"}
LEFT, WIDTH, STEP = 14, 90, 84


def draw() -> str:
    p = Picture(
        20 + STEP * len(ROWS),
        "What becomes of the slots of a worker that was killed",
        (
            "Eight slots in four moments. First, four slots are claimed by the victim and one"
            " message behind them is ready. The victim is killed, and the consumer waits. Its pidfd"
            " wakes the consumer, which abandons the four slots. Then the consumer passes over them"
            " and takes the message behind them."))
    for number, (text, slots, mark) in enumerate(ROWS):
        y = 20 + STEP * number
        p.text(LEFT, y, f"{number + 1}. {text}", style="bold")
        for slot, what in enumerate(slots):
            p.box(LEFT + WIDTH * slot, y + 10, WIDTH - 4, 34, ROLES[what])
            p.text(
                LEFT + WIDTH * slot + (WIDTH - 4) / 2, y + 32, WORDS[what], style="small",
                anchor="middle")
        if mark:
            p.text(LEFT, y + 60, f"{mark} stands here", style="small")
    return p.svg()
