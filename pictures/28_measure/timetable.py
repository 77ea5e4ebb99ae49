# SPDX-License-Identifier: MIT
"""Lesson 28: what a closed loop and a timetable see of the same stall."""
from drawing.picture import Picture

# pixels for a unit of time; from when to when the server stands still
LEFT, SCALE, STALL = 150, 6.0, (18, 66)
EVERY, TOOK = 6, 2


def begins_in_loop():
    now = 0
    while now < 96:
        ends = STALL[1] + TOOK if now < STALL[1] and now + TOOK > STALL[0] else now + TOOK
        yield now, ends
        now = ends + 0.6


def begins_by_timetable():
    free = 0
    for due in range(0, 96, EVERY):
        begin = max(due, free)
        ends = STALL[1] + TOOK if begin < STALL[1] and begin + TOOK > STALL[0] else begin + TOOK
        free = ends
        yield due, begin, ends


def draw() -> str:
    p = Picture(
        372,
        "A stall, seen by a closed loop and by a timetable",
        (
            "In a closed loop the client sends its next request when the last one is answered, so"
            " that a stall of the server makes one long round, and all others are short. By a"
            " timetable requests are due all the time, and each that is due during the stall, or"
            " while what has piled up is worked off, waits."))

    def x(time: float) -> float:
        return LEFT + SCALE * time

    p.under(
        f'<rect class="b-bad" x="{x(STALL[0]):.1f}" y="30"'
        f' width="{SCALE * (STALL[1] - STALL[0]):.1f}" height="330" opacity=".45" stroke="none"/>')
    p.text(x(sum(STALL) / 2), 22, "the server stands still", anchor="middle", role="bad")

    def round_of(begin: float, end: float, y: float, height: float) -> None:
        p.parts.append(
            f'<rect class="box b-client" x="{x(begin):.1f}" y="{y}"'
            f' width="{SCALE * (end - begin):.1f}" height="{height}" rx="2"/>')

    p.text(10, 62, "closed loop", style="bold")
    p.text(10, 80, "one long round", style="small faint")
    for begin, end in begins_in_loop():
        round_of(begin, end, 50, 22)
    p.text(10, 122, "timetable", style="bold")
    for number, line in enumerate(
        (
            "due every 6 units:", "a dot is when it is due,", "a box is its round,",
            "the line between: waiting")
    ):
        p.text(10, 140 + 17 * number, line, style="small faint")
    for number, (due, begin, end) in enumerate(begins_by_timetable()):
        y = 106 + 15 * number
        if begin > due:
            p.line(round(x(due), 1), y + 6, round(x(begin), 1), y + 6, role="bad")
        round_of(begin, end, y, 12)
        p.parts.append(f'<circle class="t-client" cx="{x(due):.1f}" cy="{y + 6}" r="3"/>')
    return p.svg()
