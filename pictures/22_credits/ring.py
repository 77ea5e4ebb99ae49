# SPDX-License-Identifier: MIT
from drawing.picture import Picture


def draw() -> str:
    p = Picture(
        250,
        "Which slots a side may use",
        (
            "A ring of sixteen slots. The slots 0 to 3 are free. The slots 4 to 11 are ahead: they"
            " belong to two runs that were posted and are not free yet. The slots 12"
            " to 14 have been put, and are not posted. Slot 15 is free. posted_ stands at slot 12,"
            " and put_ at slot 15. A credit and a"
            " completion free the oldest run."))
    p.text(10, 22, "one side's ring, out", style="bold", role="client")
    for slot in range(16):
        role = "server" if 4 <= slot < 12 else "client" if 12 <= slot < 15 else "plain"
        p.box(10 + slot * 48, 60, 46, 40, role)
        p.text(33 + slot * 48, 85, str(slot), anchor="middle")
    parts = (
        (10, 190, "free"), (202, 190, "a run, posted"), (394, 190, "a run, posted"),
        (586, 142, "put"), (730, 46, "free"))
    for x, width, words in parts:
        p.line(x, 108, x + width, 108)
        p.text(x + width / 2, 126, words, style="small", anchor="middle")
    p.text(588, 50, "posted_", style="small")
    p.text(732, 50, "put_", style="small")
    for i, words in enumerate(
        (
            "sent_ has two runs of 4 slots each, 4 to 7 and 8 to 11, which are not free yet.",
            "A credit and the completion of the first run: the slots 4 to 7 are free.",
            "While sent_ holds runs_ahead runs, the sender posts no run.")):
        p.text(10, 165 + i * 24, words, style="small")
    return p.svg()
