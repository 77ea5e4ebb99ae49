# SPDX-License-Identifier: MIT
from drawing.picture import Picture


def draw() -> str:
    p = Picture(
        330,
        "Who sleeps where, and who wakes whom",
        (
            "A caller sleeps on the bell of its slot and is woken by the sender; for room it sleeps"
            " on the ring's word and is woken by whoever gives slots back. The sender sleeps in"
            " epoll and is woken by a caller's doorbell or by a completion. The server's thread"
            " sleeps in epoll and is woken by a completion, or by the pool's eventfd. Another"
            " thread stands by while it runs a handler. The pool's threads sleep on a condition"
            " variable and are woken by the server's thread."))
    p.box(
        10,
        40,
        220,
        120,
        "client",
        "caller",
        ("futex: its slot's bell", "or futex: room in the ring"),
    )
    p.text(20, 140, "spins before that, if it is told to", style="small faint")
    p.box(
        10,
        230,
        220,
        90,
        "client",
        "another caller",
        ("has collected its response", "and gives its slots back"),
    )
    p.box(
        310,
        40,
        180,
        280,
        "client",
        "sender",
        ("epoll: doorbell,", "completions, rdma_cm,", "joining and dying", "processes"),
    )
    p.box(
        570,
        40,
        220,
        120,
        "server",
        "server's thread",
        ("epoll: completions,", "eventfds, rdma_cm;", "another one stands by"),
    )
    p.box(570, 230, 220, 90, "server", "thread of the pool", ("condition variable",))
    p.arrow(232, 70, 308, 70, "client", label="doorbell")
    p.text(270, 88, "if it sleeps", style="small faint", anchor="middle")
    p.text(270, 104, "for this one", style="small faint", anchor="middle")
    p.arrow(308, 130, 232, 130, "client", label="answer")
    p.text(270, 148, "if its word", style="small faint", anchor="middle")
    p.text(270, 163, "says so", style="small faint", anchor="middle")
    p.arrow(120, 228, 120, 162, "client")
    p.text(130, 200, "room, if it waits for that", style="small")
    p.arrow(492, 80, 568, 80, "nic", label="request")
    p.arrow(568, 130, 492, 130, "nic", label="answer")
    p.text(530, 148, "if the CQ", style="small faint", anchor="middle")
    p.text(530, 163, "is armed", style="small faint", anchor="middle")
    p.arrow(630, 162, 630, 228, "server")
    p.text(622, 190, "jobs", style="small", anchor="end")
    p.arrow(730, 228, 730, 162, "server")
    p.text(722, 206, "done: eventfd", style="small", anchor="end")
    p.text(
        10, 22,
        "An arrow wakes. Whoever is about to sleep says so first, and then looks once more.",
        style="small")
    return p.svg()
