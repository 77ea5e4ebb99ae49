# SPDX-License-Identifier: MIT
"""./lab check 02.1: builds an exercise, runs it under the checker of ./lab lint, and says what is
still missing."""
from __future__ import annotations

from lab import build, examples, lint, normalise, packages, place, progress, run, variants, watch
from lab.errors import LabError


def add_parser(subparsers) -> None:
    parser = subparsers.add_parser("check", help="check an exercise: ./lab check 02.1")
    parser.add_argument("exercise", help="its number")
    parser.add_argument(
        "--watch", action="store_true", help="check again each time that the file is saved"
    )
    parser.set_defaults(main=main)


def main(args) -> int:
    name = examples.find_exercise(args.exercise)
    packages.ensure("build", *examples.groups(examples.exercises()[name]))
    if not args.watch:
        return check(name)
    for _ in watch.saves(examples.exercise_file(name)):
        try:
            check(name)
        except LabError as error:  # of the compiler, say: the reader is not done yet
            print(f"lab: {error}")
        print("waiting for the file to be saved; Ctrl-C ends this", flush=True)
    return 0


def check(name: str) -> int:
    """Builds and runs the exercise, and prints the verdict. @return 1 if it is not solved yet"""
    folder = build.build(*examples.targets(name), lint.LIBRARY)
    print(f"checking {examples.exercise_file(name).relative_to(examples.ROOT)}")
    missing = verdict(place.find_place(), folder, name, run.printer())
    if missing:
        print("not yet:", *missing, sep="\n  ")
        return 1
    print(f"exercise {name.split('_')[0]} is solved")
    progress.note("solved", name)
    return 0


def verdict(
    where,
    folder,
    name: str,
    show=lambda role, text: None,
    suffix: str = "",
    report=lambda finding: None,
) -> list[str]:
    """What is missing, as lines, and what the checker has found; nothing if the exercise's program
    prints what it should.

    @param suffix ".solution" for the solution that comes with it
    @param report called with each lint.Finding"""
    kind = examples.kind_of_exercise(name)
    collector = lint.Collector(show, report)
    start = [] if kind == "kernel" else lint.under(where, folder)
    outcome = examples.run(where, folder, name + suffix, kind, under=start, show=collector.show)
    collector.end(outcome)
    missing = [
        f"the {role or 'program'} ends with status {status}, not 0"
        for role, status in sorted(outcome.status.items())
        if status
    ]
    if outcome.timed_out:
        missing.append("it does not end by itself")
    # Of a side that failed, its own error and hint say more than what it did not print any more.
    expected = normalise.split_roles(
        variants.expected(examples.expected_file(name), where).read_text()
    )
    whole = {role: lines for role, lines in expected.items() if not outcome.status.get(role)}
    missing += normalise.compare(whole, {role: outcome.of(role) for role in whole}, where.device)
    # An exercise may make a mistake on purpose: findings only explain what is wrong.
    return missing and missing + [
        finding.text().replace("\n", "\n  ") for finding in collector.findings
    ]
