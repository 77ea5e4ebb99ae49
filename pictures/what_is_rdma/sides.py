# SPDX-License-Identifier: MIT
from drawing.picture import Picture


def draw() -> str:
    p = Picture(
        214,
        "Two-sided and one-sided",
        (
            "Two-sided: the client's program posts a SEND, and the message goes to a buffer that"
            " the server's program has posted. One-sided: the client's program names an address in"
            " the server's memory, and the server's NIC reads or writes there; the server's program"
            " takes no part."))
    for x, title in ((10, "two-sided: SEND and receive"), (420, "one-sided: WRITE, READ, atomics")):
        p.text(x, 20, title, style="bold")
        p.box(x, 36, 140, 60, "client", "client", ("posts",))
        p.box(x, 140, 140, 60, "nic", "NIC")
        p.box(x + 220, 140, 150, 60, "nic", "NIC")
        p.arrow(x + 70, 96, x + 70, 139, "client")
        p.arrow(x + 140, 170, x + 219, 170, "nic")
    p.box(230, 36, 150, 60, "server", "server", ("posted a buffer",))
    p.arrow(300, 140, 300, 97, "nic")
    p.text(310, 124, "completion", style="small")
    p.box(590, 36, 90, 60, "server", "server", ("sleeps",))
    p.box(694, 36, 96, 60, "memory", "memory", ("by rkey",))
    p.arrow(742, 140, 742, 97, "memory")
    return p.svg()
