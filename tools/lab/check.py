# SPDX-License-Identifier: MIT
"""./lab check 02.1: builds an exercise and says what is still missing."""
from __future__ import annotations

from lab import build, examples, normalise, packages, place, progress, run, variants


def add_parser(subparsers) -> None:
    parser = subparsers.add_parser("check", help="check an exercise: ./lab check 02.1")
    parser.add_argument("exercise", help="its number")
    parser.set_defaults(main=main)


def main(args) -> int:
    name = examples.find_exercise(args.exercise)
    packages.ensure("build", *examples.groups(examples.exercises()[name]))
    folder = build.build(*examples.targets(name))
    print(f"checking {examples.exercise_file(name).relative_to(examples.ROOT)}")
    missing = verdict(place.find_place(), folder, name, run.printer())
    if missing:
        print("not yet:", *missing, sep="\n  ")
        return 1
    print(f"exercise {args.exercise} is solved")
    progress.note("solved", name)
    return 0


def verdict(where, folder, name: str, show=lambda role, text: None, suffix: str = "") -> list[str]:
    """What is missing, as lines; nothing if the exercise's program prints what it should.

    @param suffix ".solution" for the solution that comes with it"""
    kind = examples.kind_of_exercise(name)
    outcome = examples.run(where, folder, name + suffix, kind, show=show)
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
    return missing + normalise.compare(
        whole, {role: outcome.of(role) for role in whole}, where.device
    )
