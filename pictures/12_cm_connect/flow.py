# SPDX-License-Identifier: MIT
from drawing.picture import Picture

SERVER, CLIENT = 250, 550


def draw() -> str:
    p = Picture(
        900,
        "The two flows of a connection by rdma_cm, and where each waits for the other",
        (
            "The server listens. The client resolves address and route, creates its queue pair and"
            " asks: REQ, which the server sees as CONNECT_REQUEST. The server creates its own queue"
            " pair, posts a receive and accepts: REP. The client answers RTU, and both see"
            " ESTABLISHED. Either side's rdma_disconnect is seen by the other as DISCONNECTED."))
    for x, name, role in ((SERVER, "server", "server"), (CLIENT, "client", "client")):
        p.box(x - 120, 10, 240, 34, role)
        p.text(x, 32, name, style="bold", anchor="middle")
        p.line(x, 44, x, 890, role)

    def does(x, y, call, note=""):
        left = x == SERVER
        p.parts.append(
            f'<circle class="t-{"server" if left else "client"}" cx="{x}" cy="{y}" r="4"/>')
        p.text(
            x + (-12 if left else 12), y + 5, call, anchor="end" if left else "start", style="code")
        if note:
            p.text(
                x + (-12 if left else 12), y + 22, note, anchor="end" if left else "start",
                style="faint small")

    def event(x, y, name, note=""):
        left = x == SERVER
        p.box(x - 170 if left else x + 10, y - 13, 160, 26, "nic")
        p.text(x - 90 if left else x + 90, y + 5, name, style="bold small", anchor="middle")
        if note:
            p.text(
                x + (-12 if left else 12), y + 30, note, anchor="end" if left else "start",
                style="faint small")

    def sleeps(x, top, bottom):
        p.parts.insert(
            0,
            (
                f'<rect class="b-plain" x="{x - 5}" y="{top}" width="10" height="{bottom - top}"'
                ' rx="4"/>'))

    does(SERVER, 70, "rdma_bind_addr, rdma_listen")
    sleeps(SERVER, 84, 292)
    does(CLIENT, 70, "rdma_resolve_addr")
    event(CLIENT, 100, "ADDR_RESOLVED", "by which of my devices: id->verbs")
    does(CLIENT, 155, "rdma_resolve_route")
    event(CLIENT, 185, "ROUTE_RESOLVED")
    does(CLIENT, 220, "rdma_create_qp", "QP in INIT")
    does(CLIENT, 262, "ibv_post_recv, rdma_connect")
    p.arrow(
        CLIENT - 6, 272, SERVER + 6, 298, "client", label="REQ: QPN, PSN, private data", above=10)
    sleeps(CLIENT, 280, 440)
    event(SERVER, 305, "CONNECT_REQUEST", "a new id, with its device")
    does(SERVER, 360, "rdma_create_qp", "QP in INIT")
    does(SERVER, 402, "ibv_post_recv, rdma_accept", "QP to RTR, to RTS")
    p.arrow(
        SERVER + 6, 412, CLIENT - 6, 438, "server", label="REP: QPN, PSN, private data", above=10)
    sleeps(SERVER, 430, 492)
    p.text(CLIENT + 12, 447, "librdmacm: QP to RTR, to RTS", style="faint small")
    p.arrow(CLIENT - 6, 465, SERVER + 6, 491, "client", label="RTU: ready to use", above=10)
    event(CLIENT, 475, "ESTABLISHED")
    event(SERVER, 500, "ESTABLISHED")
    p.arrow(CLIENT - 6, 525, SERVER + 6, 540, "client", label="SEND: my description", above=8)
    does(SERVER, 548, "completion of the receive")
    p.arrow(SERVER + 6, 565, CLIENT - 6, 580, "server", label="SEND: my description", above=8)
    does(CLIENT, 588, "completion of the receive")
    sleeps(SERVER, 575, 752)
    p.arrow(CLIENT - 6, 615, SERVER + 6, 615, "memory", label="WRITE")
    p.arrow(CLIENT - 6, 655, SERVER + 6, 655, "memory", label="READ, and its response")
    does(CLIENT, 680, "compare")
    p.text(SERVER - 12, 640, "the program sleeps;", anchor="end", style="faint")
    p.text(SERVER - 12, 660, "its NIC works", anchor="end", style="faint")
    does(CLIENT, 722, "rdma_disconnect", "QP to ERR")
    p.arrow(CLIENT - 6, 732, SERVER + 6, 758, "client", label="DREQ", above=10)
    sleeps(CLIENT, 750, 835)
    event(SERVER, 765, "DISCONNECTED")
    does(SERVER, 800, "rdma_disconnect", "QP to ERR")
    p.arrow(SERVER + 6, 808, CLIENT - 6, 834, "server", label="DREP", above=10)
    event(CLIENT, 842, "DISCONNECTED")
    does(SERVER, 865, "destroy: QP, CQ, MR, PD, id")
    does(CLIENT, 880, "destroy")
    p.box(20, 832, 10, 22, "plain")
    p.text(38, 848, "asleep", style="faint small")
    return p.svg()
