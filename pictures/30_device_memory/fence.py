# SPDX-License-Identifier: MIT
from drawing.picture import Picture


def draw() -> str:
    p = Picture(
        330,
        "Fencing by the queue pair",
        (
            "Process 3 has lock 1 and loses its connection to the server. The server closes the"
            " queue pair of process 3 and only then sets the lock to 0. A worker takes the lock and"
            " counts. Process 3 wakes up and writes; its packet finds no queue pair, and nothing is"
            " written."))
    p.box(10, 10, 150, 310, "client", "process 3")
    p.box(325, 10, 150, 310, "server", "server")
    p.box(640, 10, 150, 310, "client", "a worker")
    p.arrow(162, 62, 323, 62, "client", label="takes lock 1")
    p.arrow(638, 82, 477, 82, "client", label="tries: it is 3's")
    p.arrow(162, 106, 323, 106, "plain", dashed=True, label="TCP: closed")
    p.text(85, 140, "asleep", anchor="middle", style="faint")
    p.text(400, 140, "1. closes its QP", anchor="middle", style="small")
    p.text(400, 162, "2. lock 1 becomes 0", anchor="middle", style="small")
    p.arrow(638, 196, 477, 196, "client", label="takes lock 1")
    p.arrow(638, 236, 477, 236, "client", label="counter; gives it back")
    p.text(85, 250, "wakes up", anchor="middle")
    p.arrow(162, 284, 323, 284, "bad", label="counter; gives it back")
    p.text(243, 306, "no such queue pair", anchor="middle", style="small", role="bad")
    return p.svg()
