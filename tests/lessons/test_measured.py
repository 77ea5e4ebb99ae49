# SPDX-License-Identifier: MIT
"""Plots and tables of a run of ./lab bench: what is valid is shown, what is not is said, and not
every run is published."""
import csv
import itertools
import json
import tempfile
import unittest
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from unittest import mock

from bench import measured, plots, publish
from lab.commands import sync
from lab.errors import LabError
from lab.paths import ROOT
from lab.wire.timeline_svg import pixels

SVG = "{http://www.w3.org/2000/svg}"
RESULTS = "group,case,parameter,metric,unit,median,low,high,runs,state,why".split(",")
RATIOS = "name,group,ours,peer,parameter,metric,ratio,low,high,repeats,limit,state".split(",")
LATENCY = [
    "write", "write_imm", "write_imm_events", "send", "send_events", "read", "ib_write_lat",
    "ib_send_lat", "ib_send_lat -e", "ib_read_lat", "ucx", "libfabric_mean", "rsockets_mean",
    "tcp_mean"]
RATE = [
    "write_separate", "write_chained", "read_1", "ib_write_bw", "ib_write_bw -l 64",
    "ib_read_bw -o 1"]
REQUESTS = ["shared", "shared_no_groups", "own", "tcp", "wide", "narrow"]
PER_REQUEST = [
    "us_per_request", "cpu_us_per_request", "posts_per_request", "completions_per_request",
    "wakes_per_request", "system_calls_per_request"]
SIZES = (8, 64, 1024, 4096, 16384, 65536)


def made_up() -> list:
    """Rows as a run writes them; the figures mean nothing."""
    rows = []

    def add(group, case, parameter, metric, median):
        rows.append(
            dict(
                zip(
                    RESULTS,
                    (
                        group, case, str(parameter), metric, "", f"{median:g}",
                        f"{median * 0.97:g}", f"{median * 1.04:g}", "15", "ok", ""))))

    for number, case in enumerate(LATENCY):
        for size, metric in itertools.product(SIZES, ("latency_us", "p99_us")):
            add("latency", case, size, metric, 50 + 7 * number + size / 90)
    for number, case in enumerate(RATE):
        for size in SIZES:
            add("rate", case, size, "messages_per_s", 20000 + 900 * number - size / 4)
    for number, case in enumerate(("separate", "chained", "group", "ib_write_bw")):
        for slots in (1, 4, 16, 64, 255):
            add("groups", case, slots, "messages_per_s", 20000 * (1 + slots * number / 3))
    for number, case in enumerate(REQUESTS):
        for processes, in_flight, metric in itertools.product((1, 16, 64), (1, 16), PER_REQUEST):
            add(
                "requests", case, f"{processes}x{in_flight}", metric,
                (100 + 30 * number) / in_flight)
    for percent, metric in itertools.product(
        (50, 90, 100), ("request_median_us", "request_p99_us")
    ):
        add("timetable", "shared", percent, metric, percent + (metric == "request_p99_us"))
    return rows


def change(rows: list, state: str, why: str = "", **wanted) -> None:
    """The rows with these words are no longer valid."""
    found = [row for row in rows if all(row[name] == value for name, value in wanted.items())]
    assert found, wanted
    for row in found:
        row.update(state=state, why=why, median="", low="", high="")


def ratio(**words) -> dict:
    return {
        **dict(
            zip(
                RATIOS,
                (
                    "ping-pong", "latency", "write", "ib_write_lat", "8", "latency_us", "1.034",
                    "1.02", "1.05", "15", "<= 1.03", "undecided"))),
        **words}


