# SPDX-License-Identifier: MIT
from drawing.picture import Picture


def draw() -> str:
    p = Picture(
        330,
        "Who takes part in a WRITE and a READ",
        (
            "The client's program posts a WRITE and later a READ to its own NIC. The server's NIC"
            " checks the rkey and the access flags and reads or writes the server's memory. The"
            " server's program and CPU take no part."))
    p.box(10, 30, 110, 290, "client", "program")
    p.box(200, 30, 110, 290, "nic", "NIC")
    p.box(450, 30, 150, 290, "nic", "NIC")
    p.box(650, 30, 140, 150, "memory", "memory", ("4096 bytes,", "shared by its", "rkey"))
    p.box(650, 200, 140, 120, "server", "program", ("sleeps",))
    p.text(10, 20, "client", style="bold", role="client")
    p.text(790, 20, "server", style="bold", role="server", anchor="end")
    for y, what, back in ((90, "WRITE", "acknowledge"), (210, "READ request", "READ response")):
        p.arrow(120, y, 198, y, "client", label="post")
        p.arrow(310, y, 448, y, "nic", label=what)
        p.arrow(450, y + 45, 312, y + 45, "nic", label=back)
        p.arrow(200, y + 65, 122, y + 65, "nic", label="completion")
    p.text(462, 85, "rkey, bounds,", style="small")
    p.text(462, 102, "REMOTE_WRITE?", style="small")
    p.arrow(600, 94, 648, 94, "nic")
    p.text(462, 205, "rkey, bounds,", style="small")
    p.text(462, 222, "REMOTE_READ?", style="small")
    p.arrow(650, 150, 602, 214, "memory")
    return p.svg()
