# SPDX-License-Identifier: MIT
"""./lab progress: what has been run, broken on purpose and solved, and what comes next.

./lab run, ./lab check, ./lab hint and ./lab doctor note it, by a line that they append to a file of
the user's for this clone, which outlives the build. A run does not fail if its note does: it says
so. LAB_PROGRESS names another file, or is "off", as it is in the tests, whose runs are not the
reader's.
"""
from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path
from typing import Iterable, Optional

from lab import examples, ladder, pair
from lab.errors import LabError, UsageError
from lab.paths import ROOT

WORDS = {"run": 2, "broken": 3, "solved": 2, "hint": 3}  # of a line that begins so


def file() -> Optional[Path]:
    """Where it is kept; none if it is switched off, or the user has no home."""
    chosen = os.environ.get("LAB_PROGRESS")
    if chosen == "off":
        return None
    if chosen:
        return Path(chosen).absolute()
    state = os.environ.get("XDG_STATE_HOME", "")
    try:  # a path there that is not absolute is to be ignored, says the XDG specification
        top = Path(state) if os.path.isabs(state) else Path.home() / ".local/state"
    except RuntimeError:
        return None
    clone = f"{ROOT.name}-{hashlib.sha256(os.fsencode(ROOT)).hexdigest()[:8]}"
    return top / "rdma-by-example/progress" / f"{clone}.txt"


def _lines(path: Path) -> "list[str]":
    try:
        return path.read_text(errors="replace").splitlines()
    except FileNotFoundError:
        return []


def _not_kept(error: OSError) -> None:
    print(f"lab: progress is not kept: {error}", file=sys.stderr)


