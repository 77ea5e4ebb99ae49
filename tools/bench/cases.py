# SPDX-License-Identifier: MIT
"""What `./lab bench` runs, and how the output of each program is read.

A probe is one run of a server and its client. Command lines are templates: {port} and {host} are
the server's, {ours} and {perftest} are what chooses the device for a program of this course's and
for one of perftest's. {ours} names no device where there is none to choose, and rdma_cm finds it by
the address.
"""
from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Callable, List, Tuple

Sample = Tuple[str, str, str, float]  # case, parameter, metric, value

UNITS = {
    "latency_us": "us",
    "p99_us": "us",
    "messages_per_s": "1/s",
    "cpu_us_per_message": "us",
    "us_per_request": "us",
    "cpu_us_per_request": "us",
    "posts_per_request": "1",
    "completions_per_request": "1",
    "wakes_per_request": "1",
    "system_calls_per_request": "1",
    "request_median_us": "us",
    "request_p99_us": "us",
}
# The metric in the row of a case that has no figures.
MAIN = {
    "latency": "latency_us",
    "rate": "messages_per_s",
    "groups": "messages_per_s",
    "requests": "us_per_request",
    "timetable": "request_median_us",
}
GROUPS = tuple(MAIN)
# The programs of this project's, and where they are in the build folder.
OURS = {
    **dict.fromkeys(("measure", "rate", "slot_server", "shared_client"), "examples"),
    **dict.fromkeys(
        ("own_connections", "tcp_requests", "memory_requests"), "tools/bench/opponents")}


@dataclass(frozen=True)
class Probe:
    group: str
    case: str
    parameter: str
    server: str  # template of its command line; empty if the client needs none
    client: str
    parse: Callable[[str, "Probe"], List[Sample]]
    # how it is known that the server is there: it prints a "line", or has a "tcp" or an "rdma_cm"
    # port
    listens: str = "line"
    ends: bool = True  # the server, by itself, after its client
    others: Tuple[Tuple[str, str], ...] = ()  # (case, parameter) of what a run measures besides
    skip: str = ""  # why it cannot be run, if it cannot
    # {every} is so many times the case's us_per_request at its highest rate; 0: there is no {every}
    pace: float = 0

    @property
    def key(self) -> Tuple[str, str, str]:
        return self.group, self.case, self.parameter

    @property
    def measures(self) -> Tuple[Tuple[str, str], ...]:
        return ((self.case, self.parameter), *self.others)


class Unreadable(Exception):
    """A program's output has not what was looked for."""


def _find(pattern: str, text: str) -> "re.Match[str]":
    found = re.search(pattern, text, re.M)
    if not found:
        raise Unreadable("its output has no figures")
    return found


def _one(metric: str, pattern: str, factor: float = 1) -> Callable[[str, Probe], List[Sample]]:
    """Reads one figure and multiplies it."""

    def parse(text: str, probe: Probe) -> List[Sample]:
        return [(probe.case, probe.parameter, metric, float(_find(pattern, text)[1]) * factor)]

    return parse


# ---- latency: half a round trip, except that a READ is measured whole


def _measure(text: str, probe: Probe) -> List[Sample]:
    """The mean is for those that print nothing else: a median and a mean cannot be compared."""
    found = _find(r"median ([\d.]+) us.* 99% ([\d.]+) us", text)
    samples = [
        (probe.case, probe.parameter, "latency_us", float(found[1])),
        (probe.case, probe.parameter, "p99_us", float(found[2])),
    ]
    return samples + [
        (*other, "latency_us", float(_find(r"the mean is ([\d.]+) us", text)[1]))
        for other in probe.others]


def _perftest_latency(text: str, probe: Probe) -> List[Sample]:
    """t_typical is the median; perftest has halved the round trips. Some versions print no tail
    with --events."""
    found = _find(rf"^ *{probe.parameter} +(\d+ .*)$", text)[1].split()
    samples = [(probe.case, probe.parameter, "latency_us", float(found[3]))]
    return samples + (
        [(probe.case, probe.parameter, "p99_us", float(found[6]))] if len(found) > 6 else [])


