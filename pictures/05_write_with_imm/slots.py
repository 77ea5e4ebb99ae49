# SPDX-License-Identifier: MIT
from drawing.picture import Picture


def draw() -> str:
    p = Picture(
        330,
        "Fragments, slots and credits",
        (
            "Client and server have sixteen slots each. One message writes the fragments 20 to 23"
            " from the client's slots 4 to 7 into the server's slots 4 to 7 and carries the"
            " immediate data 20, 4. The server's receive completes, it takes the fragments out,"
            " posts a receive again, and answers with the same immediate data: the credit."))
    p.text(10, 20, "client", style="bold", role="client")
    p.text(790, 20, "server", style="bold", role="server", anchor="end")
    for x, role in ((10, "client"), (620, "server")):
        p.box(x, 32, 170, 284, role)
        p.text(x + 10, 52, "16 slots", style="bold")
        for slot in range(8):
            mine = 4 <= slot < 8
            p.box(x + 10, 62 + slot * 26, 150, 24, "memory" if mine else "plain")
            p.text(
                x + 20, 79 + slot * 26, f"slot {slot}" + (f": fragment {16 + slot}" if mine else "")
            )
        p.text(x + 85, 300, "…", anchor="middle")
    p.arrow(
        182, 217, 618, 217, "nic", label="one WRITE_WITH_IMM: 4 fragments, immediate data 20 | 4")
    p.text(400, 238, "takes a receive from the server's queue", style="small", anchor="middle")
    p.arrow(618, 290, 182, 290, "nic", label="one WRITE_WITH_IMM: nothing, immediate data 20 | 4")
    p.text(
        400, 311, "the credit: those slots are free again, and there is a receive", style="small",
        anchor="middle")
    p.text(400, 80, "slot = fragment number modulo 16,", style="small", anchor="middle")
    p.text(400, 98, "on both sides", style="small", anchor="middle")
    return p.svg()
