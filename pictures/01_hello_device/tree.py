# SPDX-License-Identifier: MIT
from drawing.picture import Picture


def draw() -> str:
    p = Picture(
        376, "A device, its port and the port's GID table",
        "Each level with the verb that asks for it; GID index 1 is the one that is chosen.")
    p.text(30, 24, "what there is", style="faint")
    p.text(500, 24, "the verb that asks", style="faint")
    p.box(10, 40, 450, 60, "nic", "rxe0, a device", ["firmware, limits, capabilities"])
    p.text(500, 62, "ibv_get_device_list", style="code")
    p.text(500, 82, "ibv_open_device", style="code")
    p.text(500, 102, "ibv_query_device_ex", style="code")
    p.line(35, 100, 35, 163)
    p.arrow(35, 163, 60, 163)
    p.box(60, 130, 400, 64, "plain", "port 1", ["active, Ethernet, path MTU 1024, LID 0"])
    p.text(500, 166, "ibv_query_port", style="code")
    p.line(85, 194, 85, 316)
    rows = [
        ("GID 0   fe80::ff:fe00:1", "link-local: this segment only", "plain"),
        ("GID 1   ::ffff:10.77.0.1", "RoCEv2 over IPv4: chosen", "server"),
        ("GID 2   fd77::1", "RoCEv2 over IPv6", "plain"),
    ]
    for number, (gid, what, role) in enumerate(rows):
        y = 212 + 46 * number
        p.box(110, y, 350, 38, role)
        p.text(120, y + 24, gid, style="code bold" if role == "server" else "code")
        p.arrow(85, y + 19, 110, y + 19)
        p.text(500, y + 24, what, role="server" if role == "server" else "")
    p.text(110, 364, "GID 3 … : empty entries (ENODATA)", style="faint")
    p.text(500, 364, "ibv_query_gid_ex, for each index", style="code")
    return p.svg()
