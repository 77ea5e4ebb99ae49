# SPDX-License-Identifier: MIT
from drawing.picture import Picture


def draw() -> str:
    p = Picture(
        300,
        "Two protection domains: an rkey is good only in its own",
        (
            "The server's context has two protection domains. Domain A holds queue pair A and"
            " region A, domain B holds queue pair B and region B. Client A is connected to queue"
            " pair A. Its WRITE with the rkey of region A is allowed. Its WRITE with the rkey of"
            " region B is refused with a remote access error, although the key exists and the"
            " region is open."))
    p.text(10, 20, "client A", style="bold", role="client")
    p.text(330, 20, "server: one device, one context", style="bold", role="server")
    p.box(10, 34, 150, 256, "client", "queue pair", ("connected to QP A",))
    p.box(330, 34, 460, 120, "server", "protection domain A")
    p.box(330, 170, 460, 120, "server", "protection domain B")
    p.box(350, 66, 160, 72, "nic", "queue pair A", ("client A's peer",))
    p.box(350, 202, 160, 72, "nic", "queue pair B", ("somebody else's",))
    p.box(600, 66, 170, 72, "memory", "region A", ("rkey 0x2be",))
    p.box(600, 202, 170, 72, "memory", "region B", ("rkey 0x3c1",))
    p.arrow(160, 88, 348, 88, "client")
    p.text(254, 80, "WRITE, rkey 0x2be", style="small", anchor="middle")
    p.arrow(510, 88, 598, 88, "nic")
    p.text(554, 80, "allowed", style="small", anchor="middle")
    p.arrow(160, 124, 348, 124, "client")
    p.text(254, 116, "WRITE, rkey 0x3c1", style="small", anchor="middle")
    p.line(510, 124, 560, 124, "bad")
    p.line(560, 124, 560, 228, "bad", dashed=True)
    p.line(560, 228, 576, 228, "bad", dashed=True)
    p.line(570, 222, 582, 234, "bad")
    p.line(570, 234, 582, 222, "bad")
    p.text(568, 192, "refused", style="small", role="bad")
    p.arrow(348, 146, 162, 200, "bad")
    p.text(172, 226, "NAK: remote access", style="small", role="bad")
    p.text(172, 242, "error, status 10", style="small", role="bad")
    return p.svg()
