from draw import Picture


def draw() -> str:
    p = Picture(300, "What becomes of an answer",
                "The caller makes the word waiting before it publishes its request. The sender makes it answered when the answer comes. The "
                "caller makes it collecting, reads, and gives the slots back. A caller that gives up makes waiting unwanted, and then the sender "
                "gives the slots back when the answer comes. An answer that nobody collects while others need the slots is taken back by the sender.")
    p.box(10, 90, 120, 60, "client", "waiting", ("caller wants it",))
    p.box(240, 90, 130, 60, "memory", "answered", ("it is there",))
    p.box(470, 90, 130, 60, "client", "collecting", ("caller reads it",))
    p.box(690, 90, 100, 60, "plain", "slots free")
    p.box(240, 210, 130, 60, "bad", "unwanted", ("nobody collects",))
    p.arrow(132, 120, 238, 120, "server", label="it comes")
    p.arrow(372, 120, 468, 120, "client", label="collect")
    p.arrow(602, 120, 688, 120, "client", label="give back")
    p.arrow(70, 152, 238, 240, "client")
    p.text(20, 215, "dropped, posted,", style="small")
    p.text(20, 233, "or the caller is dead", style="small")
    p.arrow(372, 240, 720, 152, "server")
    p.text(480, 250, "it comes: the sender gives the slots back", style="small")
    p.line(305, 88, 305, 50, "server")
    p.line(305, 50, 740, 50, "server")
    p.arrow(740, 50, 740, 88, "server")
    p.text(330, 40, "others need the slots, and nobody has collected it: taken back", style="small")
    return p.svg()
