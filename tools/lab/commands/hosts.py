# SPDX-License-Identifier: MIT
"""./lab hosts: starts the two hosts, and does to the wire between them what wires do: lose, delay,
reorder, end.

The wire is tc-netem(8) on both hosts' end of it, below lab0 (init.sh), so that a host does not see
what becomes of its packets. A cut is one between two switches: each host's own link stays up, and
nothing comes any more.
"""
from __future__ import annotations

import re
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import Optional

from lab import packages, place
from lab.errors import LabError, UsageError
from lab.machine import machine


@dataclass(frozen=True)
class Fault:
    value: str  # what it takes, as --help has it
    pattern: str  # of a value
    help: str


FAULTS = {
    "lose": Fault(
        "PERCENT", r"\d{1,2}(\.\d+)?%?", "lose so many of the packets, in each direction: lose 5%%"
    ),
    "delay": Fault(
        "TIME", r"\d+(us|ms|s)", "hold each packet for so long, in each direction: delay 10ms"),
    "reorder": Fault(
        "PERCENT", r"\d{1,2}(\.\d+)?%?", "let so many of the packets overtake others: reorder 25%%"
    ),
}
REORDER_DELAY = "2ms"  # what the others are held for, when some overtake


def add_parser(subparsers) -> None:
    parser = subparsers.add_parser(
        "hosts",
        help="start two hosts, a and b; spoil and repair the wire between them",
        description=(
            "Without a word more: starts the two hosts if they do not run, and shows them. What is"
            " done to the wire lasts until repair, or down."))
    actions = parser.add_subparsers(dest="action", metavar="ACTION")
    for name, fault in FAULTS.items():
        actions.add_parser(name, help=fault.help).add_argument("value", metavar=fault.value)
    actions.add_parser("cut", help="nothing gets through")
    actions.add_parser("repair", help="a perfect wire again")
    parser.set_defaults(main=main)


def main(args) -> int:
    packages.ensure("device", "machine")
    if args.action is None:
        return show()
    spoil(args.action, getattr(args, "value", None))
    print(f"the wire: {wire()}")
    return 0


def show() -> int:
    began = time.monotonic()
    running = machine.status("a")
    hosts = place.find_hosts()
    if not running:
        on(hosts[0], "busybox", "ping", "-q", "-c", "1", "-W", "5", hosts[1].address)
        print(
            f"lab: ready after {time.monotonic() - began:.1f} s; ./lab down ends them",
            file=sys.stderr)
    for host in hosts:
        print(
            f"host {host.host}: {host.device} on {place.NETDEV}, {host.address};  ./lab shell"
            f" {host.host}")
    print(f"the wire: {wire()}")
    return 0


def spoil(action: str, value: Optional[str] = None) -> None:
    """Does to the wire what one of FAULTS says, or "cut" or "repair"; what was done before is
    undone.

    @raises UsageError for a value that is not one"""
    netem = {
        "lose": ["loss", value],
        "delay": ["delay", value],
        "cut": None,
        "repair": None,
        "reorder": ["delay", REORDER_DELAY, "reorder", value],
    }[action]
    fault = FAULTS.get(action)
    if fault and not re.fullmatch(fault.pattern, value):
        raise UsageError(
            f"{action} {value}: it takes a {fault.value.lower()}, as in: "
            + fault.help.rsplit(": ", 1)[1].replace("%%", "%"))
    if netem and fault.value == "PERCENT":
        netem[-1] = value.rstrip("%") + "%"
    # The limit is on packets that wait; with the default of 1000 some of a delayed transfer would
    # be lost.
    queue = ["netem", "limit", "100000", *netem] if netem else ["pfifo", "limit", "100000"]
    for host in place.find_hosts():
        on(host, "ip", "link", "set", "wire", "down" if action == "cut" else "up")
        on(host, "tc", "qdisc", "replace", "dev", "wire", "root", *queue)


def wire() -> str:
    """What is wrong with the wire, by what host a says of its end."""
    host = place.find_host("a")
    if "state DOWN" in on(host, "ip", "link", "show", "dev", "wire"):
        return "cut"
    netem = re.search(
        r"qdisc netem .*?limit \d+ (.*)", on(host, "tc", "qdisc", "show", "dev", "wire"))
    return netem[1].strip() if netem else "perfect"


def on(host: place.Place, *argv: str) -> str:
    """What a command prints on a host. @raises LabError if it fails"""
    result = subprocess.run(
        host.wrap(argv), stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if result.returncode:
        raise LabError(
            f"{' '.join(argv)} on host {host.host}:"
            f" {result.stderr.strip() or result.stdout.strip()}")
    return result.stdout
