# SPDX-License-Identifier: MIT
from drawing.picture import Picture

LEFT, MIDDLE, RIGHT = 20, 330, 690


def draw() -> str:
    p = Picture(
        430,
        "Two queues for READs and two for WRITEs, between the pages here and the server's memory",
        (
            "On the left a thread in a page fault, which polls, and the worker that frees memory,"
            " which goes on. In the middle four queues: the two for READs have a completion queue"
            " that the waiting thread polls, the two for WRITEs one whose callbacks run in a"
            " softirq. On the right the server's memory, one region, which all four queues reach by"
            " one key."),
        width=900)
    p.box(
        LEFT,
        60,
        220,
        96,
        "client",
        "a page fault",
        ("posts a READ, and polls", "until the page is here"),
    )
    p.box(
        LEFT,
        250,
        220,
        96,
        "client",
        "memory is short",
        ("posts WRITEs of many", "pages, and goes on"),
    )
    reads, writes = ("READs", "polled by the thread", "IB_POLL_DIRECT"), (
        "WRITEs", "callback in a softirq", "IB_POLL_SOFTIRQ")
    for number, (y, (what, how, context)) in enumerate(
        ((40, reads), (125, reads), (230, writes), (315, writes))
    ):
        p.box(MIDDLE, y, 230, 70, "nic", f"queue {number}, for {what}", (context, how))
        p.arrow(LEFT + 220, 108 if number < 2 else 298, MIDDLE - 4, y + 35, "client")
        if number < 2:
            p.arrow(RIGHT - 4, 180, MIDDLE + 234, y + 35, "memory")
        else:
            p.arrow(MIDDLE + 234, y + 35, RIGHT - 4, 240, "memory")
    p.box(
        RIGHT,
        90,
        190,
        240,
        "memory",
        "the server's memory",
        ("one region,", "one PD, one key", "for all queues"),
    )
    p.text(
        450,
        415,
        (
            "A READ waits behind no WRITE. Completed WRITEs free their request, and wake a thread"
            " that wants the page back."),
        style="faint",
        anchor="middle")
    return p.svg()
