# SPDX-License-Identifier: MIT
from drawing.picture import Picture


def draw() -> str:
    p = Picture(
        250,
        "Gather and scatter",
        (
            "The client's request names three pieces of memory; one message with the bytes of all"
            " three goes over the wire; the server's request names two pieces, of which the first"
            " is filled and then the second."))
    p.text(10, 24, "client: 3 pieces", style="bold", role="client")
    for y, text in ((40, "type 7"), (110, "gathered, "), (180, "not copied")):
        p.box(10, y, 130, 40, "memory")
        p.text(22, y + 25, f'"{text}"', style="code")
        p.arrow(140, y + 20, 258, 130, "client")
    p.text(400, 90, "one message, 26 bytes", style="bold", anchor="middle")
    p.box(260, 110, 280, 40, "client")
    p.text(400, 135, "type 7gathered, not copied", style="code", anchor="middle")
    p.text(600, 24, "server: 2 pieces", style="bold", role="server")
    for y, text, size in (
        (60, "type 7", "6 of 6 bytes"),
        (160, "gathered, not copied", "20 of 64 bytes"),
    ):
        p.arrow(540, 130, 598, y + 20, "server")
        p.box(600, y, 190, 40, "memory")
        p.text(610, y + 25, f'"{text}"', style="code")
        p.text(610, y + 56, size, style="small faint")
    return p.svg()
