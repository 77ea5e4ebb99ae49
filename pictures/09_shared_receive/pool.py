# SPDX-License-Identifier: MIT
from drawing.picture import Picture


def draw() -> str:
    p = Picture(
        372,
        "Many queue pairs, one receive pool",
        (
            "Four of the clients' queue pairs are connected to four of the server's. The server's"
            " have no receive queues: the message of each takes the next receive of the shared"
            " receive queue. The completion carries the number of the queue pair. When fewer"
            " receives are left than the limit, an asynchronous event wakes the server, which posts"
            " all free buffers again."))
    p.text(10, 20, "clients", style="bold", role="client")
    p.text(160, 20, "server", style="bold", role="server")
    for i in range(4):
        y = 32 + 40 * i
        p.box(10, y, 90, 30, "client")
        p.text(55, y + 20, f"QP {i}", anchor="middle")
        p.box(160, y, 90, 30, "server")
        p.text(205, y + 20, f"QP 0x{17 + i:x}", anchor="middle")
        p.arrow(100, y + 15, 160, y + 15, "nic")
        p.line(250, y + 15, 290, 107, "nic")
    p.text(160, 212, "no receive queues of their own", style="small")
    p.arrow(289, 107, 330, 107, "nic")
    p.text(330, 20, "shared receive queue (SRQ)", style="bold", role="memory")
    for i in range(7):
        role = "memory" if i < 5 else "plain"
        p.box(332 + 30 * i, 84, 26, 46, role)
        if i < 5:
            p.text(345 + 30 * i, 112, str((i + 4) % 8), anchor="middle")
    p.text(332, 74, "next", style="small")
    p.line(418, 136, 418, 156, "bad")
    p.text(424, 154, "limit: fewer than 3 left", style="small", role="bad")
    p.text(332, 176, "each receive: any client's message", style="small")
    p.box(600, 32, 190, 62, "nic", "completion", ["qp_num 0x13, wr_id 4"])
    p.arrow(545, 84, 598, 64, "nic")
    p.arrow(566, 150, 598, 168, "bad")
    p.text(600, 114, "qp_num: who has sent", style="small")
    p.text(600, 132, "wr_id: in which buffer it is", style="small")
    p.box(600, 150, 190, 44, "bad", "SRQ limit reached", [])
    p.text(600, 212, "asynchronous event, once", style="small")
    p.box(160, 240, 630, 118, "server", "the server sleeps until one of them comes, and then")
    for i, text in enumerate(
        (
            "1. takes the messages, and looks up by qp_num whose they are",
            "2. if the limit was reached: arms it again, and posts all free buffers",
            "3. answers; an answer carries credits, and whoever has one may send")
    ):
        p.text(176, 288 + 24 * i, text)
    return p.svg()
