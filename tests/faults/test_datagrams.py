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
    # A datagram that finds no receive is lost, and with it the refusal that a test waits for. This
    # is more than a peer sends.
    SERVER = [PROGRAM, "--receives", "1024"]

    def test_server_refuses_what_is_not_right(self):
        status, said, client, lies = pair(self.SERVER, [PEER, "messages"])
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
        # it has taken the right ones all the while, and neither with a wrong Q_Key or number
        self.assertIn("12 different messages from 1 peers", said)

    def test_server_has_room_for_so_many_and_no_more(self):
        status, said, client, lies = pair(self.SERVER, [PEER, "peers"])
        self.assertEqual((status, client), (0, 0), said + lies)
        self.assertEqual(said.count("no place for one peer more"), 4)
        self.assertIn("20 different messages from 16 peers", said)

    def test_client_believes_only_the_server(self):
        # One QP has room for all that is sent for its first message: five lies, then the truth.
        _, _, status, said = pair([PEER, "sometimes"], [self.PROGRAM, "--qps", "1"])
        self.assertEqual(status, 0, said)
        for why in (
            "shorter than the header", "no acknowledgement of what was sent",
            "not from the server's QP", "its length is not what has arrived"
        ):
            self.assertIn(why, said)
        few = ["--qps", "1", "--messages", "4", "--tries", "3", "--resend-ms", "50"]
        _, _, status, said = pair([PEER, "always"], [self.PROGRAM, *few])
        self.assertEqual(status, 1, said)
        self.assertIn("acknowledged 0 of 4 messages; sending again 3 times brought no more", said)

    def test_message_that_is_too_long_for_a_packet(self):
        status, said, client, refused = pair([self.PROGRAM], [self.PROGRAM, "--size", "5000"])
        self.assertEqual((status, client), (1, 1), said + refused)
        self.assertRegex(refused, r"a datagram of 5012 bytes: a packet holds \d+")

    def test_message_that_is_too_long_for_the_peer(self):
        status, said, client, refused = pair(
            [self.PROGRAM, "--mtu", "256"], [self.PROGRAM, "--size", "400"])
        self.assertEqual((status, client), (1, 1), said + refused)
        self.assertIn("a datagram of 412 bytes: a packet holds 256", refused)

    def test_peer_that_never_sends(self):
        status, said, *_ = pair([self.PROGRAM, "--timeout", "2"], [PEER, "silent"])
        self.assertEqual(status, 1, said)
        self.assertIn("the client: neither sent anything nor finished in time", said)


if __name__ == "__main__":
    needs_device.main()
