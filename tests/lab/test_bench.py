# SPDX-License-Identifier: MIT
"""./lab bench, from one end to the other: that it measures and writes what it says. No figure
matters."""
import csv
import json
import os
import subprocess
import tempfile
import unittest
from pathlib import Path

import needs_device
from lab.paths import ROOT

LAB = str(ROOT / "lab")


def start(folder, *words, **environment):
    process = subprocess.Popen(
        [LAB, "bench", "--quick", "--repeats", "2", "--results", str(folder), *words],
        env={**os.environ, **environment}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True)
    return process


class Bench(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name) / "results"

    def finish(self, process, status=0):
        try:
            out, err = process.communicate(timeout=1200)
        finally:
            process.kill()
            process.wait()
        self.assertEqual(process.returncode, status, out + err)
        return out

    def table(self, name):
        with open(self.folder / f"{name}.csv", newline="") as file:
            return list(csv.DictReader(file))

    def check_rows(self, *cases):
        """Each of ours has figures, and whatever has none says why."""
        rows = self.table("results")
        for row in rows:
            self.assertIn(row["state"], ("ok", "failed", "skipped"))
            if row["state"] == "ok":
                self.assertGreaterEqual(float(row["median"]), 0, row)
                self.assertGreater(int(row["runs"]), 0, row)
            else:
                self.assertTrue(row["why"], row)
        for case, metric in cases:
            (row,) = (row for row in rows if (row["case"], row["metric"]) == (case, metric))
            self.assertEqual(row["state"], "ok", row)
            self.assertGreater(float(row["median"]), 0, row)

    def test_one_machine(self):
        out = self.finish(
            start(
                self.folder,
                "--only",
                "latency/write,latency/ib_write_lat,rate/write_chained,groups/group,"
                "groups/separate,groups/chained,requests/shared"))
        self.assertIn("latency 64: write/ib_write_lat", out)
        self.assertIn("without a goal:", out)
        self.check_rows(
            ("write", "latency_us"),
            ("write", "p99_us"),
            ("write_chained", "messages_per_s"),
            ("write_chained", "cpu_us_per_message"),
            ("shared", "us_per_request"),
            ("shared", "cpu_us_per_request"),
            ("shared", "posts_per_request"),
            ("shared", "completions_per_request"),
            ("shared", "system_calls_per_request"),
        )
        self.assertEqual(
            {
                (row["case"], row["parameter"])
                for row in self.table("results")
                if row["group"] == "groups"
            },
            {
                (case, count)
                for case in ("separate", "chained", "group")
                for count in ("4", "16", "64", "255")
            })
        runs = self.table("runs")
        self.assertEqual({run["repeat"] for run in runs}, {"0", "1"})
        ratios = {ratio["name"]: ratio for ratio in self.table("ratios")}
        self.assertEqual(set(ratios), {"write/ib_write_lat", "group/separate", "group/chained"})
        self.assertEqual(ratios["write/ib_write_lat"]["limit"], "<= 1.03")
        # Two repeats decide nothing.
        self.assertIn(ratios["write/ib_write_lat"]["state"], ("undecided", "skipped"))
        machine = json.loads((self.folder / "machine.json").read_text())
        for name in (
            "date", "host", "cpu", "cpus", "kernel", "emulated", "device", "driver", "node_type",
            "link_layer", "mtu", "versions", "options"
        ):
            self.assertTrue(machine[name], name)
        # A tarball has no commit, and a machine may have no git.
        self.assertRegex(machine["commit"] or "", r"^([0-9a-f]{12}\+?)?$")
        self.assertEqual(machine["options"]["only"][0], "latency/write")

    def test_server_by_ssh(self):
        """The other machine is this one, and what is run there is what ssh would run."""
        ssh = self.folder.parent / "ssh"
        ssh.write_text(f'#!/bin/sh\necho "$1" >> "{ssh}.log"\nshift\nexec sh -c "$*"\n')
        ssh.chmod(0o755)
        self.finish(
            start(
                self.folder, "--only", "latency/send", "--repeats", "1", "--server", "other",
                BENCH_SSH=str(ssh)))
        self.assertEqual(Path(f"{ssh}.log").read_text(), "other\n")
        self.check_rows(("send", "latency_us"))
        self.assertEqual(
            json.loads((self.folder / "machine.json").read_text())["server"]["device"],
            needs_device.PLACE.device)

    def test_server_that_cannot_be_reached(self):
        process = start(
            self.folder, "--only", "latency/send", "--server", "nowhere", BENCH_SSH="false")
        _, err = process.communicate(timeout=600)
        self.assertEqual(
            (process.returncode, "the agent on nowhere did not start" in err), (1, True), err)

    def test_wrong_words(self):
        for words, says in (
            (["--only", "latncy"], "there is no latncy to measure (did you mean latency?)"),
            (["--repeats", "0"], "more than 0"),
            (["--results", "/proc/x"], "cannot make the folder /proc/x"),
        ):
            process = start(self.folder, *words)
            out, err = process.communicate(timeout=600)
            self.assertIn(process.returncode, (1, 2))
            self.assertEqual((out, err.count("\n")), ("", 1), err)
            self.assertIn(says, err)


if __name__ == "__main__":
    needs_device.main()
