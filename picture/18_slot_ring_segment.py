# SPDX-License-Identifier: MIT
from drawing.picture import Picture


def draw() -> str:
    p = Picture(
        420,
        "The segment",
        (
            "The segment holds a header with the layout and four words, then 16 bytes of control"
            " for each slot, then a counter for each worker, then the data of all slots. Two"
            " workers write into slots, one consumer reads them. Each has it mapped at another"
            " address."))
    p.box(
        10,
        10,
        780,
        118,
        "memory",
        "header",
        ("magic, version, slots, slot size, offsets: never an address",),
    )
    words = (
        ("head", "claimed next"),
        ("taken", "taken next"),
        ("awaited", "what is slept for"),
        ("room", "futex"),
    )
    for i, (name, what) in enumerate(words):
        x = 20 + 192 * i
        p.box(x, 68, 184, 50, "plain", name)
        p.text(x + 80, 89, what, style="small")
        p.text(x + 10, 108, "a cache line of its own", style="faint small")
    p.text(
        10,
        152,
        "control: a word (state, count, worker, lap), the length and the lap, for each slot",
        style="bold",
    )
    p.text(10, 252, "held: how many slots each worker has", style="bold")
    for x, text, role in (
        (330, "worker 1: 4", "memory"),
        (464, "worker 2: 2", "client"),
        (598, "others: 0", "plain"),
    ):
        p.box(x, 236, 124, 24, role)
        p.text(x + 62, 253, text, anchor="middle", style="small")
    p.text(10, 286, "data", style="bold")
    states = [
        ("free", 3, "plain"),
        ("ready 1", 2, "memory"),
        ("ready 3", 2, "memory"),
        ("", 2, "memory"),
        ("", 2, "memory"),
        ("claimed 2", 2, "client"),
        ("", 2, "client"),
        ("free", 2, "plain"),
    ]
    for i, (state, lap, role) in enumerate(states):
        x = 10 + 98 * i
        p.box(x, 162, 94, 44, role)
        p.text(x + 47, 180, state or "free", anchor="middle", style="" if state else "faint")
        p.text(x + 47, 198, f"lap {lap}", anchor="middle", style="small faint")
        p.text(x + 47, 221, str(i), anchor="middle", style="small faint")
        if not state:
            continue
        width = {"ready 3": 3, "claimed 2": 2}.get(state, 1)
        p.box(x, 294, 98 * width - 4, 44, role)
        if role != "plain":
            p.text(
                x + (98 * width - 4) / 2, 321, "a message" if role == "memory" else "being written",
                anchor="middle", style="small")
    p.arrow(303, 372, 303, 344, "server")
    p.text(303, 388, "the consumer takes slots 1-4 as one run", anchor="middle")
    p.arrow(594, 372, 594, 344, "client")
    p.text(594, 388, "a worker writes; 5 and 6 are its own", anchor="middle")
    p.text(
        450, 412,
        "Slot 0 has been given back, for lap 3. head is at slot 7, taken at slot 1, in lap 2.",
        anchor="middle", style="faint small")
    return p.svg()
