# SPDX-License-Identifier: MIT
"""A peer for test_exchange_peers.py: takes one side of the exchange and does it wrong in the way it
is told.

    lying_peer.py --lie WHAT [--host HOST] --tcp-port PORT

Other options are those of the programs, and do not count here.
"""
import socket
import sys

LINE = b"0000:000011:123456:00000000000000000000ffff0a4d0001:1024"
MEMORY = b":00007fff00000000:00001234:0000000000001000"
SAYS = {
    "nothing": b"",
    "close": b"",
    "half": LINE[:20],
    "half-and-wait": LINE[:20],
    "too-much": LINE + b"f\0",
    "flood": b"x" * 1_000_000,
    "nonsense": b"GET / HTTP/1.0\n",
    "short-field": LINE.replace(b"000011", b"11") + b"\0",
    "not-hex": LINE.replace(b"123456", b"12x456") + b"\0",
    "no-such-mtu": LINE.replace(b"1024", b"1500") + b"\0",
    "binary": bytes(range(128, 132)) + LINE[4:] + b"\0",
    "no-gid": LINE[:19] + b"0" * 32 + LINE[51:] + b"\0",
    "silent": LINE + b"\0",
    "wrong-done": LINE + b"\0",
    "eager": LINE + b"\0",
    "no-memory": LINE + b"\0",
    "half-memory": LINE + MEMORY[:26] + b"\0",
    "gap": LINE + MEMORY.replace(b":", b";", 1) + b"\0",
    "short-rkey": LINE + MEMORY.replace(b"00001234", b"1234") + b"\0",
    "past-the-end": LINE + MEMORY.replace(b"00007fff00000000", b"fffffffffffffff0") + b"\0",
    "too-small": LINE + MEMORY.replace(b"1000", b"0004") + b"\0",
    "no-such-qp": LINE + MEMORY + b"\0",
    "both-dones": LINE + MEMORY + b"\0",
    "odd-address": LINE + MEMORY.replace(b"7fff00000000", b"7fff00000004") + b"\0",
}


def main():
    said = dict(zip(sys.argv[1::2], sys.argv[2::2]))
    what, host, port = said["--lie"], said.get("--host"), int(said["--tcp-port"])
    if not host:
        server = socket.create_server(("", port))
        print("listening on TCP port", server.getsockname()[1], flush=True)
        connection, _ = server.accept()
        connection.recv(100)
    else:
        connection = socket.create_connection((host, port))
    try:
        connection.sendall(SAYS[what])
        if what in ("close", "half"):
            connection.close()
            return
        if what in ("wrong-done", "silent", "both-dones"):
            connection.recv(100)
            connection.sendall(
                {"wrong-done": b"nope\0", "silent": b"done\0", "both-dones": b"done\0done\0"}[what])
        if what == "both-dones":
            connection.shutdown(socket.SHUT_WR)
        while connection.recv(100):  # until the other side has had enough
            if what == "eager":  # says that it has done whatever it was asked for
                connection.sendall(b"done\0")
    except ConnectionError:
        pass


main()
