# SPDX-License-Identifier: MIT
from drawing.picture import Picture


def draw() -> str:
    p = Picture(
        396,
        "The objects of one side and who holds on to whom",
        (
            "The context holds a protection domain and a completion queue. The domain holds the"
            " memory region and the queue pair. The queue pair talks to the peer's."))
    p.box(10, 10, 560, 300, "plain", "context: the open device (ibv_open_device)")
    p.box(28, 44, 330, 250, "server", "protection domain (ibv_alloc_pd)")
    p.box(
        44, 78, 298, 66, "memory", "memory region (ibv_reg_mr)",
        ["who may touch the buffer, by key"])
    p.box(44, 164, 298, 116, "nic", "queue pair (ibv_create_qp)")
    p.box(58, 194, 270, 34, "plain", "", ["send queue: what is to go out"])
    p.box(58, 236, 270, 34, "plain", "", ["receive queue: posted buffers"])
    p.box(
        390, 164, 164, 116, "nic", "completion queue",
        ["(ibv_create_cq)", "what is done, and", "how it ended"])
    p.arrow(342, 222, 390, 222, "nic")
    p.box(44, 330, 298, 56, "memory", "the buffer", ["64 bytes out, 64 bytes in"])
    p.line(24, 111, 44, 111, "memory")
    p.line(24, 111, 24, 358, "memory")
    p.arrow(24, 358, 44, 358, "memory")
    p.box(
        620, 164, 170, 116, "client", "the peer's",
        ["queue pair, in", "another process or", "on another machine"])
    p.line(193, 280, 193, 318, "nic")
    p.line(193, 318, 600, 318, "nic")
    p.line(600, 318, 600, 222, "nic")
    p.arrow(600, 222, 620, 222, "nic")
    p.text(372, 345, "packets: a QP of type RC has exactly one peer", style="faint")
    p.text(372, 371, "Destroyed from the inside out: QP, CQ, MR, PD, context.", style="faint")
    return p.svg()
