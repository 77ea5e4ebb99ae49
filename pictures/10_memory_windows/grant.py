# SPDX-License-Identifier: MIT
from drawing.picture import Picture


def draw() -> str:
    p = Picture(
        350,
        "What a memory window opens, and to whom",
        (
            "The server's region has no remote access flag, so its own key opens nothing. A window"
            " over a part of it has a key of its own. Of type 2B, it is bound on one queue pair:"
            " the client on the other side of that queue pair reads and writes through it as far as"
            " the window's rights go. A client on another queue pair with the same key is refused."
        ))
    p.text(10, 22, "clients", style="bold", role="client")
    p.text(790, 22, "server", style="bold", role="server", anchor="end")
    p.box(10, 40, 130, 110, "client", "client A", ("has the key,", "on QP 17"))
    p.box(10, 220, 130, 110, "client", "client B", ("has the key too,", "on QP 18"))
    p.box(290, 40, 200, 290, "nic", "NIC")
    p.box(305, 75, 170, 34, "nic", "", ("QP 17",))
    p.box(305, 255, 170, 34, "nic", "", ("QP 18",))
    p.box(
        305, 128, 170, 98, "plain", "window, type 2B", ("bound on QP 17", "key 0x…02", "READ only"))
    p.box(
        590,
        40,
        200,
        290,
        "memory",
        "region: 4096 bytes",
        ("LOCAL_WRITE, MW_BIND,", "no REMOTE flag"),
    )
    p.box(615, 130, 160, 75, "plain", "1024 bytes", ("what the window", "opens"))
    p.arrow(140, 86, 303, 86, "client", label="READ, key 0x…02")
    p.arrow(475, 160, 613, 160, "nic", label="yes", above=5)
    p.arrow(140, 108, 303, 108, "bad", label="WRITE, the same", above=-16)
    p.text(222, 142, "refused: rights", style="small", role="bad", anchor="middle")
    p.arrow(140, 272, 303, 272, "bad", label="READ, the same")
    p.text(222, 292, "refused: not its QP", style="small", role="bad", anchor="middle")
    return p.svg()
