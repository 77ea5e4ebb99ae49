# SPDX-License-Identifier: MIT
from drawing.picture import Picture

SERVER, SERVER_NIC, CLIENT_NIC, CLIENT = 130, 300, 500, 670


def draw() -> str:
    p = Picture(
        760,
        "What happens, in order, on both sides",
        (
            "Both create and post a receive, tell each other over TCP where their queue pairs are,"
            " bring them to RTS, and then each NIC sends, acknowledges and reports completions."))
    for x, name, role in (
        (SERVER, "server's program", "server"),
        (SERVER_NIC, "server's NIC", "nic"),
        (CLIENT_NIC, "client's NIC", "nic"),
        (CLIENT, "client's program", "client"),
    ):
        p.box(x - 70, 10, 140, 34, role)
        p.text(x, 32, name, style="bold", anchor="middle")
        p.line(x, 44, x, 750, role)

    def does(x, y, what):
        role = "server" if x == SERVER else "client"
        p.parts.append(f'<circle class="t-{role}" cx="{x}" cy="{y}" r="4"/>')
        p.text(
            x + (-10 if x == SERVER else 10), y + 5, what, anchor="end" if x == SERVER else "start",
            style="code")

    for x, nic in ((SERVER, SERVER_NIC), (CLIENT, CLIENT_NIC)):
        does(x, 70, "to INIT")
        p.arrow(x, 100, nic, 100, "memory", label="post receive")
    does(SERVER, 130, "listen")
    p.arrow(
        CLIENT, 165, SERVER, 165, "client", dashed=True,
        label="TCP: LID:QPN:PSN:GID:MTU of the client")
    does(SERVER, 195, "to RTR, RTS")
    p.arrow(
        SERVER, 235, CLIENT, 235, "server", dashed=True,
        label="TCP: LID:QPN:PSN:GID:MTU of the server")
    does(CLIENT, 265, "to RTR, RTS")
    p.arrow(CLIENT, 305, SERVER, 305, "client", dashed=True, label="TCP: done")

    def message(y, sender, receiver, role):
        """A SEND: post, packet, acknowledgement, and the two completions."""
        nic, other = (CLIENT_NIC, SERVER_NIC) if sender == CLIENT else (SERVER_NIC, CLIENT_NIC)
        p.arrow(sender, y, nic, y, role, label="post SEND")
        p.arrow(nic, y + 25, other, y + 45, role, label="SEND, 64 bytes", above=10)
        p.arrow(other, y + 70, nic, y + 90, "nic", label="acknowledge", above=10)
        p.arrow(other, y + 75, receiver, y + 75, "nic", label="completion")
        p.arrow(nic, y + 115, sender, y + 115, "nic", label="completion")

    message(345, CLIENT, SERVER, "client")
    message(500, SERVER, CLIENT, "server")
    p.arrow(CLIENT, 660, SERVER, 660, "client", dashed=True, label="TCP: closed, I have finished")
    p.arrow(SERVER, 695, CLIENT, 695, "server", dashed=True, label="TCP: closed, so have I")
    does(SERVER, 725, "destroy")
    does(CLIENT, 725, "destroy")
    return p.svg()
