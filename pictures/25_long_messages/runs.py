# SPDX-License-Identifier: MIT
from drawing.picture import Picture


def draw() -> str:
    p = Picture(
        214,
        "A message that goes over the end of the ring",
        (
            "A ring of sixteen slots. The next free slot is 11. A message of eight slots goes into"
            " the slots 11 to 15 and 0 to 2. The next message takes slot 3. The first run has the"
            " slots 11 to 15. It ends where the ring ends. The second run has the slots 0 to 3: the"
            " rest of the long message, and the next one."))
    p.text(10, 22, "out", style="bold", role="client")
    for slot in range(16):
        role = "client" if slot >= 11 or slot < 3 else "memory" if slot == 3 else "plain"
        p.box(10 + slot * 48, 40, 46, 40, role)
        p.text(33 + slot * 48, 65, str(slot), anchor="middle")
    for x, width, words in ((10, 190, "second run"), (538, 238, "first run")):
        p.line(x, 90, x + width, 90)
        p.text(x + width / 2, 108, words, style="small", anchor="middle")
    for i, words in enumerate(
        (
            "The header is in slot 11. It says how long the message is.",
            "The receiver joins the parts: slots 11 to 15 of the first run, 0 to 2 of the second.",
            "Slot 3 is the next message. It goes in the same run.")):
        p.text(10, 142 + i * 24, words, style="small")
    return p.svg()