def note(*words: str) -> None:
    """Notes, for example, ("run", "02_send_recv"), unless it has been noted already."""
    path, line = file(), " ".join(words)
    try:
        if path and line not in _lines(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("a") as notes:
                notes.write(line + "\n")
    except OSError as error:
        _not_kept(error)


def note_run(lesson: ladder.Lesson, broken: Optional[str], outcome) -> None:
    """After ./lab run: what was run, if it ended as it should have. That a device cannot do it is
    no failure (exit status 77)."""
    if broken:
        if outcome.failed:
            note("broken", lesson.stem, broken)
    elif not outcome.timed_out and set(outcome.status.values()) <= {0, pair.SKIPPED}:
        note("run", lesson.stem)


def read() -> "set[tuple[str, ...]]":
    """What has been noted. Lines that are damaged do not count."""
    path = file()
    try:
        noted = [tuple(line.split()) for line in _lines(path)] if path else []
    except OSError as error:
        _not_kept(error)
        return set()
    good = {words for words in noted if words and WORDS.get(words[0]) == len(words)}
    damaged = [words for words in noted if words not in good]
    if damaged:
        print(f"lab: {path}: {len(damaged)} damaged lines do not count", file=sys.stderr)
    return good


def texts_before() -> "dict[str, list[str]]":
    """For each lesson, the lessons directly before it in which nothing is run."""
    result: "dict[str, list[str]]" = {}
    texts: "list[str]" = []
    for lesson in ladder.read():
        if not lesson.command:
            texts.append(lesson.stem)
            continue
        result[lesson.stem] = texts
        texts = []
    return result


class State:
    """What there is to do, and what of it has been done."""

    def __init__(self, done: "Iterable[tuple[str, ...]]"):
        done = set(done)
        self.lessons = [lesson for lesson in ladder.read() if lesson.command]
        self.texts = texts_before()
        self.run = {lesson.stem: ("run", lesson.stem) in done for lesson in self.lessons}
        self.breaks = {
            lesson.stem: {
                name: ("broken", lesson.stem, name) in done for name in examples.breaks(lesson)}
            for lesson in self.lessons}
        self.exercises: "dict[str, dict[str, bool]]" = {lesson.stem: {} for lesson in self.lessons}
        for name in examples.exercises():
            # One of a lesson that runs nothing comes with the last lesson before it that does.
            stem = [lesson.stem for lesson in self.lessons if lesson.number <= name[:2]][-1]
            self.exercises[stem][name] = ("solved", name) in done

    def undone(self, lesson: ladder.Lesson) -> "list[str]":
        """The commands that are left in a lesson, in its order."""
        stem = lesson.stem
        read = " and ".join(f"lessons/{name}.md" for name in [*self.texts[stem], stem])
        commands = [] if self.run[stem] else [f"{lesson.command:40} # and read {read}"]
        commands += [
            f"./lab run {stem} --break {name}"
            for name, done in self.breaks[stem].items()
            if not done
        ]
        for name, done in self.exercises[stem].items():
            if not done:
                check = f"./lab check {name.split('_')[0]}"
                commands.append(
                    f"{check:40} # the exercise is"
                    f" {examples.exercise_task(name).relative_to(examples.ROOT)}")
        return commands

    def here(self) -> int:
        """The place of the last lesson of which something has been done."""
        return max(
            (
                number
                for number, lesson in enumerate(self.lessons)
                if self.run[lesson.stem]
                or any(self.breaks[lesson.stem].values())
                or any(self.exercises[lesson.stem].values())),
            default=0)

    def after(self, here: int) -> "list[ladder.Lesson]":
        """The next lesson; where the two routes part, the next one of each."""
        lessons = self.lessons[here + 1 :]
        if lessons and lessons[0].only_to_build and not self.lessons[here].only_to_build:
            return [lessons[0], *[lesson for lesson in lessons if not lesson.only_to_build][:1]]
        return lessons[:1]

    def next(self) -> "list[str]":
        """What comes next: what is left in the lesson that the reader has got to, the one after it
        on each route, and the first one that was left out.

        Who begins with lesson 02, as the README does, is so led to 00 and 01 as well.
        """
        here = self.here()
        left = self.undone(self.lessons[here])[:1]
        routes = self.after(here)
        for lesson in routes:
            commands = self.undone(lesson)[:1]
            if len(routes) == 2 and not self.run[lesson.stem]:
                why = "build" if lesson.only_to_build else "use"
                commands = [f"{lesson.command:40} # to {why} it, read lessons/{lesson.stem}.md"]
            left += commands
        builds = any(self.run[lesson.stem] for lesson in self.lessons if lesson.only_to_build)
        left += [
            self.undone(lesson)[0]
            for lesson in self.lessons[:here]
            if not self.run[lesson.stem] and (builds or not lesson.only_to_build)
        ][:1]
        if not left:
            left = [command for lesson in self.lessons for command in self.undone(lesson)][:1]
        return left

    def next_exercise(self) -> Optional[str]:
        """The first unsolved one, from the lesson on that the reader has got to."""
        here = self.here()
        left = [
            name for lesson in [*self.lessons[here:], *self.lessons[:here]]
            for name, done in self.exercises[lesson.stem].items() if not done]
        return left[0] if left else None


def exercise(number: Optional[str]) -> str:
    """The name of exercise 02.1, or of the next unsolved one if there is no number. @raises
    UsageError if there is none"""
    name = examples.find_exercise(number) if number else State(read()).next_exercise()
    if not name:
        raise UsageError("all exercises are solved: name one")
    return name


def add_parser(subparsers) -> None:
    parser = subparsers.add_parser(
        "progress", help="what you have run and solved, and what comes next")
    parser.add_argument("--forget", action="store_true", help="begin anew")
    parser.set_defaults(main=main)


def count(done: "dict[str, bool]") -> str:
    return f"{sum(done.values())} of {len(done)}" if done else "-"


def main(args) -> int:
    path = file()
    if args.forget:
        try:
            if path:
                path.unlink(missing_ok=True)
        except OSError as error:
            raise LabError(f"{path}: {error.strerror}") from error
    state = State(read())
    print(f"{'lesson':22} {'run':5} {'broken':8} solved")
    part = ""
    for lesson in state.lessons:
        stem = lesson.stem
        if lesson.part != part:
            part = lesson.part
            print(part)
        run = "yes" if state.run[stem] else "-"
        breaks, exercises = count(state.breaks[stem]), count(state.exercises[stem])
        print(f"  {stem:20} {run:5} {breaks:8} {exercises}")
    print()
    for place, command in enumerate(state.next()):
        print(f"{'or:' if place else 'next:':6}{command}")
    if not state.next():
        print(
            "You have run, broken and solved all there is. ./lab new DIR --from EXAMPLE starts a"
            " project of your own.")
    if not path:
        why = "LAB_PROGRESS is off" if os.environ.get("LAB_PROGRESS") else "you have no home folder"
        print(f"lab: progress is not kept: {why}", file=sys.stderr)
    return 0
