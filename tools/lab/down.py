"""./lab down: takes away what ./lab set up to have a device."""
from __future__ import annotations

from lab import machine, place


def add_parser(subparsers) -> None:
    parser = subparsers.add_parser("down", help="stop the emulated machine, remove the SoftRoCE device")
    parser.set_defaults(main=main)


def main(args) -> int:
    ended = machine.stop()
    removed = place.softroce_down()
    print("stopped the emulated machine" if ended else "no emulated machine was running")
    if removed:
        print("removed the SoftRoCE device")
    return 0
