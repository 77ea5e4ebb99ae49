# SPDX-License-Identifier: MIT
"""23_shared_client with the server on host a and the clients on host b: one of them ends, freezes
or lies, or the link between them is cut. test_shared_client has the faults that concern one host
alone."""
import time

import two_hosts
import shared_client_cases
from shared_client_cases import BROKE, Liars, Shared  # noqa: F401 (Liars are cases)
from two_hosts import A, B, lab

shared_client_cases.use(two_hosts.BUILD, A, B)


class Ends(Shared):
    test_server_killed = shared_client_cases.Faults.test_server_killed
    test_server_frozen = shared_client_cases.Faults.test_server_frozen
    test_server_drains = shared_client_cases.Faults.test_server_drains
    test_sender_killed = shared_client_cases.Faults.test_sender_killed


class Link(Shared):
    def test_lost_for_a_second(self):
        """The NICs send again what was lost, and no caller hears of it. One host loses what it
        sends: two that began at different times would lose for longer than a second."""
        self.serve()
        self.sender()
        worker = self.attached("--threads", "4", "--seconds", "8", "--timeout", "60")
        self.right(self.attached("--requests", "20"))
        # One tc for both: on a busy machine, a second one may take longer to start than the second.
        lossy = (
            "(echo qdisc replace dev wire root netem limit 100000 loss 100%; sleep 1; "
            "echo qdisc replace dev wire root pfifo limit 100000) | tc -batch -")
        self.at(B, "sh", "-c", lossy)
        self.right(worker)
        self.assertIsNone(self.sending.poll())

    def test_the_packet_that_ends_the_connecting_is_lost(self):
        """The client's RTU never arrives: a datagram (BTH opcode 0x64) to UDP port 4791, of class
        7, the connection manager, with attribute 0x14. The first message says the same, and the
        server answers it. So the connection lasts for longer than the limit for connecting."""
        self.addCleanup(self.at, B, "tc", "qdisc", "delete", "dev", "wire", "clsact")
        self.at(
            B, "sh", "-c",
            "tc qdisc add dev wire clsact && tc filter add dev wire egress protocol ip u32 "
            "match ip protocol 17 0xff match u16 4791 0xffff at 22 match u8 0x64 0xff at 28 "
            "match u8 7 0xff at 49 match u16 0x14 0xffff at 64 action drop")
        self.serve()
        self.sender()
        self.right(self.attached("--threads", "4", "--seconds", "8", "--timeout", "60"))
        self.assertRegex(
            self.at(B, "tc", "-s", "filter", "show", "dev", "wire", "egress"), "dropped [1-9]")
        self.assertIsNone(self.sending.poll())

    def test_lost_for_good(self):
        """Both sides notice, and a caller that waits gets an error. The sender goes on trying,
        and gets through when there is a link."""
        self.addCleanup(lab, "hosts", "repair")
        self.serve("--handler-threads", "10")
        self.sender()
        waiting = self.worker("waiting", "--microseconds", "60000000")
        began = time.monotonic()
        lab("hosts", "cut")
        self.assertIn(f"8 failed: {BROKE}", self.finish(waiting)[0])
        self.assertLess(time.monotonic() - began, 60)  # which the requests would have taken
        self.assertIn("dropped a client", self.server.stderr.readline())
        lab("hosts", "repair")
        self.assertGreater(self.right(self.attached("--patient", "--seconds", "10")), 0)

    def test_lost_while_the_server_drains(self):
        self.addCleanup(lab, "hosts", "repair")
        self.serve("--handler-threads", "10", "--grace", "600")
        self.sender()
        waiting = self.worker("waiting", "--microseconds", "60000000")
        self.server.terminate()
        while self.attached("--requests", "1").wait(60) == 0:  # until the client knows
            pass
        lab("hosts", "cut")
        self.assertIn(f"8 failed: {BROKE}", self.finish(waiting)[0])
        lab("hosts", "repair")


class LinkOfLongResponses(Link):
    responses = "connection"


if __name__ == "__main__":
    two_hosts.main()
