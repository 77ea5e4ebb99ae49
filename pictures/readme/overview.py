# SPDX-License-Identifier: MIT
from drawing.picture import Picture


def draw() -> str:
    p = Picture(
        300,
        "The project in one picture",
        (
            "A ladder of lessons, each with an example; what a lesson has taught moves to"
            " rdmacommon, which later examples and the reader's own project use; all of it runs on"
            " SoftRoCE."))
    steps = [
        ("01", "hello_device"),
        ("02", "send_recv"),
        ("…", "verbs by hand"),
        ("12", "connection manager"),
        ("23", "shared client"),
    ]
    for number, (label, name) in enumerate(steps):
        y = 176 - 38 * number
        p.box(10 + 52 * number, y, 190, 34, "client")
        p.text(20 + 52 * number, y + 22, f"{label}  {name}")
    p.box(
        500, 24, 136, 162, "memory", "rdmacommon",
        ["a small library:", "what the lessons", "have taught, and", "nothing else"])
    p.arrow(408, 41, 500, 41, "memory")
    p.text(454, 31, "graduates", style="faint", anchor="middle")
    p.arrow(500, 166, 256, 166, "memory", label="used by later examples")
    p.box(
        676, 24, 114, 162, "server", "your project",
        ["copies an", "example, or", "links the", "library"])
    p.arrow(636, 105, 676, 105, "server")
    p.box(
        10,
        226,
        780,
        64,
        "nic",
        "runs on any Linux machine",
        [
            "an RDMA NIC, or SoftRoCE in your kernel, or SoftRoCE in an emulated machine that ./lab"
            " starts for you"])
    return p.svg()
