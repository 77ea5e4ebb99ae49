# SPDX-License-Identifier: MIT
from drawing.picture import Picture


def draw() -> str:
    p = Picture(
        330,
        "A late answer and the generation",
        (
            "A worker with number 1 submits a request in slot 0, which gets generation 1, and is"
            " killed. A new worker gets number 1 and submits a request in slot 0, which gets"
            " generation 2. The answer to the first request arrives with generation 1. The sender"
            " drops it. The answer with generation 2 goes to the new worker."))
    p.text(10, 22, "workers with number 1", style="bold", role="client")
    p.text(400, 22, "the sender: slot 0 of worker 1", style="bold", role="server", anchor="middle")
    p.text(790, 22, "the server", style="bold", role="nic", anchor="end")
    p.box(10, 36, 180, 110, "bad", "the first one", ("submits slow fig", "is killed"))
    p.box(10, 166, 180, 150, "client", "the next one", ("submits slow plum",))
    p.box(310, 36, 180, 280, "server")
    p.box(620, 36, 170, 280, "nic")
    p.text(400, 76, "generation 1", anchor="middle")
    p.text(400, 136, "free", anchor="middle")
    p.text(400, 206, "generation 2", anchor="middle")
    p.text(400, 246, "1 is not 2: dropped", anchor="middle", role="bad")
    p.text(400, 286, "2 is 2", anchor="middle")
    p.arrow(192, 72, 308, 72, "client", label="slot 0")
    p.arrow(492, 72, 618, 72, "nic", label="id 1, 0, 1")
    p.arrow(192, 202, 308, 202, "client", label="slot 0")
    p.arrow(492, 202, 618, 202, "nic", label="id 1, 0, 2")
    p.arrow(618, 242, 492, 242, "bad", label="SLOW FIG")
    p.arrow(618, 282, 492, 282, "nic", label="SLOW PLUM")
    p.arrow(308, 282, 192, 282, "client", label="SLOW PLUM")
    return p.svg()
