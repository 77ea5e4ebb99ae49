# SPDX-License-Identifier: MIT
from drawing.picture import Picture


def draw() -> str:
    p = Picture(
        530,
        "What goes over the wire",
        (
            "The client's connection request carries Hello, the reply Welcome. A second pair, with"
            " the token, makes the data connection. Then WRITE_WITH_IMM of runs of requests to the"
            " server, and of runs of answers to the client; a long response goes by WRITE_WITH_IMM"
            " on the data connection, without a header. A run of no slots says closing; then both"
            " disconnect."))
    p.box(10, 10, 100, 510, "client", "client")
    p.box(690, 10, 100, 510, "server", "server")
    rows = [
        (46, 1, "plain", "REQ  Hello: shape, where answers and data may go", True),
        (
            78, 0, "plain", "REP  Welcome: window, where requests go, token   (or REJ: why not)",
            True),
        (124, 1, "plain", "REQ  Hello: data connection, token", True),
        (156, 0, "plain", "REP  Welcome", True),
        (216, 1, "nic", "WRITE_WITH_IMM  20 | 4:  header A, bytes, header B, bytes, ...", False),
        (256, 0, "nic", "WRITE_WITH_IMM  20 | 1:  header A', bytes", False),
        (296, 1, "nic", "WRITE_WITH_IMM  24 | 2:  header D, bytes, header E, bytes", False),
        (336, 0, "nic", "WRITE_WITH_IMM  21 | 5:  header B', bytes, ..., header E', bytes", False),
        (396, 0, "memory", "WRITE_WITH_IMM  26 | 1:  bytes", False),
        (460, 0, "bad", "WRITE_WITH_IMM  0 | 0:  closing", False),
        (502, 1, "plain", "DREQ, DREP", True),
    ]
    for y, right, role, text, dashed in rows:
        a, b = (112, 688) if right else (688, 112)
        p.arrow(a, y, b, y, role, dashed=dashed, label=text)
    p.text(
        400, 187, "the second pair only if there is a data connection", style="small faint",
        anchor="middle")
    p.text(
        400, 418, "by the data connection: the response to a long request", style="small faint",
        anchor="middle")
    return p.svg()
