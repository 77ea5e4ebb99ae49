# SPDX-License-Identifier: MIT
"""./lab down: takes away what ./lab set up to have a device."""
from __future__ import annotations

from lab import place
from lab.machine import machine


def add_parser(subparsers) -> None:
    parser = subparsers.add_parser(
        "down", help="stop the emulated machines, remove the SoftRoCE device")
    parser.set_defaults(main=main)


def main(args) -> int:
    ended = [
        name
        for host, name in {**machine.NAMES, "a": "hosts a and b"}.items()
        if machine.stop(host)
    ]
    removed = place.softroce_down()
    print(f"stopped {' and '.join(ended)}" if ended else "no emulated machine was running")
    if removed:
        print("removed the SoftRoCE device")
    return 0
