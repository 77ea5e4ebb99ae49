# SPDX-License-Identifier: MIT
from drawing.picture import Picture


def side(p: Picture, x: int, role: str, program: str, through_kernel: bool) -> None:
    p.box(x, 58, 170, 62, role, program, ("its buffer",))
    if through_kernel:
        p.box(x, 148, 170, 62, "plain", "kernel", ("TCP, its own buffers",))
    p.box(x, 238, 170, 62, "nic", "NIC", () if through_kernel else ("transport, checks",))


def draw() -> str:
    p = Picture(
        312,
        "The way of a message: by a socket, and by RDMA",
        (
            "On the left a socket: each program makes a system call, each kernel copies the bytes"
            " between the program's buffer and its own, and the NICs see only the kernels' buffers."
            " On the right RDMA: the client's NIC reads the client's buffer, and the server's NIC"
            " writes into the server's. No kernel and no copy lies between."))
    for x, title, costs in (
        (10, "a socket", "a system call and a copy on each side, an interrupt"),
        (420, "RDMA, between two RDMA NICs", "no system call, no copy, no interrupt"),
    ):
        p.text(x, 20, title, style="bold")
        p.text(x, 42, costs, style="small faint")
        side(p, x, "client", "client", x == 10)
        side(p, x + 200, "server", "server", x == 10)
        p.arrow(x + 170, 269, x + 199, 269, "nic")
    p.arrow(95, 120, 95, 147, "client")
    p.text(105, 139, "send: copy", style="small")
    p.arrow(95, 210, 95, 237, "plain")
    p.arrow(295, 238, 295, 211, "plain")
    p.text(305, 229, "interrupt", style="small")
    p.arrow(295, 148, 295, 121, "server")
    p.text(305, 139, "recv: copy", style="small")
    p.arrow(505, 120, 505, 237, "client")
    p.text(497, 176, "the NIC reads", style="small", anchor="end")
    p.text(497, 192, "the buffer", style="small", anchor="end")
    p.arrow(705, 238, 705, 121, "nic")
    p.text(697, 176, "the NIC writes", style="small", anchor="end")
    p.text(697, 192, "the buffer", style="small", anchor="end")
    return p.svg()
