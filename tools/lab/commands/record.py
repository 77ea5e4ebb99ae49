# SPDX-License-Identifier: MIT
"""./lab dev record: runs examples and writes what they print beside them, for lessons and tests.

After a change of an example, ./lab dev record --all renews everything that is made from its runs,
and what the lessons show of it. A file stays as it is if only what each run has of its own differs:
its numbers, and the order of what happens at the same time. Look at the difference before you
commit.
"""
from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys

from lab import build, examples, ladder, normalise, packages, place, transcript, variants
from lab.commands import sync, trace
from lab.errors import LabError, UsageError
from lab.pages import findings
from lab.wire import recording
from lab.wire.recording import Recording


def add_parser(subparsers) -> None:
    parser = subparsers.add_parser(
        "record", help="write anew what an example prints: ./lab dev record 02")
    parser.add_argument("example", nargs="*", help="name or number; all of them if you name none")
    what = parser.add_mutually_exclusive_group()
    what.add_argument(
        "--all", action="store_true",
        help="also what ./lab lint finds, the pictures, and what ./lab dev sync renews")
    what.add_argument(
        "--findings", action="store_true", help="only what ./lab lint finds, and ./lab dev sync")
    what.add_argument(
        "--since",
        metavar="CONDITION",
        help=(
            "only what differs from the output so far, as a variant: kernel-6.4 for "
            "what SoftRoCE does since that kernel"))
    parser.set_defaults(main=main)


def main(args) -> int:
    lessons = [examples.find(name, with_program=False) for name in args.example] or ladder.read()
    packages.ensure("build", "device", "machine", "kernel", "wire")
    os.environ.pop("RDMA_TIMEOUT", None)  # the lessons show the limits that a reader has
    folder = build.build()
    where = place.find_place()
    check_condition(where, args.since)
    for lesson in [] if args.findings else lessons:
        if not args.since:
            record_traces(lesson, where.device)
            record_transcripts(lesson, where)
        if lesson.has_program:
            record_outputs(where, folder, lesson, args.since)
    if args.all or args.findings:
        findings.record(where, folder, [lesson for lesson in lessons if lesson.has_program])
        subprocess.run([sys.executable, str(examples.ROOT / "pictures/draw.py")], check=True)
        sync.renew()
    return 0


def record_outputs(where, folder, lesson, since: "str | None") -> None:
    """Those of the lesson's program, its changes, and its exercises' solutions."""
    record(
        where, folder, lesson.program, lesson.kind, examples.expected_file(lesson.stem), True,
        since)
    for name in examples.breaks(lesson):
        record(
            where, folder, examples.program(lesson, name), lesson.kind,
            examples.expected_file(lesson.stem, name), False, since)
    for name, kind in examples.of(lesson)["exercises"].items():
        record(
            where, folder, name + ".solution", kind, examples.exercise_part(name, ".txt"), True,
            since, examples.lesson_output(name))


def record_transcripts(lesson, where) -> None:
    """Each by the command that is its first line."""
    for file in transcript.files(lesson.stem):
        file = variants.expected(file, where)
        old = file.read_text()
        new = transcript.run(old)
        if transcript.differences(old, new, where.device):
            file.write_text(transcript.shown(new))
            print(f"{file.relative_to(examples.ROOT)}", file=sys.stderr)


def record_traces(lesson, device: str) -> None:
    """The runs on two hosts whose pictures the lesson shows, each by the command that the lesson
    has for it."""
    text = lesson.file.read_text()
    commands = re.findall(
        (
            rf"\./lab trace(?: --program (\w+))? {lesson.stem}(?: --break (\w+))?(?: --"
            r" ([^`\n]*))?[`\n]"),
        text)
    for other, name, arguments in dict.fromkeys(commands):
        file = recording.file_of(lesson.stem, name or other)
        if f"pictures/{lesson.stem}/{file.stem}.svg" in text:
            program = examples.program(lesson, name) if name else other or lesson.program
            outcome, recorded = trace.of_example(lesson.kind, program, shlex.split(arguments))
            if bool(name) != outcome.failed:
                raise LabError(f"{file.stem}: {outcome.status}, not recorded:\n{outcome.text()}")
            if file.exists() and not Recording.load(file).differences(recorded, device):
                continue
            recorded.save(file)
            print(
                f"{file.relative_to(examples.ROOT)}; python3 pictures/draw.py draws it",
                file=sys.stderr)


def check_condition(where, since: "str | None") -> None:
    """@raises UsageError if that is no condition, or one that this place does not fulfil"""
    try:
        if since and not variants.since(where, since):
            raise UsageError(f"--since {since}: a run here would not show it")
    except ValueError as error:
        raise UsageError(str(error)) from None


def lines_named(text: str) -> list[str]:
    """The lines of sources that errors name. They change with the source, and not from run to
    run."""
    return sorted(re.findall(r"\(\S+\.[ch]pp:\d+\)", text))


def record(
    where, folder, program: str, kind: str, file, works: bool, since: "str | None" = None, like=None
) -> None:
    """Writes `file`, or the variant of it that holds here, if a run prints something else by now.

    @param since the condition of a new variant
    @param like the lesson's output, if only what differs from that is written"""
    outcome = examples.run(where, folder, program, kind)
    if outcome.timed_out or works == outcome.failed:
        raise LabError(f"{program}: {outcome.status}, not recorded:\n{outcome.text()}")
    text = outcome.text()
    if like:
        text = normalise.shortened(text, variants.expected(like, where).read_text())
    old = variants.expected(file, where)
    if old.exists() and lines_named(old.read_text()) == lines_named(text) and not (
        normalise.differences(old.read_text(), normalise.split_roles(text), where.device)
    ):
        return
    file = variants.named(file, since) if since else old
    file.write_text(text)
    print(f"{file.relative_to(examples.ROOT)}", file=sys.stderr)
