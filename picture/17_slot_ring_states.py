from draw import Picture


def draw() -> str:
    p = Picture(250, "States of a slot",
                "Free becomes claimed when a worker claims it, ready when the worker publishes, and free in the next lap when the "
                "consumer gives it back. Claimed becomes abandoned when the worker drops the claim or dies; the consumer passes "
                "over it and makes it free in the next lap. What is left before the ring's end goes from free to abandoned at once.")
    p.box(10, 30, 130, 60, "plain", "free", ("lap n",))
    p.box(235, 30, 150, 60, "client", "claimed", ("worker w, lap n",))
    p.box(470, 30, 130, 60, "memory", "ready", ("of w, lap n",))
    p.box(690, 30, 100, 60, "plain", "free", ("lap n + 1",))
    p.box(470, 170, 130, 60, "bad", "abandoned", ("lap n",))
    p.arrow(142, 60, 233, 60, "client", label="claim")
    p.arrow(387, 60, 468, 60, "client", label="publish")
    p.arrow(602, 60, 688, 60, "server", label="give back")
    p.arrow(330, 92, 468, 185, "bad")
    p.text(395, 125, "dropped, or its worker is dead", anchor="start")
    p.arrow(75, 92, 468, 220, "bad")
    p.text(100, 215, "what is left before the ring's end", anchor="start")
    p.arrow(602, 200, 735, 92, "server")
    p.text(690, 165, "passed over", anchor="start")
    return p.svg()
