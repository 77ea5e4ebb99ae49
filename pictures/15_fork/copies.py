# SPDX-License-Identifier: MIT
from drawing.picture import Picture


def draw() -> str:
    p = Picture(
        370,
        "What a child has after fork()",
        (
            "The parent has a buffer, a handle of the queue pair, and the mapped queue. After the"
            " fork the child has a copy of the buffer, which the NIC never writes, a copy of the"
            " handle, which names the same queue pair in the kernel, and on SoftRoCE the very same"
            " queue, since that is mapped as shared memory."))
    p.text(10, 22, "parent", style="bold", role="server")
    p.text(790, 22, "child", style="bold", role="client", anchor="end")
    p.box(10, 32, 250, 200, "server")
    p.box(540, 32, 250, 200, "client")
    p.box(25, 42, 220, 54, "memory", "buffer", ("what the NIC has written",))
    p.box(555, 42, 220, 54, "memory", "copy of the buffer", ("what was there before",))
    p.box(25, 104, 220, 54, "plain", "ibv_qp", ("handle 1, fd 3",))
    p.box(555, 104, 220, 54, "plain", "copy of the ibv_qp", ("handle 1, fd 3",))
    p.box(25, 166, 220, 54, "memory", "completion queue", ("mapped MAP_SHARED",))
    p.box(555, 166, 220, 54, "memory", "the same queue", ("mapped MAP_SHARED",))
    p.arrow(262, 69, 538, 69, "plain", dashed=True, label="copied")
    p.arrow(262, 131, 538, 131, "plain", dashed=True, label="copied, and names the same object")
    p.arrow(262, 193, 538, 193, "plain", dashed=True, label="shared (SoftRoCE)")
    p.box(
        270,
        270,
        260,
        84,
        "nic",
        "kernel and NIC",
        ("one QP, one CQ, one MR;", "the MR's pages are the parent's"),
    )
    p.arrow(330, 270, 200, 234, "nic", label="writes", above=-4)
    p.arrow(600, 234, 470, 270, "bad", label="destroys", above=-4)
    return p.svg()
