# SPDX-License-Identifier: MIT
"""./lab hint 05.1: the next hint to an exercise, and those before it."""
from __future__ import annotations

from lab import examples, progress


def add_parser(subparsers) -> None:
    parser = subparsers.add_parser(
        "hint",
        help="one more hint to an exercise each time: ./lab hint 05.1",
        description=(
            "Prints the hints that you have seen, and one more. ./lab progress has the file that"
            " remembers them."
        ),
    )
    parser.add_argument("exercise", help="its number")
    parser.add_argument("--all", action="store_true", help="print all of them")
    parser.set_defaults(main=main)


def hints(name: str) -> list[str]:
    """In the order in which they are given. The last one comes close to the solution."""
    return examples.exercise_file(name).with_suffix(".hints").read_text().strip().split("\n\n")


def main(args) -> int:
    name = examples.find_exercise(args.exercise)
    every = hints(name)
    done = progress.read()
    seen = next(
        (number for number in range(len(every), 0, -1) if ("hint", name, str(number)) in done), 0
    )
    count = len(every) if args.all else min(seen + 1, len(every))
    for number, text in enumerate(every[:count], start=1):
        print(f"{number}. {text}", end="\n\n")
    left = len(every) - count
    print(
        f"{left} more: run this again"
        if left
        else f"That was the last one. The solution: {solution(name)}"
    )
    progress.note("hint", name, str(count))
    return 0


def solution(name: str) -> str:
    return str(examples.exercise_file(name).with_suffix(".patch").relative_to(examples.ROOT))