class Measured(unittest.TestCase):
    def setUp(self):
        temp = tempfile.TemporaryDirectory(prefix="lab measured ")
        self.addCleanup(temp.cleanup)
        self.folder, self.published = Path(temp.name) / "run", Path(temp.name) / "published"
        self.folder.mkdir()
        self.published.mkdir()
        self.rows = made_up()
        self.ratios = [
            ratio(),
            ratio(
                peer="libfabric_mean", ours="write_imm_mean", ratio="", low="", high="",
                repeats="0", limit="< 0.95", state="skipped")]
        self.machine = {
            "date": "2031-02-03T04:05:06Z",
            "host": "h",
            "cpu": "Abacus 9",
            "cpus": 2,
            "kernel": "7.8.9",
            "emulated": "TCG",
            "device": "rxe7",
            "driver": "rdma_rxe",
            "link_layer": "Ethernet",
            "mtu": 1024,
            "versions": {"perftest": "4.5"},
            "commit": "0123456789abcdef",
            "options": {"quick": False, "repeats": 60},
        }
        for module, name in ((measured, "PUBLISHED"), (publish, "PICTURES")):
            patch = mock.patch.object(module, name, self.published)
            patch.start()
            self.addCleanup(patch.stop)

    def write(self, folder=None) -> None:
        folder = folder or self.folder
        for name, head, lines in (
            ("results.csv", RESULTS, self.rows),
            ("ratios.csv", RATIOS, self.ratios),
        ):
            with (folder / name).open("w", newline="") as file:
                writer = csv.DictWriter(file, head)
                writer.writeheader()
                writer.writerows(lines)
        (folder / "machine.json").write_text(json.dumps(self.machine))

    def draw(self) -> dict:
        """The plots of the run, by name, each parsed."""
        self.write()
        return {
            path.stem: ElementTree.parse(path).getroot()
            for path in plots.draw_all(self.folder, self.folder)}

    @staticmethod
    def words(plot) -> str:
        return "\n".join(text.text for text in plot.iter(SVG + "text"))

    @staticmethod
    def points(plot) -> int:
        """Markers of lines, or bars."""
        return len(plot.findall(SVG + "g")) + len(plot.findall(SVG + "rect"))

    # ---- plots

    def test_plots_say_what_they_show(self):
        drawn = self.draw()
        self.assertEqual(list(drawn), ["latency", "groups", "processes", "cpu"])
        for name, plot in drawn.items():
            self.assertGreater(len(plot.find(SVG + "title").text), 10, name)
            self.assertGreater(len(plot.find(SVG + "desc").text), 100, name)
            for part in ("rxe7", "Abacus 9", "emulated", "7.8.9", "2031-02-03"):
                self.assertIn(part, self.words(plot), name)
            self.assertNotIn("Not shown", self.words(plot), name)
            self.assertIn("prefers-color-scheme:dark", plot.find(SVG + "style").text)
        self.assertEqual(self.points(drawn["latency"]), len(LATENCY) * len(SIZES))
        self.assertEqual(self.points(drawn["groups"]), 4 * 5)
        self.assertEqual(self.points(drawn["processes"]), 4 * 6)
        self.assertEqual(self.points(drawn["cpu"]), 4 * 6)
        self.assertIn(
            "WRITE: 50.1 at 8 B to 778 at 64 KiB", drawn["latency"].find(SVG + "desc").text)

    def test_what_is_not_valid_has_no_point_and_a_note(self):
        change(self.rows, "failed", "no end", group="latency", case="read", parameter="1024")
        change(
            self.rows, "failed", "<it> & \x1bthat\nhangs", group="latency", case="ucx",
            parameter="65536")
        change(self.rows, "skipped", "not installed", group="latency", case="libfabric_mean")
        change(self.rows, "failed", group="requests", case="own", parameter="16x16")
        drawn = self.draw()
        self.assertEqual(self.points(drawn["latency"]), (len(LATENCY) - 1) * len(SIZES) - 2)
        notes = self.words(drawn["latency"])
        self.assertIn("Not shown: READ at 1 KiB: failed (no end)", notes)
        self.assertIn("Not shown: UCX at 64 KiB: failed (<it> & that hangs)", notes)
        self.assertIn("Not shown: libfabric (mean): skipped (not installed)", notes)
        for name in ("processes", "cpu"):
            self.assertEqual(self.points(drawn[name]), 4 * 6 - 1, name)
            self.assertIn(
                "Not shown: own connections at 16 processes, 16 requests in flight: failed",
                self.words(drawn[name]))

    def test_no_line_leads_over_a_gap(self):
        change(self.rows, "failed", group="groups", case="chained", parameter="16")
        plot = self.draw()["groups"]
        lines = sorted(
            path.get("d").count("M")
            for path in plot.findall(SVG + "path")
            if "line" in path.get("class").split())
        self.assertEqual(lines, [1, 1, 1, 2])

    def test_a_single_row_says_that_all_failed(self):
        for metric in ("", "latency_us"):
            self.rows = [row for row in made_up() if row["case"] != "ucx"]
            self.rows.append(
                {
                    **dict.fromkeys(RESULTS, ""),
                    "group": "latency",
                    "case": "ucx",
                    "metric": metric,
                    "state": "failed",
                    "why": "no device",
                })
            self.assertIn("Not shown: UCX: failed (no device)", self.words(self.draw()["latency"]))
            self.assertIn("| UCX |" + " failed |" * len(SIZES), self.table("latency"))

    def test_nothing_valid_is_no_error(self):
        change(self.rows, "failed", "the device is gone")
        for name, plot in self.draw().items():
            self.assertEqual(self.points(plot), 0, name)
            self.assertIn("failed (the device is gone)", self.words(plot).replace("\n", " "), name)

    def test_a_part_of_the_run_has_a_part_of_the_plots(self):
        self.rows = [row for row in self.rows if row["group"] in ("rate", "groups")]
        self.assertEqual(list(self.draw()), ["groups"])

    def test_no_text_lies_on_another(self):
        for far in (1, 30):  # lines near each other, and far apart
            self.rows = made_up()
            for row in self.rows:
                if row["case"] in ("tcp", "shared"):
                    row.update(
                        {name: str(float(row[name]) * far) for name in ("median", "low", "high")})
            change(self.rows, "failed", "a long reason " * 20, case="ib_read_lat")
            for name, plot in self.draw().items():
                boxes = []
                for text in plot.iter(SVG + "text"):
                    width = pixels(text.text) * (1.2 if "bold" in text.get("class") else 1)
                    left = (
                        float(text.get("x"))
                        - {"start": 0, "middle": width / 2, "end": width}[text.get("text-anchor")])
                    boxes.append((left, float(text.get("y")), width, text.text))
                    self.assertGreaterEqual(left, 0, (name, text.text))
                    self.assertLess(left + width, 800, (name, text.text))
                for (x1, y1, width1, one), (x2, y2, width2, two) in itertools.combinations(
                    boxes, 2
                ):
                    self.assertFalse(
                        abs(y1 - y2) < 12 and x1 < x2 + width2 and x2 < x1 + width1,
                        (name, one, two))

    # ---- tables

    def table(self, name: str) -> str:
        self.write(self.published)
        return sync.renewed(
            f"<!-- table {name} -->\nold\n<!-- end -->\n", ROOT / "lessons/28_measure.md")

    def test_tables(self):
        change(self.rows, "failed", "no end", group="latency", case="read", parameter="1024")
        change(self.rows, "skipped", group="rate", case="ib_read_bw -o 1")
        for name, parts in {
            "latency": [
                "| 8 B | 64 B | 1 KiB | 4 KiB | 16 KiB | 64 KiB |", "|---|---:|",
                "| WRITE | 50.1 | 50.7 | 61.4 |", "| READ | 85.1 | 85.7 | failed | 131 |",
                "| `ib_send_lat -e` |"],
            "p99": ["99th percentile", "| failed |"],
            "rate": [
                "| `ib_write_bw -l 64` | 23,598 |", "| `ib_read_bw -o 1` |" + " skipped |" * 6],
            "groups": ["| 1 | 4 | 16 | 64 | 255 |", "| one group | 33,333 |"],
            "requests": [
                "| 1 × 1 | 16 × 1 | 64 × 1 | 1 × 16 | 16 × 16 | 64 × 16 |",
                "| own connections | 160 | 160 | 160 | 10.0 |"],
            "cpu": ["µs of CPU", "| TCP, epoll | 190 |"],
            "timetable": [
                "| 50 %, median | 50 %, 99th percentile | 90 %, median |",
                "| shared client | 50.0 | 51.0 | 90.0 | 91.0 | 100 | 101 |"],
            "counters": [
                "| 64 processes, for a request | posts | completions | wakes | system calls |",
                "| shared client, 16 requests in flight | 6.25 | 6.25 | 6.25 | 6.25 |"],
            "goals": [
                (
                    "| WRITE / `ib_write_lat` | latency | 8 B | 1.034 | 1.020–1.050 | ≤ 1.03 |"
                    " undecided |"),
                (
                    "| WRITE_WITH_IMM, polling (mean) / libfabric (mean) | latency | 8 B | – | – |"
                    " < 0.95 | skipped |")],
            "machine": [
                "rxe7 (rdma_rxe, Ethernet, MTU 1024); 2 × Abacus 9, emulated machine; Linux 7.8.9;"
                " 2031-02-03; perftest 4.5; commit 0123456789ab."],
        }.items():
            text = self.table(name)
            self.assertNotIn("old", text)
            for part in parts:
                self.assertIn(part, text, name)
            for row in [line for line in text.splitlines() if line.startswith("|")]:
                self.assertEqual(row.count("|"), text.splitlines()[2].count("|"), row)

    def test_a_table_of_nothing_is_an_error(self):
        with self.assertRaisesRegex(
            LabError, "28_measure.md:1: .*no results folder.*results.csv"
        ):
            sync.renewed("<!-- table latency -->\n<!-- end -->\n", ROOT / "lessons/28_measure.md")
        self.rows = [row for row in self.rows if row["group"] != "rate"]
        with self.assertRaisesRegex(
            LabError, "28_measure.md:1: the published run has not measured this"
        ):
            self.table("rate")

    # ---- publish

    def publish(self) -> None:
        self.write()
        with mock.patch.object(sync, "renew") as renew:
            publish.publish(self.folder)
        renew.assert_called_once()

    def test_published_is_what_was_measured(self):
        change(self.rows, "failed", group="groups", case="chained", parameter="16")
        self.publish()
        for name in measured.FILES:
            self.assertEqual(
                (self.published / name).read_text(),
                (self.folder / name).read_text())
        plots.draw_all(self.folder, self.folder)
        for plot in ("latency", "groups", "processes", "cpu"):
            self.assertEqual(
                (self.published / f"{plot}.svg").read_text(),
                (self.folder / f"{plot}.svg").read_text())

    def refused(self, says: str) -> None:
        with self.assertRaises(LabError) as caught:
            self.publish()
        self.assertIn(says, str(caught.exception))
        self.assertNotIn("\n", str(caught.exception))
        self.assertEqual(list(self.published.iterdir()), [])

    def test_quick_run_is_refused(self):
        for options in ({"quick": True}, ["--quick"], "--quick"):
            self.machine["options"] = options
            self.refused("--quick")

    def test_few_runs_are_refused(self):
        self.rows[7]["runs"] = "4"
        self.refused("4 runs")

    def test_part_of_a_run_is_refused(self):
        self.rows = [row for row in self.rows if row["group"] not in ("rate", "groups")]
        self.refused("has not measured rate, groups")

    def test_another_folder_is_refused(self):
        with self.assertRaisesRegex(
            LabError, "no results folder of ./lab bench: it has no results.csv"
        ):
            publish.publish(self.folder)


if __name__ == "__main__":
    unittest.main(verbosity=2)
