# SPDX-License-Identifier: MIT
"""What is in the buffer of a received datagram, over IPv4 and over IPv6."""
from drawing.picture import Picture


def draw() -> str:
    picture = Picture(
        330,
        "The buffer of a received datagram",
        (
            "40 bytes of header that the NIC writes, then the message. Over IPv4 the header is in"
            " the last 20 of the 40 bytes, over IPv6 and InfiniBand it takes all of them. byte_len"
            " counts both."))
    left, per_byte, message = 110, 8, 320
    middle = left + 40 * per_byte
    for y, name, parts in (
        (
            60,
            "IPv4",
            (
                (0, 20, "not defined", ""),
                (20, 32, "IPv4 header", "TTL, UDP, …"),
                (32, 36, "from", ""),
                (36, 40, "to", ""),
            )),
        (
            150,
            "IPv6, IB",
            (
                (0, 8, "header", "hop limit"),
                (8, 24, "source GID", "the sender's"),
                (24, 40, "destination GID", "ours, or a group"),
            )),
    ):
        picture.text(20, y + 37, name, style="bold")
        for begin, end, title, below in parts:
            x, width = left + begin * per_byte, (end - begin) * per_byte
            picture.box(x, y, width, 64, "plain" if title == "not defined" else "nic")
            picture.text(
                x + width / 2, y + (28 if below else 37), title, style="small", anchor="middle")
            picture.text(x + width / 2, y + 46, below, style="faint small", anchor="middle")
        picture.box(
            middle, y, message, 64, "memory", "the message", ["what the sender's SEND has gathered"]
        )
    for at, number in (
        (left, "0"),
        (left + 20 * per_byte, "20"),
        (middle, "40"),
        (middle + message, "byte_len"),
    ):
        picture.text(at, 48, number, style="code", anchor="middle")
    picture.line(left, 240, middle - 4, 240, "nic")
    picture.text(
        left + 160, 262, "written by the NIC: where it came from", anchor="middle", role="nic")
    picture.line(middle + 4, 240, middle + message, 240, "memory")
    picture.text(middle + 160, 262, "at most one MTU", anchor="middle", role="memory")
    picture.text(
        20, 305, "The sender's queue pair is not in it, but in the completion: src_qp.",
        style="faint")
    return picture.svg()
