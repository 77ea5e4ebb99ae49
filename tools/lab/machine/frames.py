# SPDX-License-Identifier: MIT
"""The frames in which client, daemon and agent talk: job, kind, length, then the data.

One job is one command in the machine. Data flows against credit, so that a reader that is slow
holds up its own command and nobody else's: a side sends at most WINDOW bytes that the other side
has not yet passed on and answered with CREDIT.
"""
import struct

START, STDIN, SIGNAL, RESIZE, CREDIT, KILL = range(1, 7)  # towards the agent
# From the agent; CRASH comes from the daemon.
STDOUT, STDERR, EXIT, REFUSED, READY, CRASH = range(7, 13)
# Between client, daemon and agent; no command sees them.
HELLO, STOP, STATUS, PING = range(13, 17)

HEADER = struct.Struct("<IBI")
NUMBER = struct.Struct("<i")
WINDOW = 1 << 20
CHUNK = 1 << 16


def pack(job, kind, data=b""):
    return HEADER.pack(job, kind, len(data)) + data


class Splitter:
    """Cuts a stream of bytes into frames."""

    def __init__(self):
        self.buffer = bytearray()

    def feed(self, data):
        """Yields (job, kind, data) for each frame that is complete."""
        self.buffer += data
        while len(self.buffer) >= HEADER.size:
            job, kind, length = HEADER.unpack_from(self.buffer)
            end = HEADER.size + length
            if len(self.buffer) < end:
                return
            frame = bytes(self.buffer[HEADER.size : end])
            del self.buffer[:end]
            yield job, kind, frame
