# SPDX-License-Identifier: MIT
from drawing.picture import Picture

# The first packet of lesson 02, as ./lab capture 02 recorded it.
PACKET = bytes.fromhex(
    "0200000000010200000000020800"
    "4500006c6aae40004011bb360a4d00020a4d0001"
    "c3c012b700580000"
    "0400ffff0000002080e7160b" + b"hello from the client".ljust(64, b"\0").hex() + "1ee72a5e")
# The parts of it, from the outside in: name, bytes, what it is for, colour.
PARTS = [
    ("Ethernet", 14, "MAC addresses", "plain"),
    ("IPv4", 20, "10.77.0.2 to 10.77.0.1", "plain"),
    ("UDP", 8, "to port 4791", "plain"),
    ("BTH", 12, "base transport header", "client"),
    ("payload", 64, "the message", "memory"),
    ("ICRC", 4, "checksum", "nic"),
]
# Field, bytes, its value here.
BTH = [
    ("opcode", 1, "0x04 SEND Only"),
    ("flags", 1, "S M pad"),
    ("partition key", 2, "0xffff"),
    ("F B", 1, "ECN"),
    ("destination QP", 3, "0x000020"),
    ("A", 1, "ack. req."),
    ("PSN", 3, "0xe7160b"),
]
# What may stand between BTH and payload: name, fields with bytes, which packets have it.
EXTENDED = [
    ("DETH", [("Q_Key", 4), ("", 1), ("source QP", 3)], "every packet of a UD queue pair"),
    (
        "RETH", [("virtual address", 8), ("R_Key", 4), ("DMA length", 4)],
        "RDMA WRITE First and Only, RDMA READ Request"),
    (
        "AtomicETH", [("virtual address", 8), ("R_Key", 4), ("swap or add", 8), ("compare", 8)],
        "CmpSwap, FetchAdd"),
    (
        "AETH", [("syndrome", 1), ("MSN", 3)],
        "acknowledgements; RDMA READ Response First, Last and Only"),
    ("AtomicAckETH", [("original value", 8)], "ATOMIC Acknowledge"),
    ("ImmDt", [("immediate data", 4)], "SEND and RDMA WRITE, Last and Only, with Immediate"),
    ("IETH", [("R_Key", 4)], "SEND Last and Only with Invalidate"),
]


def draw() -> str:
    p = Picture(
        760,
        "A RoCEv2 packet, byte by byte",
        (
            "The packet of lesson 02's first SEND: Ethernet, IPv4, UDP, base transport header,"
            " payload and ICRC; the fields of the base transport header; and the headers that other"
            " packets have behind it."))
    x = 10.0
    for name, size, what, role in PARTS:
        width = {"Ethernet": 135, "IPv4": 160, "UDP": 105, "BTH": 155, "payload": 132, "ICRC": 103}[
            name]
        p.box(x, 10, width - 4, 62, role, f"{name}, {size} B")
        p.text(x + 10, 56, what, style="small")
        x += width
    parts = [role for _, size, _, role in PARTS for _ in range(size)]
    for number, byte in enumerate(PACKET):
        row, column = divmod(number, 16)
        p.text(110 + 38 * column, 108 + 21 * row, f"{byte:02x}", style="code", role=parts[number])
    for row in range(0, len(PACKET), 16):
        p.text(60, 108 + 21 * row // 16, f"{row:04x}", style="code faint")
    p.text(10, 300, "The BTH, four bytes in a line", style="bold")
    offset = 0
    for name, size, value in BTH:
        row, column = divmod(offset, 4)
        p.box(10 + 195 * column, 312 + 46 * row, 195 * size - 4, 42, "client")
        p.text(20 + 195 * column, 330 + 46 * row, name, style="bold small")
        p.text(20 + 195 * column, 346 + 46 * row, value, style="code")
        offset += size
    p.text(10, 482, "Between BTH and payload, where a packet needs it", style="bold")
    for number, (name, fields, where) in enumerate(EXTENDED):
        y = 494 + 37 * number
        p.text(10, y + 20, name, style="bold", role="client")
        x = 132.0
        for field, size in fields:
            label = f"{field or 'reserved'}, {size}"
            width = 6.6 * len(label) + 14
            p.box(x, y, width, 30, "client")
            p.text(x + width / 2, y + 19, label, style="small", anchor="middle")
            x += width + 2
        p.text(x + 8, y + 19, where, style="small faint")
    return p.svg()
