# SPDX-License-Identifier: MIT
from drawing.picture import Picture


def draw() -> str:
    p = Picture(
        330,
        "One server and several client hosts",
        (
            "Three client hosts. Each has one sender, and many processes that call it. Each"
            " connection of a sender arrives at the server's listener as a connection request, and"
            " becomes a session with a protection domain, memory and a window of its own. All"
            " sessions share the pool of threads and the memory that the server gives to clients."))
    for number, (y, workers) in enumerate(((10, 3), (118, 2), (226, 4)), 1):
        p.box(10, y, 270, 96, "client", f"client host {number}")
        for i in range(workers):
            p.box(24 + 46 * i, y + 36, 38, 44, "plain", "")
            p.text(
                43 + 46 * i, y + 63, "…" if i == 3 else f"p{i + 1}", anchor="middle", style="small")
        p.box(208, y + 36, 60, 44, "nic")
        p.text(238, y + 63, "sender", anchor="middle", style="small bold")
    p.box(392, 10, 398, 312, "server", "server")
    p.box(404, 44, 126, 264, "plain", "listener", ("rdma_cm port",))
    p.text(412, 120, "checks each Hello:", style="small")
    for i, text in enumerate(
        ("version, shape,", "places, memory;", "or rejects it,", "and says why")
    ):
        p.text(412, 140 + 18 * i, text, style="small faint")
    for number, y in enumerate((44, 118, 192), 1):
        p.box(546, y, 128, 62, "memory", f"session {number}")
        p.text(556, y + 40, "own PD, memory,", style="small faint")
        p.text(556, y + 55, "window", style="small faint")
        p.arrow(530, y + 30, 544, y + 30, "server")
        p.arrow(674, y + 30, 692, y + 30, "server")
    p.box(694, 44, 84, 210, "plain", "pool", ("handlers",))
    p.text(704, 124, "requests of", style="small faint")
    p.text(704, 140, "all clients,", style="small faint")
    p.text(704, 156, "any order", style="small faint")
    p.text(546, 282, "one budget of memory for all sessions", style="small")
    for y in (58, 166, 274):
        p.arrow(280, y, 402, y, "nic")
    p.text(336, 48, "groups of", style="small", anchor="middle")
    p.text(336, 76, "requests,", style="small", anchor="middle")
    p.text(336, 92, "and answers", style="small", anchor="middle")
    return p.svg()
