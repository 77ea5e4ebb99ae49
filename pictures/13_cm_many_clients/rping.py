# SPDX-License-Identifier: MIT
from drawing.picture import Picture

CLIENT, SERVER = 170, 630


def draw() -> str:
    p = Picture(
        400,
        "One ping of rping's protocol",
        (
            "The client SENDs the address of the buffer with its ping. The server READs it and"
            " SENDs go ahead. The client SENDs the address of another buffer. The server WRITEs the"
            " ping back into it and SENDs go ahead."))
    for x, name, role in ((CLIENT, "rping -c", "client"), (SERVER, "the server", "server")):
        p.box(x - 110, 10, 220, 34, role)
        p.text(x, 32, name, style="bold", anchor="middle")
        p.line(x, 44, x, 390, role)
    steps = [
        ("client", "SEND: address, rkey, size of the ping", 74),
        ("read", "READ request", 114),
        ("client", "the ping", 154),
        ("server", "SEND: go ahead", 194),
        ("client", "SEND: address, rkey, size of another buffer", 244),
        ("write", "WRITE: the pong", 284),
        ("server", "SEND: go ahead", 324),
    ]
    for what, label, y in steps:
        if what == "client":
            p.arrow(
                CLIENT, y, SERVER, y + 12, "memory" if label == "the ping" else "client",
                label=label, above=10)
        else:
            p.arrow(
                SERVER, y, CLIENT, y + 12, "server" if what == "server" else "memory", label=label,
                above=10)
    p.text(400, 378, "and again from the top, -C times", style="faint", anchor="middle")
    p.text(CLIENT - 12, 352, "compares (-V)", style="faint", anchor="end")
    return p.svg()
