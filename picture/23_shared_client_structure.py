# SPDX-License-Identifier: MIT
from drawing.picture import Picture


def draw() -> str:
    p = Picture(
        560,
        "The processes of client and server",
        (
            "On the client's host, two worker processes and the threads of the sender's own process"
            " call a Caller each. They share one segment with the sender: the ring with the"
            " requests, the answers, the bells that callers sleep on. The sender's thread owns one"
            " lane for each connection. On the server's host, one loop owns a session for each"
            " connection, with a mirror of the requests and a copy of it. Short handlers run in the"
            " loop's thread, the others in a pool of threads."))
    p.text(10, 20, "client's host", style="bold", role="client")
    p.text(790, 20, "server's host", style="bold", role="server", anchor="end")
    for x, title, what in (
        (10, "a worker", "and its threads"),
        (148, "another one", "and its threads"),
        (286, "the sender's", "own threads"),
    ):
        p.box(x, 32, 128, 84, "client", title, (what,))
        p.box(x + 10, 80, 108, 26, "plain")
        p.text(x + 64, 98, "Caller", anchor="middle", style="small bold")
        p.arrow(x + 64, 118, x + 64, 138, "client")
    p.box(10, 140, 404, 176, "memory", "one segment for each connection")
    p.box(24, 172, 376, 54, "plain")
    p.text(34, 194, "ring: words, and slots with requests", style="bold small")
    p.text(34, 214, "callers write; the sender and its NIC read", style="small faint")
    p.box(24, 234, 376, 70, "plain")
    p.text(34, 256, "answers: words, slots, response data", style="bold small")
    p.text(34, 276, "words: sender and callers; the rest: the server's NIC;", style="small faint")
    p.text(34, 294, "callers read where it lies", style="small faint")
    p.arrow(212, 318, 212, 346, "client")
    p.box(10, 348, 404, 200, "client", "sender: one thread in the sender's process")
    for x, name in ((24, "lane"), (214, "lane")):
        p.box(x, 384, 176, 148, "plain", name, ("connects again, knows", "who has asked what"))
        p.box(x + 10, 456, 156, 28, "nic")
        p.text(x + 88, 475, "queue pair: requests", anchor="middle", style="small")
        p.box(x + 10, 492, 156, 28, "nic")
        p.text(x + 88, 511, "queue pair: data", anchor="middle", style="small")
    p.box(486, 32, 304, 146, "server", "pool: threads", ("handler(request, response)",), code=True)
    p.text(496, 104, "any order, many at a time", style="small")
    p.text(496, 126, "it knows no connection, no slot,", style="small faint")
    p.text(496, 144, "and no other request", style="small faint")
    p.arrow(600, 202, 600, 180, "server")
    p.text(592, 196, "requests", style="small", anchor="end")
    p.arrow(700, 180, 700, 202, "server")
    p.text(692, 196, "answers", style="small", anchor="end")
    p.box(486, 204, 304, 344, "server", "server: one loop, epoll")
    p.box(
        500,
        238,
        276,
        96,
        "plain",
        "session of another client",
        ("with a protection domain of its own",),
    )
    p.text(510, 318, "a run is copied, checked, then used", style="small faint")
    p.box(
        500,
        344,
        276,
        188,
        "plain",
        "session",
        ("mirror of the requests, and a copy", "answers, response data"),
    )
    for y, name in ((456, "queue pair: requests"), (492, "queue pair: data")):
        p.box(510, y, 176, 28, "nic")
        p.text(598, y + 19, name, anchor="middle", style="small")
    p.line(382, 470, 508, 470, "nic")
    p.line(382, 506, 508, 506, "nic")
    p.text(446, 464, "groups", anchor="middle", style="small")
    p.text(446, 524, "if wanted", anchor="middle", style="small faint")
    return p.svg()
