# SPDX-License-Identifier: MIT
"""./lab run: builds, finds a device, and runs an example with both sides' output side by side."""
from __future__ import annotations

import sys
from typing import Callable, Optional

from lab import build, examples, ladder, packages, pair, place
from lab.commands import progress
from lab.errors import LabError, UsageError, nearest
from lab.machine import machine

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
    parser = subparsers.add_parser(
        "run", help="run an example, both sides of it: ./lab run 02_send_recv")
    parser.add_argument("example", help="its name, or its number")
    parser.add_argument(
        "--break", dest="broken", metavar="NAME", help="with one of the lesson's changes")
    parser.add_argument(
        "--program", metavar="NAME",
        help="another program of the lesson's than the one with its name")
    parser.add_argument("--device", help="the RDMA device, where there are several")
    parser.add_argument(
        "--two-hosts", action="store_true", help="the server on host a, the client on host b")
    parser.add_argument(
        "--time-limit", type=float, default=pair.TIME_LIMIT, metavar="SECONDS",
        help=f"when to end what still runs [{pair.TIME_LIMIT:g}]")
    parser.add_argument(
        "arguments", nargs="*", metavar="-- ARGUMENT", help="passed on to the program")
    parser.set_defaults(main=main)


def choose(
    example: str, broken: Optional[str], other: Optional[str] = None
) -> tuple[ladder.Lesson, str]:
    """The lesson and its program, or another of its programs, or one with one of the lesson's
    changes."""
    lesson = examples.find(example)
    if not broken:
        known = examples.programs(lesson)
        if other not in (None, *known):
            raise UsageError(f"{lesson.stem} has no program {other}" + nearest(other, known))
        return lesson, other or lesson.program
    known = examples.breaks(lesson)
    if broken not in known:
        raise UsageError(f"{lesson.stem} has no change {broken}" + nearest(broken, known))
    return lesson, examples.program(lesson, broken)


def report(outcome: pair.Outcome, with_output: bool = False) -> None:
    """Says how what failed has failed.

    @param with_output what the programs printed, too, if nobody has shown it yet
    @raises LabError if it was not the program that failed, but the machine that it ran on"""
    if with_output and outcome.failed:
        print(outcome.text(), end="", file=sys.stderr)
    for role, status in outcome.status.items():
        if status:
            print(f"lab: the {role or 'program'} ended with status {status}", file=sys.stderr)
    if outcome.timed_out:
        print("lab: stopped after the time limit (--time-limit)", file=sys.stderr)
    if machine.CRASHED in outcome.status.values():
        raise LabError("the programs were ended, since their machine is gone")


def main(args) -> int:
    lesson, program = choose(args.example, args.broken, args.program)
    packages.ensure("build", *examples.groups(lesson, args.device, args.two_hosts))
    build_dir = build.build(*examples.targets(program))
    where, other = place.find_hosts() if args.two_hosts else (place.find_place(args.device), None)
    print(f"lab: {where.why}" + (f", and on {other.host}" if other else ""), file=sys.stderr)
    outcome = examples.run(
        where, build_dir, program, lesson.kind, args.arguments, client_place=other,
        time_limit=args.time_limit, show=printer())

    report(outcome)
    progress.note_run(lesson, args.broken, outcome)
    print(f"lab: read lessons/{lesson.stem}.md", file=sys.stderr)
    if pair.SKIPPED in outcome.status.values():
        return pair.SKIPPED
    return int(outcome.failed != bool(args.broken))  # what is broken on purpose has to fail
