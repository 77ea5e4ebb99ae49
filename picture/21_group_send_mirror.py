# SPDX-License-Identifier: MIT
from drawing.picture import Picture


def draw() -> str:
    p = Picture(
        372,
        "A ring, its mirror, and a group",
        (
            "Three processes have put messages into the client's ring: slots 20 to 27 are ready."
            " One WRITE_WITH_IMM carries them into the same slots of the server's mirror; its"
            " immediate data say first slot 20, eight slots. The server gives them back by a"
            " WRITE_WITH_IMM of no bytes with the same immediate data."))
    p.text(10, 20, "client: the ring", style="bold", role="client")
    p.text(790, 20, "server: the mirror", style="bold", role="server", anchor="end")
    messages = (
        (0, 3, "process 1"),
        (3, 1, "process 3"),
        (4, 2, "process 2"),
        (6, 1, "process 3"),
        (7, 1, "process 1"),
    )
    for x, role in ((120, "client"), (540, "server")):
        p.box(x, 32, 140, 330, role)
        for slot in range(10):
            y = 40 + 32 * slot
            p.text(
                x - 8 if role == "client" else x + 148, y + 18, f"slot {19 + slot}",
                style="small faint", anchor="end" if role == "client" else "start")
            if slot in (0, 9):
                p.box(x + 8, y, 124, 26, "plain")
                p.text(x + 70, y + 18, "free", style="small faint", anchor="middle")
        for first, count, whose in messages:
            y = 72 + 32 * first
            p.box(x + 8, y, 124, 32 * count - 6, "memory")
            p.text(x + 70, y + 16 * count + 2, whose, style="small", anchor="middle")
    p.arrow(262, 130, 538, 130, "nic", label="one request: RDMA WRITE_WITH_IMM")
    p.text(400, 152, "8 slots, to the same place there", style="small", anchor="middle")
    p.box(310, 166, 130, 28, "memory", "", ())
    p.box(440, 166, 50, 28, "nic", "", ())
    p.text(375, 185, "20", style="code", anchor="middle")
    p.text(465, 185, "8", style="code", anchor="middle")
    p.text(375, 210, "first slot, 24 bits", style="small faint", anchor="middle")
    p.text(467, 210, "slots, 8 bits", style="small faint", anchor="middle")
    p.arrow(538, 280, 262, 280, "nic", label="no bytes, 20 | 8: the credit")
    p.text(400, 302, "after the messages are dealt with", style="small", anchor="middle")
    p.text(400, 320, "and a receive is posted again", style="small", anchor="middle")
    return p.svg()
