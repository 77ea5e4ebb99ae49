# SPDX-License-Identifier: MIT
from drawing.picture import Picture


def draw() -> str:
    p = Picture(
        420,
        "Requests in groups, answers in other groups",
        (
            "Requests in slots 20 to 27 go in two runs, as they were ready: 20 to 23 and 24 to 27."
            " The handlers end in another order. The answers to 20, 23, 24 and 25 are ready first:"
            " 20 goes alone, 23 to 25 in one run over the border of the two groups. The slow ones,"
            " 21 and 22 and 26 and 27, follow. Each answer goes to its request's slots."))
    p.text(10, 20, "client", style="bold", role="client")
    p.text(790, 20, "server", style="bold", role="server", anchor="end")
    messages = ((0, 1, "A"), (1, 2, "B"), (3, 1, "C"), (4, 1, "D"), (5, 1, "E"), (6, 2, "F"))
    x0, step = 150, 64

    def row(y, role, shown, fill):
        for slot in range(8):
            p.text(
                x0 + step * slot + 30, y - 6, str(20 + slot), style="small faint", anchor="middle")
        for first, count, name in messages:
            it = name in shown
            p.box(x0 + step * first, y, step * count - 4, 30, fill if it else "plain")
            if it:
                p.text(
                    x0 + step * first + (step * count - 4) / 2, y + 20, name + role,
                    anchor="middle", style="small bold")

    p.text(10, 66, "ring: requests", style="bold small")
    row(46, "", "ABCDEF", "client")
    for first, count, text in ((0, 4, "20 | 4"), (4, 4, "24 | 4")):
        x, width = x0 + step * first, step * count - 4
        p.line(x + 2, 84, x + width - 2, 84, "nic")
        p.arrow(x + width / 2, 84, x + width / 2, 124, "nic")
        p.text(x + width / 2 + 10, 110, f"one WRITE, immediate {text}", style="small")
    p.text(10, 166, "server's mirror", style="bold small")
    row(146, "", "ABCDEF", "server")
    p.text(10, 204, "pool: A, C, D, E are done; B and F take longer", style="small")
    p.text(10, 246, "answers, sorted", style="bold small")
    row(226, "'", "ACDE", "server")
    for first, count, text in ((0, 1, "20 | 1"), (3, 3, "23 | 3")):
        x, width = x0 + step * first, step * count - 4
        p.line(x + 2, 264, x + width - 2, 264, "nic")
        p.arrow(x + width / 2, 264, x + width / 2, 304, "nic")
        p.text(x + width / 2 + 10, 290, text, style="small")
    p.text(10, 346, "client's answers", style="bold small")
    row(326, "'", "ACDE", "memory")
    p.text(
        10,
        384,
        (
            "C', D' and E' come with one WRITE, though their requests went with two. B' goes as 21"
            " | 2, F' as 26 | 2, when they are done."),
        style="small")
    p.text(
        10, 406,
        "The slots of A, C, D and E go back to the ring when their callers have read the answers.",
        style="small faint")
    return p.svg()
