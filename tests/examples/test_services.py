# SPDX-License-Identifier: MIT
"""27_in_production: the services that somebody could write, and their clients."""
import re
import subprocess
import unittest

import needs_device
from lines import next_line

PLACE = needs_device.PLACE


class Services(unittest.TestCase):
    def start(self, program, *options):
        process = subprocess.Popen(
            PLACE.wrap([str(needs_device.BUILD / "examples" / program), *options]),
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(self.end, process)
        return process

    def end(self, process):
        if process.poll() is None:
            process.kill()
        process.communicate()

    def run_pair(self, server, client, *options, of_server=()):
        """@return what the client prints"""
        serving = self.start(server, "--cm-port", "0", *of_server)
        port = re.match(r"listening on rdma_cm port (\d+)", next_line(serving))[1]
        asking = self.start(
            client, "--host", PLACE.address, "--cm-port", port, "--timeout", "60", *options)
        for process in (asking, serving):
            out, err = process.communicate(timeout=600)
            self.assertEqual((process.returncode, err), (0, ""), out)
            if process is asking:
                said = out
        return said

    def test_cache(self):
        self.assertEqual(
            self.run_pair("cache", "cache", "--processes", "3", "--values", "50"),
            "a process: 50 hits, 50 right\n" * 3)

    def test_cache_that_is_too_small_for_a_value(self):
        self.assertEqual(
            self.run_pair(
                "cache", "cache", "--processes", "1", "--values", "5", of_server=("--bytes", "9")),
            "a process: 0 hits, 0 right\n")

    def test_sequencer(self):
        self.assertEqual(
            self.run_pair("sequencer", "sequencer", "--processes", "4", "--numbers", "100"),
            "400 entries, 400 different numbers, the largest is 400\n")

    def test_log_of_several_answers(self):
        """4,096 bytes of an answer are 512 entries."""
        self.assertEqual(
            self.run_pair("sequencer", "sequencer", "--processes", "1", "--numbers", "600"),
            "600 entries, 600 different numbers, the largest is 600\n")

    def test_collector(self):
        self.assertEqual(
            self.run_pair("collector", "collector", "--processes", "3", "--samples", "100"),
            "measurement 0: 150 samples, mean 51.0, largest 100.0\n"
            "measurement 1: 150 samples, mean 50.0, largest 99.0\n")

    def test_asio(self):
        said = self.run_pair("cache", "asio_client")
        self.assertEqual(
            sorted(said.splitlines()),
            ["a timer of the loop", "get: blue", "put: it has been answered"])

    def test_coroutines(self):
        self.assertEqual(
            self.run_pair("cache", "coroutine_client"),
            "10 coroutines have put and got a value, 10 got the right one\n")

    def test_at_scale(self):
        done = subprocess.run(
            PLACE.wrap(
                [
                    str(needs_device.BUILD / "examples/at_scale"), "--hosts", "10", "--processes",
                    "4", "--servers", "2", "--in-flight", "8"]),
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=600)
        self.assertEqual((done.returncode, done.stderr), (0, ""), done.stdout)
        for what, counted in (
            ("queue pairs", [("8", "6", "2"), ("80", "60", "20")]),
            ("receives", [("64", "32", "656"), ("640", "640", "6560")]),
        ):
            rows = re.findall(rf"^  {what} +(\d+) +(\d+) +(\d+)$", done.stdout, re.M)
            self.assertEqual(rows, counted, done.stdout)  # of a client host, and of the server's
        sizes = dict(re.findall(r"^  (.+?): .*: ([\d.]+) KiB$", done.stdout, re.M))
        self.assertEqual(len(sizes), 5, done.stdout)
        # With a completion queue, the 0.7 MiB that the comment at ServerOptions::memory names.
        self.assertLess(float(sizes["shared client"]), 600)
        self.assertLess(float(sizes["own connections"]), float(sizes["shared client"]) / 4)


if __name__ == "__main__":
    unittest.main(verbosity=2)
