# SPDX-License-Identifier: MIT
from drawing.picture import Picture


def draw() -> str:
    p = Picture(
        392,
        "The three places that an RDMA device can come from",
        (
            "Tried in this order: a device that is there; SoftRoCE in this kernel; the emulated"
            " machine."))
    columns = [
        (10, "1. a device that is there"),
        (275, "2. SoftRoCE in this kernel"),
        (540, "3. the emulated machine"),
    ]
    for x, title in columns:
        p.text(x + 125, 24, title, style="bold", anchor="middle")
    for x in (10, 275):
        p.box(x, 40, 250, 50, "client", "the example", ())
        p.box(x, 98, 250, 50, "plain", "libibverbs (rdma-core)")
    p.box(10, 156, 250, 76, "plain", "this machine's kernel", ["its NIC's driver, ib_uverbs"])
    p.box(10, 240, 250, 50, "nic", "RDMA NIC")
    p.box(275, 156, 250, 76, "plain", "this machine's kernel", ["rdma_rxe, ib_uverbs"])
    p.box(275, 240, 250, 50, "nic", "rxe0 on the netdev lab0")
    p.box(540, 40, 250, 250, "memory", "QEMU, an ordinary process")
    p.box(555, 72, 220, 44, "client", "the example")
    p.box(555, 122, 220, 44, "plain", "libibverbs (rdma-core)")
    p.box(555, 172, 220, 62, "plain", "the distribution's kernel", ["rdma_rxe, ib_uverbs"])
    p.box(555, 240, 220, 42, "nic", "rxe0 on lab0")
    p.text(10, 318, "needs the hardware, and a", style="faint")
    p.text(10, 338, "link that is up", style="faint")
    p.text(275, 318, "needs the module rdma_rxe,", style="faint")
    p.text(275, 338, "and root or sudo to load it", style="faint")
    p.text(540, 318, "needs neither: the host's files", style="faint")
    p.text(540, 338, "are shared in, so programs and", style="faint")
    p.text(540, 358, "libraries are the same ones", style="faint")
    p.arrow(262, 374, 292, 374, "plain")
    p.text(252, 379, "if not", anchor="end", style="faint")
    p.arrow(527, 374, 557, 374, "plain")
    p.text(517, 379, "if not", anchor="end", style="faint")
    return p.svg()
