# SPDX-License-Identifier: MIT
from drawing.picture import Picture

COLUMNS = ((10, "TCP"), (275, "RDMA, a hardware NIC"), (540, "RDMA, SoftRoCE"))


def draw() -> str:
    p = Picture(
        356,
        "Where the transport runs: TCP, an RDMA NIC, SoftRoCE",
        (
            "With TCP the kernel cuts the data into packets, acknowledges and repeats them. With an"
            " RDMA NIC the NIC does it, and the program hands it work directly; the kernel only"
            " sets things up. With SoftRoCE the program makes the same calls, and the kernel module"
            " rdma_rxe does the NIC's work, on the CPU, over any Ethernet card."))
    for x, title in COLUMNS:
        p.text(x + 125, 22, title, style="bold", anchor="middle")
    p.box(10, 36, 250, 50, "client", "your program")
    p.box(
        10,
        110,
        250,
        116,
        "nic",
        "kernel: TCP",
        ("packets, acknowledgements,", "retransmission, a copy of", "the data"),
    )
    p.box(10, 250, 250, 50, "plain", "Ethernet NIC")
    p.arrow(135, 86, 135, 109, "client")
    p.arrow(135, 226, 135, 249, "plain")

    p.box(275, 36, 250, 50, "client", "your program, libibverbs")
    p.box(275, 110, 120, 70, "plain", "kernel", ("sets things up",))
    p.box(
        275,
        204,
        250,
        96,
        "nic",
        "RDMA NIC",
        ("packets, acknowledgements,", "retransmission, access checks"),
    )
    p.line(335, 86, 335, 110, "plain", dashed=True)
    p.line(335, 180, 335, 204, "plain", dashed=True)
    p.arrow(460, 86, 460, 203, "client")
    p.text(452, 140, "work", style="small", anchor="end")

    p.box(540, 36, 250, 50, "client", "the same program, libibverbs")
    p.box(
        540,
        110,
        250,
        116,
        "nic",
        "kernel: rdma_rxe",
        ("packets, acknowledgements,", "retransmission, access checks,", "a copy of the data"),
    )
    p.box(540, 250, 250, 50, "plain", "Ethernet NIC, or none")
    p.arrow(665, 86, 665, 109, "client")
    p.arrow(665, 226, 665, 249, "plain")

    for x, text in (
        (10, "the CPU does the transport"),
        (275, "the NIC does the transport"),
        (540, "the CPU does the transport"),
    ):
        p.text(x + 125, 324, text, style="faint", anchor="middle")
    p.text(667, 344, "the same calls and packets as the NIC", style="small faint", anchor="middle")
    return p.svg()
