# SPDX-License-Identifier: MIT
from drawing.picture import Picture


def draw() -> str:
    p = Picture(
        112,
        "32 bits of immediate data",
        (
            "24 bits have the number of the first fragment, 8 bits how many there are. Fragments 20"
            " to 23 are 00 00 14 04 on the wire."))
    p.box(10, 10, 585, 46, "memory", "number of the first", code=True)
    p.box(595, 10, 195, 46, "nic", "how many")
    p.text(585, 48, "24 bits", style="small", anchor="end")
    p.text(780, 48, "8 bits", style="small", anchor="end")
    for index, byte in enumerate(("00", "00", "14", "04")):
        p.text(107 + 195 * index, 82, byte, style="code", anchor="middle")
    p.text(10, 104, "fragments 20 to 23, as they travel: network byte order", style="small")
    return p.svg()
