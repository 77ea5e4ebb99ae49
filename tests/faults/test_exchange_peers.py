# SPDX-License-Identifier: MIT
"""Peers that send too much, too little, nonsense or nothing: an error that says what, and soon."""
import sys

import liars
import needs_device

PEER = [sys.executable, "-S", str(needs_device.ROOT / "tests/faults/lying_peer.py")]
BAD, ENDED = "#bad-exchange", "#peer-ended"
# Both sides of 02_send_recv say the same of these.
ADDRESSES = {
    "nothing": ("0 of 56 bytes came within 2 s", BAD),
    "close": ("the peer's address: the peer closed the connection before it came", ENDED),
    "half": ("closed the connection after 20 of 56 bytes", BAD),
    "half-and-wait": ("only 20 of 56 bytes came within 2 s", BAD),
    "too-much": ("more than the 56 bytes expected", BAD),
    "flood": ("more than the 56 bytes expected", BAD),
    "nonsense": ("is not the rest of LID:QPN:PSN:GID:MTU", BAD),
    "short-field": ("QPN is '11', not 6 hexadecimal digits", BAD),
    "no-such-mtu": ("MTU is '1500', not 0256, 0512, 1024, 2048 or 4096", BAD),
    "not-hex": ("PSN is '12x456', not 6 hexadecimal digits", BAD),
    "binary": ("LID is '\\x80\\x81\\x82\\x83', not 4 hexadecimal digits", BAD),
}
# And both sides of 04_read_write of these.
MEMORY = {
    "no-memory": ("is not LID:QPN:PSN:GID:MTU:ADDRESS:RKEY:LENGTH",),
    "gap": ("is not LID:QPN:PSN:GID:MTU:ADDRESS:RKEY:LENGTH",),
    "half-memory": ("is not the rest of ADDRESS:RKEY:LENGTH",),
    "short-rkey": ("RKEY is '1234', not 8 hexadecimal digits",),
    "past-the-end": ("its memory ends past the last address that there is",),
}
LIES = {
    "send_recv": {
        "server": {
            **ADDRESSES,
            "wrong-done": ("it sent 'nope'",),
            "no-gid": ("ibv_modify_qp(RTR)",),
            # A right address and then silence: the receive is given up.
            "silent": ("the receive: no completion within 2 s",),
        },
        "client": ADDRESSES,
    },
    "read_write": {
        "server": MEMORY,
        "client": {
            **MEMORY,
            "too-small": ("the peer's memory: it shares only 4 bytes",),
            "no-such-qp": ("the WRITE: completed with status 12",),
        },
    },
    "atomics": {
        "client": {
            "too-small": ("the peer's memory: the words are not in it",),
            "odd-address": ("the peer's memory: the words are not in it",),
        }},
    # The peer says that its messages have arrived, or that ours have, and neither is so: nobody
    # sleeps forever for their event.
    "completions": {
        "server": {"eager": ("the completion: no event within 2000 ms",)},
        "client": {"eager": ("a SEND: completed with status 12",)},
    },
}


class LyingPeer(liars.Refused):
    """lying_peer.py does the lying, since it has to be where the device is."""

    def test_lies(self):
        for program, lies in LIES.items():
            self.all_refused(lies, [needs_device.program(program)], PEER)

    def test_two_messages_at_once(self):
        """No lie: a fast client's two words may arrive together."""
        outcome = liars.run([needs_device.program("read_write")], [*PEER, "--lie", "both-dones"])
        self.assertEqual(outcome.status["server"], 0, outcome.text())
        self.assertIn("my memory after", outcome.text())


if __name__ == "__main__":
    needs_device.main()
