# SPDX-License-Identifier: MIT
"""Datagrams of liars and strangers: refused by name, and the program goes on."""
import re
import unittest

import liars
import needs_device

PEER = str(needs_device.BUILD / "tests/faults/lying_datagrams")


def pair(server, client):
    """Exit statuses and outputs of both."""
    outcome = liars.run(server, client)
    said = {role: "".join(f"{line}\n" for line in outcome.of(role)) for role in outcome.status}
    return outcome.status["server"], said["server"], outcome.status["client"], said["client"]


class Datagrams(unittest.TestCase):
    PROGRAM = needs_device.program("datagrams")

    def test_server_refuses_what_is_not_right(self):
        status, said, client, lies = pair([self.PROGRAM], [PEER, "messages"])
        self.assertEqual((status, client), (0, 0), said + lies)
        self.assertEqual(
            re.findall(r"refused a datagram of (\d+) bytes from QP 0x\w{6}: (.*)", said),
            [
                ("0", "shorter than the header"),
                ("5", "shorter than the header"),
                ("16", "not of this example"),
                ("16", "of another version"),
                *[("16", "its length is not what has arrived")] * 3,
                ("16", "of an unknown kind"),
                ("12", "an acknowledgement of nothing"),
                ("16", "its sequence number is too high"),
            ],
        )  # and after ten it says no more
        # it has answered the right ones all the while
        self.assertEqual(lies, "acknowledged 1\n" * 12)
        self.assertIn("1 different messages from 1 peers", said)

    def test_server_has_room_for_so_many_and_no_more(self):
        status, said, client, lies = pair([self.PROGRAM], [PEER, "peers"])
        self.assertEqual((status, client), (0, 0), said + lies)
        self.assertEqual(lies, "acknowledged 1\n" * 16 + "acknowledged 0\n" * 4)
        self.assertEqual(said.count("no place for one peer more"), 4)
        self.assertIn("16 different messages from 16 peers", said)

    def test_client_believes_only_the_server(self):
        _, _, status, said = pair([PEER, "sometimes"], [self.PROGRAM])
        self.assertEqual(status, 0, said)
        few = ["--qps", "1", "--messages", "4", "--tries", "3", "--resend-ms", "50"]
        _, _, status, said = pair([PEER, "always"], [self.PROGRAM, *few])
        self.assertEqual(status, 1, said)
        self.assertIn("acknowledged 0 of 4 messages; sending again 3 times brought no more", said)
        for why in (
            "shorter than the header", "no acknowledgement of what was sent",
            "not from the server's QP", "its length is not what has arrived"
        ):
            self.assertIn(why, said)

    def test_message_that_is_too_long_for_a_packet(self):
        status, said, client, refused = pair([self.PROGRAM], [self.PROGRAM, "--size", "5000"])
        self.assertEqual((status, client), (1, 1), said + refused)
        self.assertRegex(refused, r"a datagram of 5012 bytes: a packet holds \d+")

    def test_peer_that_never_sends(self):
        status, said, *_ = pair([self.PROGRAM, "--timeout", "2"], [PEER, "silent"])
        self.assertEqual(status, 1, said)
        self.assertIn("the client: neither sent anything nor finished in time", said)


if __name__ == "__main__":
    needs_device.main()
