# SPDX-License-Identifier: MIT
from drawing.picture import Picture


def draw() -> str:
    p = Picture(
        352,
        "Where the lock is: in the host's memory, and on the NIC's chip",
        (
            "Above, the lock is in the server's memory: for each compare-and-swap the NIC has to"
            " fetch the word over PCIe and to write it back before the next one for this word can"
            " begin. Below, the lock is in the NIC's own memory, and a compare-and-swap ends there;"
            " only the counter, which its holder reads and writes, is behind PCIe."))
    p.text(10, 20, "clients", style="bold", role="client")
    p.text(790, 20, "server", style="bold", role="server", anchor="end")
    for y, where in ((34, "host"), (196, "chip")):
        p.box(10, y, 110, 146, "client", "processes")
        p.box(290, y, 200, 146, "nic", "NIC")
        p.box(640, y, 150, 146, "memory", "host memory")
    p.box(655, 72, 120, 34, "plain", "", ("lock",))
    p.box(655, 118, 120, 34, "plain", "", ("counter",))
    p.box(305, 234, 120, 34, "memory", "", ("lock",))
    p.box(655, 280, 120, 34, "plain", "", ("counter",))
    p.arrow(120, 88, 288, 88, "client", label="compare-and-swap")
    p.arrow(490, 84, 653, 84, "bad", label="PCIe: read it,")
    p.arrow(653, 98, 492, 98, "bad")
    p.text(572, 118, "write it back", style="small", role="bad", anchor="middle")
    p.arrow(120, 250, 303, 250, "client", label="compare-and-swap")
    p.arrow(120, 298, 653, 298, "client")
    p.text(205, 292, "READ, WRITE", style="halo", anchor="middle")
    p.text(565, 292, "PCIe", style="halo", anchor="middle")
    return p.svg()
