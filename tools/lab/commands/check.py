# SPDX-License-Identifier: MIT
"""./lab check 02.1: builds an exercise, runs it under the checker of ./lab lint, and says what is
still missing."""
from __future__ import annotations

import difflib
import re
from pathlib import Path
from typing import Optional

from lab import build, examples, normalise, packages, place, watch
from lab.commands import lint, progress, run
from lab.errors import LabError
from lab.pages import findings


def add_parser(subparsers) -> None:
    parser = subparsers.add_parser("check", help="check an exercise: ./lab check 02.1")
    parser.add_argument(
        "exercise", nargs="?", help="its number; the next unsolved one if you name none")
    parser.add_argument(
        "--watch", action="store_true",
        help="check again each time that the file is saved; if you name no exercise, go on to the"
        " next one when it is solved")
    parser.set_defaults(main=main)


def main(args) -> int:
    name: Optional[str] = progress.exercise(args.exercise)
    solved: "set[tuple[str, ...]]" = set()  # in this run: progress may be switched off
    while name:
        start(name)
        if not args.watch:
            return check(name)
        check_each_save(name, stays=bool(args.exercise))
        solved.add(("solved", name))
        name = progress.State(progress.read() | solved).next_exercise()
        if name:
            print(f"the next exercise that you have not solved is {name.split('_')[0]}")
    print("all exercises are solved")
    return 0


def start(name: str) -> None:
    """Installs what the exercise needs. Makes the reader's copy of a program that it changes."""
    packages.ensure("build", *examples.groups(examples.exercises()[name]))
    made = examples.start_exercise(name)
    if made:
        print(
            f"made {made.relative_to(examples.ROOT)}: a copy of the lesson's"
            f" {examples.exercise_source(name).name}. Change it, and check again.")


def check_each_save(name: str, stays: bool) -> None:
    """Checks the exercise now and each time that its file is saved.

    @param stays goes on if the exercise is solved, and does not return"""
    for _ in watch.saves(examples.exercise_file(name)):
        try:
            if check(name) == 0 and not stays:
                return
        except LabError as error:  # of the compiler, say: the reader is not done yet
            print(f"lab: {error}")
        print("waiting for the file to be saved; Ctrl-C ends this", flush=True)


def check(name: str) -> int:
    """Builds and runs the exercise, and prints the verdict. @return 1 if it is not solved yet"""
    folder = build.build(*examples.targets(name), lint.LIBRARY)
    print(f"checking {examples.exercise_file(name).relative_to(examples.ROOT)}")
    missing = verdict(place.find_place(), folder, name, run.printer())
    if missing:
        print("not yet:", *missing, sep="\n  ")
        print("the exercise asks for this:", *wanted(examples.exercise_task(name)), sep="\n  ")
        return 1
    print(f"exercise {name.split('_')[0]} is solved")
    progress.note("solved", name)
    return 0


def wanted(source: Path) -> list[str]:
    """What the first comment of an exercise asks for: its paragraph "Wanted:"."""
    first, *more = source.read_text().split("Wanted:", 1)[1].splitlines()
    found = [first.strip()]
    for line in more:
        text = re.fullmatch(r"(?://| \*) {2,}(\S.*)", line)
        if not text:
            break
        found.append(text[1])
    return found


def unmet(role: str, wanted: list[str], printed: list[str], device: str) -> list[str]:
    """The differences between what a side should print and what it has printed, in words."""
    sides = [[normalise.normalise(line, device) for line in side] for side in (wanted, printed)]
    result = []
    for change, a, b, c, d in difflib.SequenceMatcher(None, *sides, autojunk=False).get_opcodes():
        if change == "equal":
            continue
        result += [f"the {role} does not print: {line}" for line in sides[0][a:b]]
        result += [f"the {role} prints, and should not: {line}" for line in sides[1][c:d]]
    return result


def verdict(
    where, folder, name: str, show=lambda role, text: None, program: Optional[str] = None,
    report=lambda finding: None
) -> list[str]:
    """What is missing, as lines, and what the checker has found; nothing if the exercise's program
    prints what it should.

    @param program what is run in place of the reader's: the solution that comes with it, say
    @param report called with each lint.Finding"""
    kind = examples.kind_of_exercise(name)
    collector = lint.Collector(show, report)
    start = [] if kind == "kernel" else lint.under(where, folder)
    outcome = examples.run(where, folder, program or name, kind, under=start, show=collector.show)
    collector.end(outcome)
    missing = [
        f"the {role or 'program'} ends with status {status}, not 0"
        for role, status in sorted(outcome.status.items())
        if status
    ]
    if outcome.timed_out:
        missing.append("it does not end by itself")
    # Of a side that failed, its own error and hint say more than what it did not print any more.
    expected = examples.exercise_output(name, where)
    whole = {role: lines for role, lines in expected.items() if not outcome.status.get(role)}
    for role, lines in sorted(whole.items()):
        missing += unmet(role or "program", lines, outcome.of(role), where.device)
    # An exercise may make a mistake on purpose: findings only explain what is wrong.
    # Those that the lesson's program has itself do not.
    program = examples.readers_copy(name)
    known = findings.of_program(program) if program else set()
    return missing and missing + [
        finding.text().replace("\n", "\n  ")
        for finding in collector.findings
        if finding.rule.name not in known and not (program and finding.rule.severity == "note")
    ]
