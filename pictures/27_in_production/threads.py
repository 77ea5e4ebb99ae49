# SPDX-License-Identifier: MIT
from drawing.picture import Picture


def draw() -> str:
    p = Picture(
        330,
        "Several threads at the sender and at the server",
        (
            "Three columns: four worker processes, a sender with two threads, and a server with two"
            " threads. Each thread of the sender has a board of its own and two of the workers, and"
            " one connection to the server. Each connection belongs to one thread of the server."
            " Both threads of the server give requests to one pool of handlers."))
    for x, name, role in ((10, "processes", "client"), (250, "the sender", "client"),
                          (520, "the server", "server")):
        p.text(x, 20, name, style="bold", role=role)
    for number, y in enumerate((34, 100, 174, 240)):
        p.box(10, y, 130, 50, "client", f"worker {number}", ("its own area",))
    for number, y in enumerate((62, 202)):
        p.box(250, y, 150, 60, "client", f"thread {number}", ("a board, a lane",))
        p.box(520, y, 130, 60, "server", f"thread {number}", ("a connection",))
        p.arrow(402, y + 30, 518, y + 30, "nic")
        p.text(460, y + 20, "a queue pair", anchor="middle", style="small")
        for worker in (0, 66):
            p.arrow(142, y - 3 + worker, 248, y + 18 + worker * 24 // 66, "client")
    p.box(690, 132, 100, 60, "server", "the pool", ("handlers",))
    p.arrow(652, 92, 712, 130, "server")
    p.arrow(652, 232, 712, 194, "server")
    p.text(
        10, 320,
        "A worker joins the thread that has the fewest. So does a connection at the server.",
        style="small faint")
    return p.svg()
