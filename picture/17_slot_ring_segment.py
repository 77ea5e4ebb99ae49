from draw import Picture


def draw() -> str:
    p = Picture(380, "The segment",
                "The segment holds a header with the layout and three words, then 16 bytes of control for each slot, then the data "
                "of all slots. Two workers write into slots, one consumer reads them. Each has it mapped at another address.")
    p.box(10, 10, 780, 118, "memory", "header", ("magic, version, slots, slot size, offsets: never an address",))
    for x, name, what in ((20, "head", "claimed next"), (280, "awaited", "what is slept for"), (540, "room", "a worker waits; futex")):
        p.box(x, 68, 240, 50, "plain", name)
        p.text(x + 80, 89, what, style="small")
        p.text(x + 10, 108, "on a cache line of its own", style="faint small")
    p.text(10, 152, "control: one word (state, count, worker, lap) and the length, for each slot", style="bold")
    p.text(10, 242, "data", style="bold")
    states = [("free", 3, "plain"), ("ready 1", 2, "memory"), ("ready 3", 2, "memory"), ("", 2, "memory"), ("", 2, "memory"),
              ("claimed 2", 2, "client"), ("", 2, "client"), ("free", 2, "plain")]
    for i, (state, lap, role) in enumerate(states):
        x = 10 + 98 * i
        p.box(x, 162, 94, 50, role)
        p.text(x + 47, 183, state or "free", anchor="middle", style="" if state else "faint")
        p.text(x + 47, 202, f"lap {lap}", anchor="middle", style="small faint")
        p.text(x + 47, 227, str(i), anchor="middle", style="small faint")
        if not state:
            continue
        width = {"ready 3": 3, "claimed 2": 2}.get(state, 1)
        p.box(x, 252, 98 * width - 4, 44, role)
        if role != "plain":
            p.text(x + (98 * width - 4) / 2, 279, "a message" if role == "memory" else "being written", anchor="middle", style="small")
    p.arrow(303, 330, 303, 302, "server")
    p.text(303, 348, "the consumer takes slots 1-4 as one run", anchor="middle")
    p.arrow(594, 330, 594, 302, "client")
    p.text(594, 348, "a worker writes; 5 and 6 are its own", anchor="middle")
    p.text(450, 372, "Slot 0 has been given back, for lap 3. head is at slot 7, in lap 2.", anchor="middle", style="faint small")
    return p.svg()
