# SPDX-License-Identifier: MIT
"""The packets that the lessons promise, counted by the device itself. Nothing else may use it
meanwhile."""
import re
import subprocess
import unittest

import needs_device
from lab import examples, variants

PLACE = needs_device.PLACE


def counters():
    output = subprocess.run(
        PLACE.wrap(["rdma", "statistic", "show", "link", f"{PLACE.device}/1"]), capture_output=True,
        text=True, check=True).stdout
    return {name: int(value) for name, value in re.findall(r"(\w+) (\d+)", output)}


@unittest.skipUnless(PLACE.device.startswith("rxe"), "other devices count other things")
class Wire(unittest.TestCase):
    def grown_by(self, program):
        before = counters()
        # The server of a changed program waits in vain for as long as this.
        examples.run(PLACE, needs_device.BUILD, program, "pair", ["--timeout", "5"])
        return {
            name: value - before[name]
            for name, value in counters().items()
            if value != before[name] and not name.endswith("_bytes")
        }

    def test_send_recv_takes_four_packets(self):
        """Packets only: the SoftRoCE of Linux 7.3 counts bytes, too."""
        wanted = {"sent_pkts": 4, "rcvd_pkts": 4, "rdma_sends": 2, "rdma_recvs": 2}
        if variants.since(PLACE, variants.ACKNOWLEDGED_LATER):
            wanted["ack_deferred"] = 2
        self.assertEqual(self.grown_by("send_recv"), wanted)

    def test_rnr_is_tried_seven_times(self):
        grown = self.grown_by("send_recv.no_receive")
        self.assertEqual((grown["rcvd_rnr_err"], grown["retry_rnr_exceeded_err"]), (7, 1), grown)

    def test_wrong_psn_runs_out_of_retries(self):
        grown = self.grown_by("send_recv.wrong_psn")
        self.assertEqual((grown["out_of_seq_request"], grown["retry_exceeded_err"]), (1, 1), grown)


if __name__ == "__main__":
    needs_device.main()
