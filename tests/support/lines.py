# SPDX-License-Identifier: MIT
"""Lines of a process that is to be finished by communicate() later."""
import os


def next_line(process) -> str:
    """Its next line of output, and not a byte more: what a file object reads ahead, communicate()
    would not see."""
    line = b""
    while not line.endswith(b"\n") and (byte := os.read(process.stdout.fileno(), 1)):
        line += byte
    return line.decode()
