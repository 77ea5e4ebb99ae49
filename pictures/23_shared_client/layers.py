# SPDX-License-Identifier: MIT
from drawing.picture import Picture


def draw() -> str:
    p = Picture(
        452,
        "The way of a request through four layers",
        (
            "Three columns: a worker, the sender and the server. Four layers: API, memory, ends and"
            " wire. The worker's Caller copies a request into the worker's area, which the sender"
            " maps as well. The sender's loop copies it into the ring of a lane. The connection"
            " writes a run of slots to the server's mirror of the ring. The server's session makes"
            " a batch of it, and a handler answers. Answers go back the same way into the area, and"
            " a bell on the board wakes the worker."))
    for y, name in ((34, "API"), (130, "memory"), (226, "ends"), (338, "wire")):
        p.text(10, y + 40, name, style="bold")
    for x, name, role in (
        (80, "a worker", "client"),
        (300, "the sender", "client"),
        (580, "the server", "server"),
    ):
        p.text(x, 20, name, style="bold", role=role)
    p.box(80, 34, 190, 70, "client", "Caller", ("caller.cpp",))
    p.box(300, 34, 220, 70, "client", "Sender", ("sender.cpp",))
    p.box(80, 130, 290, 70, "memory", "an area for each worker", ("memory.hpp",))
    p.box(390, 130, 130, 70, "memory", "the board", ("memory.hpp",))
    p.box(300, 226, 220, 84, "client", "the loop and its lanes", ("sender_loop.cpp", "lane.cpp"))
    p.box(300, 338, 220, 84, "nic", "rings and connection", ("wire.cpp", "ring_connection.cpp"))
    p.box(580, 34, 210, 70, "server", "Server, handler", ("server.cpp",))
    p.box(
        580, 226, 210, 84, "server", "sessions and batches",
        ("session_loop.cpp", "session.cpp, batch.cpp"))
    p.box(580, 338, 210, 84, "nic", "rings and connection", ("the same files",))
    p.arrow(130, 106, 130, 128, "client")
    p.text(140, 122, "A copies, submits", style="small")
    p.arrow(340, 202, 340, 224, "client")
    p.text(350, 218, "B takes the submission", style="small")
    p.arrow(340, 312, 340, 336, "client")
    p.text(350, 329, "C copies into the ring", style="small")
    p.arrow(522, 370, 578, 370, "nic")
    p.text(550, 362, "D run", anchor="middle", style="small")
    p.arrow(640, 336, 640, 312, "server")
    p.text(650, 329, "E copies", style="small")
    p.arrow(640, 224, 640, 106, "server")
    p.text(650, 170, "F calls the handler", style="small")
    p.text(80, 258, "Answers go back the same way:", style="small")
    p.text(80, 276, "F, E, D, C, B. The sender writes", style="small")
    p.text(80, 294, "them into the area, and rings", style="small")
    p.text(80, 312, "the worker's bell on the board.", style="small")
    p.text(
        80, 446, "Only the rings are registered with the NIC, and buffers for long responses.",
        style="small faint")
    return p.svg()