OUR_LATENCIES = {
    "write": "write poll",
    "write_imm": "write-imm poll",
    "write_imm_events": "write-imm events",
    "send": "send poll",
    "send_events": "send events",
    "read": "read poll",
}
PERFTEST_LATENCIES = ["ib_write_lat", "ib_send_lat", "ib_send_lat -e", "ib_read_lat"]
# UCX's segments have so many bytes; with larger ones (UCX_IB_SEG_SIZE) it hangs on rxe
LARGEST_ACTIVE_MESSAGE = 8192


def latency(size: int, quick: bool) -> List[Probe]:
    most = 500 if quick else 20_000  # half a second on SoftRoCE, whatever the size
    count = min(most, 20_000_000 // (size + 1000))
    slow = min(count, most // 4)  # of those that sleep
    parameter, probes = str(size), []

    def add(case, command, client, parse, **more):
        probes.append(
            Probe("latency", case, parameter, command, f"{command} {client}", parse, **more))

    def pair(case, program, **more):
        probes.append(
            Probe(
                "latency", case, parameter, f"{program} --tcp-port 0",
                f"{program} --host {{host}} --tcp-port {{port}}", _measure, **more))

    for case, words in OUR_LATENCIES.items():
        operation, wait = words.split()
        rounds_ = slow if wait == "events" else count
        program = (
            f"measure {{ours}} --operation {operation} --waiting {wait} --size {size} --rounds"
            f" {rounds_} --warm-up {rounds_ // 10}")
        pair(case, program, others=(("write_imm_mean", parameter),) if case == "write_imm" else ())
        if case == "write_imm" and size <= 128:
            pair("write_imm_not_inline", f"{program} --inline 0")
    for case in PERFTEST_LATENCIES:
        add(
            case,
            f"{case} -F {{perftest}} -p {{port}} -n {slow if '-e' in case else count} -s {size}",
            "{host}", _perftest_latency, listens="tcp")
    # Half round trips: libperf divides those of a ping-pong by 2. 79 bytes and fewer can go inline.
    add(
        "ucx",
        (
            f"ucx_perftest -t am_lat -x rc_verbs -d {{device}}:1 -p {{port}} -f -v -n {count} -w"
            f" {min(count, 1000)} -s {size} -D {'short' if size <= 64 else 'bcopy'}"),
        "{host}",
        _one("latency_us", r"^ *\d+,([\d.]+),"),
        listens="tcp",
        skip=(
            ""
            if size <= LARGEST_ACTIVE_MESSAGE
            else "a UCT active message has at most 8255 bytes on it"))
    # Both print the mean, per transfer: there are two in a round trip.
    program = f"fi_pingpong -p verbs -e msg -d {{device}} -S {size} -I {count}"
    probes.append(
        Probe(
            "latency", "libfabric_mean", parameter, f"{program} -B {{port}}",
            f"{program} -P {{port}} {{host}}",
            _one("latency_us", r"^\S+ +\S+ +=\S+ +\S+ +[\d.]+s +[\d.]+ +([\d.]+)"), listens="tcp"))
    add(
        "rsockets_mean", f"rstream -p {{port}} -S {size} -I {count} -C 1", "-s {host}",
        _one("latency_us", r"^custom .* ([\d.]+)$"), listens="rdma_cm")
    # the program has one size only: requests of 32 bytes and a header; one there and its response
    # back
    if size == 64:
        probes.append(
            Probe(
                "latency",
                "tcp_mean",
                parameter,
                "tcp_requests --tcp-port 0 --connections 1",
                (
                    "tcp_requests --host {host} --tcp-port {port} --processes 1 --requests"
                    f" {slow} --in-flight 1"),
                _one("latency_us", r"a request every ([\d.]+) us", 0.5),
                ends=False))
    return probes


# ---- rate

READS = (1, 4, 16)  # under way


def _rate(text: str, probe: Probe) -> List[Sample]:
    found = _find(r"([\d.]+) messages/s, CPU ([\d.]+) us each", text)
    return [
        (probe.case, probe.parameter, "messages_per_s", float(found[1])),
        (probe.case, probe.parameter, "cpu_us_per_message", float(found[2])),
    ]


def _perftest_rate(size: int, factor: int = 1) -> Callable[[str, Probe], List[Sample]]:
    return _one("messages_per_s", rf"^ *{size} .* ([\d.]+) *$", 1e6 * factor)


OUR_RATES = {
    "write_separate": "write --chain 1",
    "write_chained": "write --chain 64",
    **{f"read_{reads}": f"read --chain 1 --max-rd-atomic {reads}" for reads in READS},
}
PERFTEST_RATES = [
    "ib_write_bw", "ib_write_bw -l 64", *(f"ib_read_bw -o {reads}" for reads in READS)]


def rate(size: int, quick: bool) -> List[Probe]:
    count = 64 * (20 if quick else min(300, 1_000_000 // (size + 1000)))
    probes = []
    for case, words in OUR_RATES.items():
        program = f"rate {{ours}} --operation {words} --size {size} --messages {count}"
        probes.append(
            Probe(
                "rate", case, str(size), f"{program} --tcp-port 0",
                f"{program} --host {{host}} --tcp-port {{port}}", _rate))
    for case in PERFTEST_RATES:
        program = f"{case} -F {{perftest}} -p {{port}} -n {count} -s {size}"
        probes.append(
            Probe(
                "rate", case, str(size), program, f"{program} {{host}}", _perftest_rate(size),
                listens="tcp"))
    return probes


# ---- groups: as lesson 21 sends slots, without what it does with them. Each slot is a message.

COUNTS = (4, 16, 64, 255)  # slots


def groups(quick: bool) -> List[Probe]:
    probes = []
    for count in COUNTS:
        few = 64 * (2 if quick else 100)
        runs = 64 * (2 if quick else max(10, 6400 // count // 4))
        for case, size, chain, messages, factor in (
            ("separate", 64, 1, few, 1),
            ("chained", 64, min(count, 64), few, 1),
            ("group", 64 * count, 1, runs, count),
        ):
            program = (
                f"rate {{ours}} --operation write-imm --size {size} --chain {chain}"
                f" --messages {messages}")
            probes.append(
                Probe(
                    "groups", case, str(count), f"{program} --tcp-port 0",
                    f"{program} --host {{host}} --tcp-port {{port}}",
                    _one("messages_per_s", r"([\d.]+) messages/s", factor)))
        peer = (
            "ib_write_bw -F {perftest} -p {port} -n"
            f" {1280 if quick else max(1280, 25_600 // count)} -s {count * 64}")
        probes.append(
            Probe(
                "groups", "ib_write_bw", str(count), peer, f"{peer} {{host}}",
                _perftest_rate(count * 64, count), listens="tcp"))
    return probes


# ---- requests


def _requests(text: str, probe: Probe) -> List[Sample]:
    found = _find(r"a request every ([\d.]+) us(?:, CPU ([\d.]+) us each)?", text)
    values = {"us_per_request": found[1], "cpu_us_per_request": found[2]}
    stats = re.search(
        (
            r"^sender: each message: ([\d.]+) posts, ([\d.]+) completions, ([\d.]+) wakes, .*"
            r" ([\d.]+) system calls"),
        text,
        re.M)
    if stats:
        values.update(
            zip(
                [
                    "posts_per_request", "completions_per_request", "wakes_per_request",
                    "system_calls_per_request"],
                stats.groups()))
    latency = re.search(r"^latency: median ([\d.]+) us, .* 99 % ([\d.]+) us", text, re.M)
    if latency:
        values.update(zip(["request_median_us", "request_p99_us"], latency.groups()))
    return [
        (probe.case, probe.parameter, metric, float(value))
        for metric, value in values.items()
        if value is not None
    ]


def requests(processes: int, in_flight: int, quick: bool) -> List[Probe]:
    # Of each process: for about a second of the shared client. With more in flight a request takes
    # less time.
    each = 50 if quick else min(3200, 25_600 // processes) * {1: 1, 4: 2, 16: 5}[in_flight]
    parameter = f"{processes}x{in_flight}"
    load = f"--processes {processes} --requests {each} --in-flight {in_flight} --latency"
    # No server hands a request to another thread.
    server = "slot_server --cm-port 0 --clients 0 --at-once 200 --handler-threads 0"
    rdma = "--host {host} --cm-port {port}"
    client = f"shared_client {rdma} {load} --threads 1 --slot-size 64 --stats --responses"
    shared, shared_data = f"{client} slots", f"{client} connection"
    own = f"own_connections --cm-port 0 --connections {processes}"
    tcp = f"tcp_requests --tcp-port 0 --connections {processes}"
    tcp_host = "--host {host} --tcp-port {port}"
    adaptive = "--waiting adaptive"  # as the shared client waits by default

    def probe(case, server, client):
        return Probe("requests", case, parameter, server, client, _requests, ends=False)

    return (
        [
            probe("shared", server, shared),
            probe("shared_no_groups", f"{server} --group 1", f"{shared} --group 1"),
            probe("own", own, f"own_connections {rdma} {load}"),
            probe("tcp", tcp, f"tcp_requests {tcp_host} {load}"),
            probe("own_adaptive", f"{own} {adaptive}", f"own_connections {rdma} {load} {adaptive}"),
            probe(
                "tcp_adaptive", f"{tcp} {adaptive}",
                f"tcp_requests {tcp_host} {load} {adaptive}"),
            probe("floor", "", f"memory_requests {load}"),
        ]
        + (
            [
                probe("wide", server, f"{shared} --slots 16384"),
                probe("narrow", server, f"{shared} --slots 64"),
                probe("response_data", server, shared_data)]
            if parameter == "64x1"
            else [])
        + (
            [
                probe("two_lanes", server, f"{shared} --connections 2"),
                probe(
                    "two_lane_threads", f"{server} --threads 2",
                    f"{shared} --connections 2 --sender-threads 2")]
            if parameter == "64x16"
            else []))


# ---- timetable: how long a request takes when a program does less than it can

HIGHEST = "100"  # % of the rate that a case has if each process sends its next request at once


def timetable(quick: bool) -> List[Probe]:
    processes, found = 4 if quick else 16, []
    for probe in requests(processes, 1, quick):
        if probe.case in ("shared", "own", "tcp"):
            found.append(replace(probe, group="timetable", parameter=HIGHEST))
            found += [
                replace(
                    probe, group="timetable", parameter=str(percent),
                    client=f"{probe.client} --every {{every}}", pace=processes * 100 / percent)
                for percent in (50, 90)]
    return found


def probes(quick: bool, only: Tuple[str, ...] = ()) -> List[Probe]:
    """All that is to be run.

    @param only GROUP or GROUP/ARM; nothing means everything"""
    everything = [latency(size, quick) for size in ((64,) if quick else (64, 1024, 4096, 65536))]
    everything += [rate(size, quick) for size in ((64,) if quick else (64, 4096))]
    everything += [groups(quick)]
    everything += [timetable(quick)]
    everything += [
        requests(*load, quick)
        for load in (
            ((4, 1),) if quick else ((1, 1), (16, 1), (64, 1), (16, 16), (64, 16), (64, 4)))]

    def wanted(probe: Probe) -> bool:
        return (
            not only
            or probe.group in only
            or any(f"{probe.group}/{case}" in only for case, _ in probe.measures))

    return [probe for probe in sum(everything, []) if wanted(probe)]


def measures() -> List[Tuple[str, str, str]]:
    """All groups, cases and parameters that there are, in the order of this file."""
    return [
        (probe.group, *measure)
        for probe in probes(False) + probes(True)
        for measure in probe.measures
    ]


def names() -> List[str]:
    """All that `only` can have."""
    return list(dict.fromkeys([*GROUPS, *(f"{group}/{case}" for group, case, _ in measures())]))


def programs(chosen: List[Probe]) -> List[str]:
    """What they run; those in OURS are of this course."""
    return sorted(
        {
            command.split()[0]
            for probe in chosen
            for command in (probe.server, probe.client)
            if command
        })


@dataclass(frozen=True)
class Side:
    """What a template is filled in with."""

    device: str
    gid_index: "int | None"  # perftest has to be told; none on InfiniBand
    host: str = ""
    port: int = 0
    every: int = 0  # microseconds

    def command(self, template: str) -> List[str]:
        gid = "" if self.gid_index is None else f"-x {self.gid_index}"
        return template.format(
            device=self.device, host=self.host, port=self.port, every=self.every,
            ours=f"--device {self.device}", perftest=f"-d {self.device} {gid}").split()
