# SPDX-License-Identifier: MIT
from drawing.picture import Picture

LEFT, RIGHT = 20, 470
WIDTH = 410

# (what happens, in user space, in the kernel)
ROWS = [
    (
        "a device",
        ["ibv_open_device: a context"],
        ["ib_register_client:", "add(ib_device), later remove()"],
    ),
    (
        "events of the connection",
        ["poll a file descriptor,", "rdma_get_cm_event, rdma_ack_cm_event"],
        ["rdma_cm calls cm_event(),", "which wakes the worker"]),
    (
        "memory",
        ["ibv_reg_mr: pins and registers;", "lkey and rkey"],
        ["ib_dma_map_single: a DMA address;", "local_dma_lkey; ib_alloc_mr, IB_WR_REG_MR"],
    ),
    ("a request", ["ibv_post_send, with wr_id"], ["ib_post_send, with wr_cqe"]),
    (
        "its completion",
        ["sleep on the channel, ibv_get_cq_event,", "arm, ibv_poll_cq: a wc with wr_id"],
        ["the kernel polls, in a softirq, or the thread", "that waits does: wr_cqe->done(cq, wc)"]),
    (
        "the next request", ["by the thread that has slept"],
        ["by a callback, which must not sleep, or", "by the worker that it wakes"]),
    (
        "the end", ["destroy in order; the kernel does it", "for a process that dies"],
        ["ib_drain_qp, then destroy in order;", "nobody does it for us"]),
]


def draw() -> str:
    height = 70 + 92 * len(ROWS) + 40
    p = Picture(
        height,
        "The two flows: a client in user space, and one in the kernel",
        (
            "Side by side, from top to bottom: how each comes by a device, by events of the"
            " connection, and by memory that the device may use; how it posts a request and learns"
            " of its completion, and how it ends. In user space a thread sleeps on file descriptors"
            " and asks; in the kernel callbacks are called, and a worker waits."),
        width=900)
    for x, name, role in (
        (LEFT, "user space: a thread asks", "server"),
        (RIGHT, "kernel: callbacks are called", "client"),
    ):
        p.box(x, 10, WIDTH, 34, role)
        p.text(x + WIDTH / 2, 32, name, style="bold", anchor="middle")
    y = 66
    for number, (what, user, kernel) in enumerate(ROWS):
        p.text(450, y + 4, what, style="bold small", anchor="middle")
        for x, lines, role in ((LEFT, user, "server"), (RIGHT, kernel, "client")):
            p.box(
                x, y + 12, WIDTH, 62, "memory" if what == "memory" else "plain", lines=lines,
                code=True)
            if number:
                p.arrow(x + WIDTH / 2, y - 18, x + WIDTH / 2, y + 10, role)
        y += 92
    p.text(
        450, height - 18, "Below both: the same driver, the same queue pairs, the same packets.",
        style="faint", anchor="middle")
    return p.svg()
