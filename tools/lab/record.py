"""./lab record: runs examples and commits what they print to tests/expected, for lessons and tests.

For whoever changes an example: look at the difference before you commit it.
"""
from __future__ import annotations

import re
import shlex
import sys

from lab import build, examples, ladder, packages, place, recording, trace
from lab.errors import LabError


def add_parser(subparsers) -> None:
    parser = subparsers.add_parser("record", help="for contributors: write an example's expected output anew")
    parser.add_argument("example", nargs="+", help="name or number")
    parser.set_defaults(main=main)


def main(args) -> int:
    lessons = [examples.find(name) for name in args.example]
    packages.ensure("build", "device", "machine", "kernel", "wire")
    folder = build.build()
    where = place.find_place()
    for lesson in lessons:
        record_traces(lesson)
        record(where, folder, lesson.program, lesson.kind, examples.expected_file(lesson.stem), works=True)
        for name in examples.others(lesson):
            record(where, folder, name, lesson.kind, examples.expected_file(lesson.stem, other=name), works=True)
        for name in examples.breaks(lesson):
            record(where, folder, examples.program(lesson, name), lesson.kind, examples.expected_file(lesson.stem, name),
                   works=False)
        for name, its in examples.exercises().items():
            if its == lesson:
                file = examples.expected_file(name)
                kind = examples.kind_of_exercise(name) if file.exists() else kind_from_source(name, lesson)
                record(where, folder, name + ".solution", kind, file, works=True)
    return 0


def record_traces(lesson) -> None:
    """The runs on two hosts whose pictures the lesson shows, each by the command that the lesson has for it."""
    text = lesson.file.read_text()
    commands = re.findall(rf"\./lab trace(?: --program (\w+))? {lesson.stem}(?: --break (\w+))?(?: -- ([^`\n]*))?[`\n]", text)
    for other, name, arguments in dict.fromkeys(commands):
        file = recording.file_of(lesson.stem, name or other)
        if file.with_suffix(".svg").name in text:
            program = examples.program(lesson, name) if name else other or lesson.program
            outcome, recorded = trace.of_example(lesson.kind, program, shlex.split(arguments))
            if bool(name) != outcome.failed:
                raise LabError(f"{file.stem}: {outcome.status}, not recorded:\n{outcome.text()}")
            recorded.save(file)
            print(f"{file.relative_to(examples.ROOT)}; python3 picture/draw.py draws it", file=sys.stderr)


def kind_from_source(name: str, lesson: ladder.Lesson) -> str:
    source = examples.ROOT / "examples" / lesson.stem / "exercises" / f"{name}.cpp"
    return lesson.kind if lesson.kind in ("alone", "kernel") or re.search("PairOptions|CmOptions", source.read_text()) else "device"


def record(where, folder, program: str, kind: str, file, works: bool) -> None:
    outcome = examples.run(where, folder, program, kind)
    if outcome.timed_out or works == outcome.failed:
        raise LabError(f"{program}: {outcome.status}, not recorded:\n{outcome.text()}")
    file.write_text(outcome.text())
    print(f"{file.relative_to(examples.ROOT)}", file=sys.stderr)
