# SPDX-License-Identifier: MIT
from drawing.picture import Picture


def draw() -> str:
    p = Picture(
        330,
        "Export and import by a file descriptor",
        (
            "Two processes. The first one has opened the device and made a protection domain and a"
            " memory region. It sends the second process two descriptors, those of the device and"
            " of the memory, and the numbers of the domain and the region. The second process"
            " imports them. In the kernel there is one open device, with one domain and one region."
            " Each process has a queue pair of its own in this domain."))
    for x, role, name, calls in (
        (10, "client", "process A exports",
         ("ibv_open_device", "ibv_alloc_pd", "ibv_reg_mr", "its own queue pair")),
        (560, "server", "process B imports",
         ("ibv_import_device", "ibv_import_pd", "ibv_import_mr", "its own queue pair")),
    ):
        p.text(x, 22, name, style="bold", role=role)
        for i, call in enumerate(calls):
            p.box(x, 34 + i * 44, 230, 36, role, call, code=i < 3)
    p.arrow(242, 96, 558, 96, "memory")
    p.text(400, 60, "over a unix socket, SCM_RIGHTS:", anchor="middle", style="small")
    p.text(400, 78, "the descriptors of device and memory,", anchor="middle", style="small")
    p.text(400, 116, "the numbers (handles) of PD and MR", anchor="middle", style="small")
    p.box(10, 240, 780, 76, "plain")
    p.text(24, 262, "the kernel", style="bold")
    p.box(150, 254, 190, 48, "nic", "an open device")
    p.box(360, 254, 190, 48, "nic", "a PD, with both QPs")
    p.box(570, 254, 190, 48, "memory", "an MR, the memory")
    p.arrow(125, 206, 125, 238, "client")
    p.arrow(675, 206, 675, 238, "server")
    return p.svg()
