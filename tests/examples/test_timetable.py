# SPDX-License-Identifier: MIT
"""The shared client and its opponents with --every: requests by a timetable, and latencies that
count from when each was due."""
import re

import needs_device
import shared_client_cases
from lines import next_line

shared_client_cases.use(needs_device.BUILD, needs_device.PLACE)

OPPONENTS = "tools/bench/opponents/"
EACH = re.compile(r"a request every (\S+) us")
LATENCY = re.compile(
    r"^latency: median (\S+) us, 90 % (\S+) us, 99 % (\S+) us, most (\S+) us$", re.MULTILINE)


class Timetables(shared_client_cases.Shared):
    def by_shared_client(self, processes, *options):
        self.serve()
        return self.client("--processes", str(processes), "--threads", "1", "--latency", *options)

    def by_own_connections(self, processes, *options):
        server = self.start(
            self.server_place, OPPONENTS + "own_connections", "--connections", str(processes),
            "--cm-port", "0")
        port = re.match(r"listening on rdma_cm port (\d+)", next_line(server))[1]
        return self.start(
            self.client_place, OPPONENTS + "own_connections", "--host", self.server_place.address,
            "--cm-port", port, "--processes", str(processes), "--latency", *options)

    def by_tcp(self, processes, *options):
        server = self.start(
            self.server_place, OPPONENTS + "tcp_requests", "--connections", str(processes),
            "--tcp-port", "0")
        port = re.match(r"listening on TCP port (\d+)", next_line(server))[1]
        return self.start(
            self.client_place, OPPONENTS + "tcp_requests", "--host", self.server_place.address,
            "--tcp-port", port, "--processes", str(processes), "--latency", *options)

    def through_memory(self, processes, *options):
        return self.start(
            self.client_place, OPPONENTS + "memory_requests", "--processes", str(processes),
            "--latency", *options)

    def for_each(self, check):
        for load in (
            self.by_shared_client, self.by_own_connections, self.by_tcp, self.through_memory
        ):
            with self.subTest(load.__name__):
                check(load)

    def measure(self, load, processes, requests, every_us):
        """@return the elapsed time for each request, and the percentiles of the latency, in
        microseconds"""
        out, _ = self.finish(load(processes, "--requests", str(requests), "--every", str(every_us)))
        self.assertRegex(out, LATENCY)
        return float(EACH.search(out)[1]), [
            float(number) for number in LATENCY.search(out).groups()]

    def test_no_request_comes_before_it_is_due(self):
        """Each process has its own timetable, and the second one's begins half an interval
        later."""

        def check(load):
            each, percentiles = self.measure(load, processes=2, requests=11, every_us=200_000)
            # 1: the printed number is rounded
            self.assertGreaterEqual(each * 2 * 11 + 1, 10.5 * 200_000)
            self.assertEqual(percentiles, sorted(percentiles))
            self.assertGreater(percentiles[0], 0)

        self.for_each(check)

    def test_latency_counts_from_when_it_was_due(self):
        """No program keeps this timetable. All requests are due in the first milliseconds, and half
        of them wait for half of the run. From when it was sent, a request would take as long as the
        run has for each."""

        def check(load):
            each, percentiles = self.measure(load, processes=1, requests=2000, every_us=1)
            self.assertGreater(percentiles[0], 20 * each)

        self.for_each(check)

    def test_several_in_flight(self):
        def check(load):
            _, err = self.finish(load(1, "--every", "1000", "--in-flight", "2"), 2)
            self.assertIn(
                "--every: the program takes no responses while it sleeps; use --in-flight 1", err)

        self.for_each(check)


if __name__ == "__main__":
    needs_device.main()
