# SPDX-License-Identifier: MIT
"""./lab capture: runs an example on two hosts and shows every RoCEv2 packet of it."""
from __future__ import annotations

import re
import sys
from contextlib import ExitStack
from pathlib import Path

from lab import build, examples, packages, pair, place
from lab.commands import run
from lab.errors import UsageError
from lab.machine import machine
from lab.machine.tap import Tap
from lab.wire import packets


def add_parser(subparsers) -> None:
    parser = subparsers.add_parser(
        "capture", help="run an example on two hosts and show its packets")
    parser.add_argument("example", help="its name, or its number")
    parser.add_argument(
        "--break", dest="broken", metavar="NAME", help="with one of the lesson's changes")
    parser.add_argument(
        "--at", choices=machine.HOSTS, default="b",
        help="the host whose view it is; a runs the server, b the client (default: b)")
    parser.add_argument(
        "arguments", nargs="*", metavar="-- ARGUMENT", help="passed on to the program")
    parser.set_defaults(main=main)


def main(args) -> int:
    lesson, program = run.choose(args.example, args.broken)
    if not lesson.is_pair:
        raise UsageError(f"{lesson.stem} is one program: it sends nothing")
    packages.ensure(
        "build", "device", "machine", "wire", *(["kernel"] if lesson.kind == "kernel" else []))
    folder = build.build(*examples.targets(program))
    file = folder / "wire" / f"{program}.pcap"
    outcome = record(folder, program, lesson.kind, args.arguments, {args.at: file})
    run.report(outcome, with_output=True)
    table(packets.read(file), sys.stdout)
    print(f"lab: kept in {file}, for Wireshark", file=sys.stderr)
    return 1 if outcome.failed and not args.broken else 0


def record(
    folder: Path, program: str, kind: str, arguments: list[str], files: dict[str, Path]
) -> pair.Outcome:
    """Runs a built pair on the two hosts, recording the packets that pass each host of `files`."""
    hosts = dict(zip(machine.HOSTS, place.find_hosts()))
    with ExitStack() as taps:
        for host, file in files.items():
            taps.enter_context(Tap(hosts[host], file))
        return examples.run(hosts["a"], folder, program, kind, arguments, client_place=hosts["b"])


def read_table(text: str) -> list[packets.Packet]:
    """The packets that table() has printed in `text`."""
    rows = re.findall(
        r"^ *[\d.]+  ([ab]) -> [ab]  (.{27}) +(0x\w+) +(0x\w+) {1,7}(\d*)  ?(.*)$", text, re.M)
    return [
        packets.Packet(
            0, host, name.rstrip(), int(qp, 16), int(psn, 16), int(length or 0),
            (details.strip(),))
        for host, name, qp, psn, length, details in rows]


def table(all_packets: list[packets.Packet], out) -> None:
    """One line for each packet. Sizes are bytes of payload, times are since the first packet."""
    began = all_packets[0].time
    print(f"{'ms':>10}  {'from':7} {'packet':27} {'to QP':>7} {'PSN':>9} {'bytes':>6}", file=out)
    for packet in all_packets:
        to = "b" if packet.host == "a" else "a"
        print(
            f"{(packet.time - began) / 1e6:10.3f}  {packet.host} -> {to} "
            f" {packet.name:27} {packet.dest_qp:#7x} {packet.psn:#9x} {packet.length or '':>6} "
            f" {', '.join(packet.details)}".rstrip(),
            file=out)
