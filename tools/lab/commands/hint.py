# SPDX-License-Identifier: MIT
"""./lab hint 05.1: the next hint to an exercise, and those before it; or what its solution
changes."""
from __future__ import annotations

import difflib
import subprocess
from pathlib import Path

from lab import examples, packages
from lab.commands import progress


def add_parser(subparsers) -> None:
    parser = subparsers.add_parser(
        "hint",
        help="one more hint to an exercise each time: ./lab hint 05.1",
        description=(
            "Prints the hints that you have seen, and one more. ./lab progress has the file that"
            " remembers them."))
    parser.add_argument(
        "exercise", nargs="?", help="its number; the next unsolved one if you name none")
    parser.add_argument(
        "--all", action="store_true", help="print all hints, or with --solution the whole file")
    parser.add_argument(
        "--solution", action="store_true",
        help="print each function that the solution changes, and no hint")
    parser.set_defaults(main=main)


def hints(name: str) -> list[str]:
    """In the order in which they are given. The last one comes close to the solution."""
    return examples.exercise_part(name, ".hints").read_text().strip().split("\n\n")


def main(args) -> int:
    name = progress.exercise(args.exercise)
    number = name.split("_")[0]
    if args.solution:
        packages.ensure("build")  # patch(1)
        print(solution(name) if args.all else changed_parts(name), end="")
        return 0
    every = hints(name)
    done = progress.read()
    seen = next(
        (number for number in range(len(every), 0, -1) if ("hint", name, str(number)) in done), 0)
    count = len(every) if args.all else min(seen + 1, len(every))
    for place, text in enumerate(every[:count], start=1):
        print(f"{place}. {text}", end="\n\n")
    left = len(every) - count
    print(
        f"{left} more: run ./lab hint {number} again"
        if left
        else f"That was the last one. The solution: ./lab hint {number} --solution, or as a change:"
        f" {patch(name).relative_to(examples.ROOT)}")
    progress.note("hint", name, str(count))
    return 0


def patch(name: str) -> Path:
    """What the solution changes in the file where the reader starts."""
    return examples.exercise_part(name, ".patch")


def solution(name: str) -> str:
    """The whole file, as ./lab check builds it."""
    return examples.with_task(name, _patched(name))


def _patched(name: str) -> str:
    return subprocess.run(
        [
            "patch", "--silent", "--fuzz=0", "--output=-", examples.exercise_source(name),
            patch(name)],
        check=True, capture_output=True, text=True).stdout


def changed_parts(name: str) -> str:
    """Each function, class or list of includes that the solution changes, whole. An empty line and
    then one that is not indented begins the next part."""
    old = examples.exercise_source(name).read_text().splitlines()
    new = _patched(name).splitlines()
    starts = [0] + [
        at for at in range(1, len(new)) if not new[at - 1] and new[at] and not new[at][0].isspace()]
    changed = {
        max(start for start in starts if start <= at)
        for what, _, _, first, end in difflib.SequenceMatcher(
            None, old, new, autojunk=False).get_opcodes()
        if what != "equal"
        for at in range(first, max(end, first + 1))
        if at < len(new) and (new[at] or at == first)}
    parts = [
        "\n".join(new[start:end]).rstrip()
        for start, end in zip(starts, [*starts[1:], len(new)]) if start in changed]
    return "\n\n".join(parts) + "\n"
