# SPDX-License-Identifier: MIT
from drawing.picture import Picture


def draw() -> str:
    p = Picture(
        330,
        "Fork first, and one owner",
        (
            "Two children and an unrelated process map the same memory with slots. Each writes its"
            " request into its own slot and tells the owner over a unix socket. Only the owner has"
            " opened the device: it has registered this memory, posts, and polls."))
    for i, (name, how) in enumerate(
        (
            ("worker 0, a child", "mapped before the fork"),
            ("worker 1, a child", "mapped before the fork"),
            ("worker 2, unrelated", "got it by SCM_RIGHTS"),
        )
    ):
        y = 40 + i * 95
        p.box(10, y, 200, 76, "client", name, (how,))
        p.arrow(212, y + 28, 328, y + 28, "memory", label="request")
        p.arrow(328, y + 58, 212, y + 58, "memory", label="reply")
    p.text(10, 22, "workers: no RDMA", style="bold", role="client")
    p.box(330, 32, 160, 285, "plain")
    for i in range(3):
        p.box(345, 52 + i * 95, 130, 52, "memory", f"slot {i}")
    p.text(410, 22, "memfd, mapped by all", style="bold", role="memory", anchor="middle")
    p.text(790, 22, "the owner", style="bold", role="server", anchor="end")
    p.box(590, 32, 200, 285, "server")
    p.box(605, 50, 170, 62, "plain", "MR", ("of the whole memfd",))
    p.box(605, 126, 170, 62, "plain", "QP, CQ", ("posts, polls",))
    p.box(605, 226, 170, 76, "nic", "NIC", ("reads and writes", "the slots"))
    p.arrow(588, 80, 492, 80, "plain", label="registered")
    p.arrow(690, 190, 690, 224, "nic")
    p.arrow(603, 264, 492, 264, "nic", label="DMA")
    return p.svg()
