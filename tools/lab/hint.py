# SPDX-License-Identifier: MIT
"""./lab hint 05.1: the next hint to an exercise, and those before it; or its solution, whole."""
from __future__ import annotations

import subprocess
from pathlib import Path

from lab import examples, packages, progress


def add_parser(subparsers) -> None:
    parser = subparsers.add_parser(
        "hint",
        help="one more hint to an exercise each time: ./lab hint 05.1",
        description=(
            "Prints the hints that you have seen, and one more. ./lab progress has the file that"
            " remembers them."))
    parser.add_argument("exercise", help="its number")
    parser.add_argument("--all", action="store_true", help="print all of them")
    parser.add_argument(
        "--solution", action="store_true", help="print the solution, as a whole file, and no hint")
    parser.set_defaults(main=main)


def hints(name: str) -> list[str]:
    """In the order in which they are given. The last one comes close to the solution."""
    return examples.exercise_part(name, ".hints").read_text().strip().split("\n\n")


def main(args) -> int:
    name = examples.find_exercise(args.exercise)
    if args.solution:
        packages.ensure("build")  # patch(1)
        print(solution(name), end="")
        return 0
    every = hints(name)
    done = progress.read()
    seen = next(
        (number for number in range(len(every), 0, -1) if ("hint", name, str(number)) in done), 0)
    count = len(every) if args.all else min(seen + 1, len(every))
    for number, text in enumerate(every[:count], start=1):
        print(f"{number}. {text}", end="\n\n")
    left = len(every) - count
    print(
        f"{left} more: run this again"
        if left
        else "That was the last one. The solution: ./lab hint"
        f" {args.exercise} --solution, or as a change: {patch(name).relative_to(examples.ROOT)}")
    progress.note("hint", name, str(count))
    return 0


def patch(name: str) -> Path:
    """What the solution changes in the file where the reader starts."""
    return examples.exercise_part(name, ".patch")


def solution(name: str) -> str:
    """The whole file, as ./lab check builds it."""
    source = examples.exercise_source(name)
    changed = subprocess.run(
        ["patch", "--silent", "--fuzz=0", "--output=-", source, patch(name)], check=True,
        capture_output=True, text=True).stdout
    return examples.with_task(name, changed)
