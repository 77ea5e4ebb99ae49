# SPDX-License-Identifier: MIT
"""./lab shell: a prompt where the device is."""
from __future__ import annotations

import os
import subprocess
import sys

from lab import packages, place
from lab.errors import UsageError
from lab.machine import machine


def add_parser(subparsers) -> None:
    parser = subparsers.add_parser(
        "shell", help="a prompt where the device is, or on a host: ./lab shell a")
    parser.add_argument(
        "host", nargs="?", choices=["", *machine.HOSTS], default="",
        help="one of the two hosts of ./lab hosts")
    parser.set_defaults(main=main)


def main(args) -> int:
    if not sys.stdin.isatty():
        raise UsageError("shell needs a terminal; ./lab exec -- sh reads its commands from a pipe")
    packages.ensure(*(["device", "machine"] if args.host else place.groups()))
    where = place.find_host(args.host) if args.host else place.find_place()
    print(f"lab: {where.why}; leave with exit or Ctrl-D", file=sys.stderr)
    shell = "/bin/bash" if os.path.exists("/bin/bash") else "/bin/sh"
    if where.kind == "machine":
        return machine.end_like(machine.execute([shell], where.host, terminal=True))
    return machine.end_like(subprocess.run([shell]).returncode)
