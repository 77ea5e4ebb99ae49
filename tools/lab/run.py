"""./lab run: builds, finds a device, and runs an example with both sides' output side by side."""
from __future__ import annotations

import sys
from typing import Callable

from lab import build, examples, packages, place
from lab.errors import UsageError, nearest

COLOURS = {"server": "\033[36m", "client": "\033[33m"}


def printer() -> Callable[[str, str], None]:
    colour = sys.stdout.isatty()

    def show(role: str, text: str) -> None:
        prefix = f"[{role}] " if role else ""
        if colour and role:
            prefix = f"{COLOURS[role]}{prefix}\033[0m"
        print(prefix + text, flush=True)
    return show


def add_parser(subparsers) -> None:
    parser = subparsers.add_parser("run", help="run an example, both sides of it: ./lab run 02_send_recv")
    parser.add_argument("example", help="its name, or its number")
    parser.add_argument("--break", dest="broken", metavar="NAME", help="with one of the lesson's changes")
    parser.add_argument("--device", help="the RDMA device, where there are several")
    parser.add_argument("arguments", nargs="*", metavar="-- ARGUMENT", help="passed on to the program")
    parser.set_defaults(main=main)


def main(args) -> int:
    lesson = examples.find(args.example)
    program = lesson.name
    if args.broken:
        known = examples.breaks(lesson)
        if args.broken not in known:
            raise UsageError(f"{lesson.stem} has no change {args.broken}"
                             + nearest(args.broken, known))
        program += "." + args.broken
    packages.ensure("build", "device")
    build_dir = build.build(program)
    where = place.find_place(args.device)
    print(f"lab: {where.why}", file=sys.stderr)
    outcome = examples.run(where, build_dir, program, lesson.kind, args.arguments, show=printer())

    for role, status in outcome.status.items():
        if status:
            print(f"lab: the {role or 'program'} ended with status {status}", file=sys.stderr)
    if outcome.timed_out:
        print("lab: stopped after the time limit", file=sys.stderr)
    print(f"lab: read lessons/{lesson.stem}.md", file=sys.stderr)
    failed = outcome.timed_out or any(outcome.status.values())
    if args.broken:
        return 0 if failed else 1  # what is broken on purpose has to fail
    return 1 if failed else 0
