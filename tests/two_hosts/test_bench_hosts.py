# SPDX-License-Identifier: MIT
"""./lab bench with the servers on host a and the clients on host b."""
import csv
import json
import tempfile
import unittest
from pathlib import Path

import two_hosts
from two_hosts import lab


class Bench(unittest.TestCase):
    def test_two_hosts(self):
        with tempfile.TemporaryDirectory() as folder:
            lab(
                "bench", "--two-hosts", "--quick", "--repeats", "1", "--only",
                "latency/write_imm_events,latency/ib_send_lat,requests/shared", "--results", folder)
            with open(Path(folder) / "results.csv", newline="") as file:
                rows = {(row["case"], row["metric"]): row for row in csv.DictReader(file)}
            machine = json.loads((Path(folder) / "machine.json").read_text())
        for case, metric in (
            ("write_imm_events", "latency_us"),
            ("ib_send_lat", "latency_us"),
            ("shared", "us_per_request"),
        ):
            # There is one repeat, so it cannot spread.
            self.assertEqual(rows[case, metric]["state"], "ok", rows)
            self.assertGreater(float(rows[case, metric]["median"]), 0)
        self.assertEqual(
            (machine["options"]["two_hosts"], machine["server"]["device"]),
            (True, two_hosts.A.device))


if __name__ == "__main__":
    two_hosts.main()
