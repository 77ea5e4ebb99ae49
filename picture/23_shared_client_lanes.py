# SPDX-License-Identifier: MIT
from drawing.picture import Picture


def draw() -> str:
    p = Picture(
        300,
        "A client with several servers and connections",
        (
            "A sender with two servers and two connections to each has four lanes, each with a ring"
            " of its own. A request goes to the servers in turns, or to the one that"
            " RequestOptions::server names. Of the two lanes to that server, a thread keeps to one."
            " A lane that is down or full is passed over."))
    p.box(10, 10, 500, 280, "client", "client host")
    for number, y in enumerate((44, 104, 164, 224), 1):
        p.box(24, y, 110, 46, "plain", "")
        p.text(79, y + 28, f"thread {number}", anchor="middle")
    lanes = (
        (44, "ring 1", "server A"),
        (104, "ring 2", "server A"),
        (164, "ring 3", "server B"),
        (224, "ring 4", "server B"),
    )
    for y, name, _ in lanes:
        is_down = name == "ring 4"
        p.box(300, y, 90, 46, "bad" if is_down else "memory")
        p.text(345, y + 28, name, anchor="middle")
        p.box(400, y, 98, 46, "bad" if is_down else "nic")
        p.text(449, y + 20, "lane", anchor="middle", style="bold small")
        p.text(449, y + 37, "is down" if is_down else "queue pair", anchor="middle", style="small")
    for source, target in ((67, 67), (127, 127), (187, 67), (247, 127)):
        p.arrow(134, source, 298, target, "client")
    for source in (67, 127, 187, 247):
        p.arrow(134, source, 298, 187, "client", dashed=True)
    p.text(216, 36, "solid: server A has the turn", style="small", anchor="middle")
    p.text(216, 282, "dashed: server B has the turn", style="small halo", anchor="middle")
    for y, name in ((44, "server A"), (164, "server B")):
        p.box(600, y, 190, 106, "server", name)
        p.box(614, y + 36, 162, 26, "plain")
        p.text(695, y + 54, "session", anchor="middle", style="small")
        p.box(614, y + 68, 162, 26, "plain")
        p.text(695, y + 86, "session" if name == "server A" else "", anchor="middle", style="small")
    for y, target in ((67, 93), (127, 125), (187, 213)):
        p.arrow(498, y, 612, target, "nic")
    p.line(498, 247, 612, 247, "bad", dashed=True)
    p.text(552, 266, "tries again", style="small", anchor="middle")
    return p.svg()
