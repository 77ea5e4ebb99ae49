# SPDX-License-Identifier: MIT
"""./lab record: runs examples and commits what they print to tests/expected, for lessons and tests.

If you change an example, look at the difference before you commit it.
"""
from __future__ import annotations

import re
import shlex
import sys

from lab import build, examples, normalise, packages, place, recording, trace, variants
from lab.errors import LabError, UsageError


def add_parser(subparsers) -> None:
    parser = subparsers.add_parser(
        "record", help="for contributors: write an example's expected output anew"
    )
    parser.add_argument("example", nargs="+", help="name or number")
    parser.add_argument(
        "--since",
        metavar="CONDITION",
        help=(
            "only what differs from the output so far, as a variant: kernel-6.4 for "
            "what SoftRoCE does since that kernel"
        ),
    )
    parser.set_defaults(main=main)


def main(args) -> int:
    lessons = [examples.find(name) for name in args.example]
    packages.ensure("build", "device", "machine", "kernel", "wire")
    folder = build.build()
    where = place.find_place()
    check_condition(where, args.since)
    for lesson in lessons:
        if not args.since:
            record_traces(lesson)
        record(
            where, folder, lesson.program, lesson.kind, examples.expected_file(lesson.stem), True,
            args.since)
        for name in examples.others(lesson):
            record(
                where, folder, name, lesson.kind, examples.expected_file(lesson.stem, other=name),
                True, args.since)
        for name in examples.breaks(lesson):
            record(
                where, folder, examples.program(lesson, name), lesson.kind,
                examples.expected_file(lesson.stem, name), False, args.since)
        for name, its in examples.exercises().items():
            if its == lesson:
                file = examples.expected_file(name)
                record(
                    where, folder, name + ".solution", examples.kind_of_exercise(name), file, True,
                    args.since)
    return 0


def record_traces(lesson) -> None:
    """The runs on two hosts whose pictures the lesson shows, each by the command that the lesson
    has for it."""
    text = lesson.file.read_text()
    commands = re.findall(
        (
            rf"\./lab trace(?: --program (\w+))? {lesson.stem}(?: --break (\w+))?(?: --"
            r" ([^`\n]*))?[`\n]"
        ),
        text,
    )
    for other, name, arguments in dict.fromkeys(commands):
        file = recording.file_of(lesson.stem, name or other)
        if file.with_suffix(".svg").name in text:
            program = examples.program(lesson, name) if name else other or lesson.program
            outcome, recorded = trace.of_example(lesson.kind, program, shlex.split(arguments))
            if bool(name) != outcome.failed:
                raise LabError(f"{file.stem}: {outcome.status}, not recorded:\n{outcome.text()}")
            recorded.save(file)
            print(
                f"{file.relative_to(examples.ROOT)}; python3 picture/draw.py draws it",
                file=sys.stderr)


def check_condition(where, since: "str | None") -> None:
    """@raises UsageError if that is no condition, or one that this place does not fulfil"""
    if since:
        try:
            wanted = variants.conditions(variants.named(examples.expected_file("any"), since))
        except ValueError as error:
            raise UsageError(str(error)) from None
        have = variants.there(where)
        if any(have.get(what, ()) < least for what, least in wanted.items()):
            raise UsageError(f"--since {since}: a run here would not show it")


def record(
    where, folder, program: str, kind: str, file, works: bool, since: "str | None" = None
) -> None:
    """Writes `file`, or the variant of it that holds here.

    @param since the condition of a new variant, which is written only if it differs from `file`"""
    outcome = examples.run(where, folder, program, kind)
    if outcome.timed_out or works == outcome.failed:
        raise LabError(f"{program}: {outcome.status}, not recorded:\n{outcome.text()}")
    if since:
        roles = {role: outcome.of(role) for role in outcome.status}
        if not normalise.differences(file.read_text(), roles, where.device):
            return
    file = variants.named(file, since) if since else variants.expected(file, where)
    file.write_text(outcome.text())
    print(f"{file.relative_to(examples.ROOT)}", file=sys.stderr)
