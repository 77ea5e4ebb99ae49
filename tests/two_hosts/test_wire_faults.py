# SPDX-License-Identifier: MIT
"""What a bad wire does, and that it can be seen: loss is survived, a cut is reported."""
import subprocess
import unittest

import two_hosts
from lab import examples
from lab.machine.tap import Tap
from lab.wire import packets
from two_hosts import A, B, BUILD, lab, on, pcap

SIZE = 655_360


class Faults(unittest.TestCase):
    def setUp(self):
        self.addCleanup(lab, "hosts", "repair")

    def transfer(self, file):
        """write_with_imm, which compares a checksum; its packets as b, the client, saw them. Not
        ibv_rc_pingpong: it leaves as soon as it has its last completion, and if the peer's last
        acknowledgement was lost, that waits forever."""
        with Tap(B, file):
            outcome = examples.run(
                A, BUILD, "write_with_imm", "pair", ["--size", str(SIZE)], client_place=B)
        self.assertFalse(outcome.failed, outcome.text())
        self.assertIn(
            f"received {SIZE} bytes in 160 fragments, 40 messages, checksum right", outcome.text())
        return packets.read(file)

    @staticmethod
    def sent_twice(captured):
        """PSNs of data packets that b sent more than once."""
        psns = [
            packet.psn
            for packet in captured
            if packet.host == "b" and packet.name.startswith("RDMA WRITE")
        ]
        return {psn for psn in psns if psns.count(psn) > 1}

    def test_transfer_survives_loss(self):
        whole = self.transfer(pcap("test"))
        lab("hosts", "lose", "5%")
        lossy = self.transfer(pcap("test"))
        # A slow machine acknowledges late, so that something is sent again on a perfect wire, too;
        # but only where packets are lost does the receiver find a gap.
        missed, missed_lossy = (
            sum("PSN sequence error" in packet.nak for packet in seen) for seen in (whole, lossy))
        print(
            f"  gaps: {missed} in {len(whole)} packets, at 5% loss {missed_lossy} in {len(lossy)}",
            flush=True)
        self.assertEqual(missed, 0)
        self.assertGreater(missed_lossy, 5)
        self.assertGreater(len(self.sent_twice(lossy)), 5)

    def test_delay_is_seen(self):
        lab("hosts", "delay", "20ms")
        result = lab("capture", "02_send_recv")
        times = [float(line.split()[0]) for line in result.stdout.splitlines()[1:]]
        self.assertGreater(times[1] - times[0], 39)  # there and back

    def test_reordering_is_repaired(self):
        lab("hosts", "reorder", "5%")
        self.assertIn(
            "NAK, PSN sequence error", {packet.nak for packet in self.transfer(pcap("test"))})

    def test_cut_ends_in_retry_exceeded(self):
        """hold_rts.cpp holds the client on its way to RTS; then the cable is pulled."""
        program = str(BUILD / "examples/send_recv")
        server = subprocess.Popen(
            A.wrap([program, "--timeout", "5"]), stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True)
        self.addCleanup(server.kill)
        port = next(line.split()[-1] for line in server.stdout if line.startswith("listening"))
        # LD_PRELOAD takes a space in a path for the end of it.
        on("b", "cp", str(BUILD / "tests/two_hosts/libhold_rts.so"), "/tmp/hold.so")
        with Tap(B, pcap("test")):
            argv = B.wrap(
                ["env", "LD_PRELOAD=/tmp/hold.so", program, "--host", A.address, "--tcp-port", port]
            )
            client = subprocess.Popen(
                argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                text=True)
            self.addCleanup(client.kill)
            self.assertTrue(any(line == "at the breakpoint\n" for line in client.stdout))
            lab("hosts", "cut")
            said = client.communicate("on\n", timeout=600)[0]
        self.assertEqual(client.returncode, 1, said)
        self.assertIn("status 12, transport retry counter exceeded", said)
        sent = packets.read(pcap("test"))
        self.assertEqual({(packet.host, packet.name) for packet in sent}, {("b", "SEND Only")})
        self.assertEqual(len({packet.psn for packet in sent}), 1)
        self.assertEqual(len(sent), 7, "once, and retry_cnt times again")
        self.assertIn(
            "the peer's 'done': only 0 of 4 bytes came within 5 s",
            server.communicate(timeout=600)[0])

    def test_bad_values(self):
        for words, said in (
            (("lose", "x"), "lose 5%"),
            (("delay", "10"), "delay 10ms"),
            (("lose",), "PERCENT"),
            (("spill",), "invalid choice"),
            (("lose", "100%"), "lose 5%"),
        ):
            with self.subTest(words):
                self.assertIn(said, lab("hosts", *words, status=2).stderr)

    def test_status_says_what_is_wrong(self):
        for words, said in (
            (("lose", "2.5"), "loss 2.5%"),
            (("cut",), "cut"),
            (("repair",), "perfect"),
        ):
            lab("hosts", *words)
            self.assertIn(f"the wire: {said}", lab("hosts").stdout)


if __name__ == "__main__":
    two_hosts.main()
