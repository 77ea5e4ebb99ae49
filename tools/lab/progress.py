# SPDX-License-Identifier: MIT
"""./lab progress: what has been run, broken on purpose and solved, and what comes next.

./lab run, ./lab check and ./lab doctor note it, a line for each thing, in a file of the user's for
this clone, which outlives the build. To note a thing is to append its line, in one write: two at a
time do not disturb each other, and of a file that is damaged the other lines are still good. It is
a convenience: whatever goes wrong with the file, the run goes on. LAB_PROGRESS names another file,
or is "off", as it is in the tests, whose runs are not the reader's.
"""
from __future__ import annotations

import hashlib
import os
import stat
import sys
from pathlib import Path
from typing import Iterable, Optional

from lab import examples, ladder
from lab.errors import LabError
from lab.paths import ROOT

# A larger file is not ours: after all lessons it has less than 10 kB.
LARGEST = 1 << 20


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


def _read(path: Path) -> bytes:
    """@raises OSError also for what is not a file of a sensible size: a pipe there must not stop
    anybody"""
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(handle, "rb") as opened:
        info = os.fstat(handle)
        if not stat.S_ISREG(info.st_mode) or info.st_size > LARGEST:
            raise OSError(f"{path} is not a file of ./lab's")
        return opened.read(LARGEST)


def note(*words: str) -> None:
    """Notes, for example, ("run", "02_send_recv"), unless it has been noted already. Never
    fails."""
    try:
        path = file()
        if path is None:
            return
        line = " ".join(words).encode()
        try:
            old = _read(path)
        except FileNotFoundError:
            old = b""
        if line in old.split(b"\n"):
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(
            path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK | os.O_CLOEXEC, 0o644
        )
        # An entry begins a new line, also behind a line that was not finished. If another process
        # is just finishing that line, one line stays empty.
        try:
            os.write(handle, (b"\n" if old and not old.endswith(b"\n") else b"") + line + b"\n")
        finally:
            os.close(handle)
    except (OSError, ValueError):
        pass


def note_run(lesson: ladder.Lesson, broken: Optional[str], outcome) -> None:
    """After ./lab run: what was run, if it ended as it should have. That a device cannot do it is
    no failure (exit status 77)."""
    if broken:
        if outcome.failed:
            note("broken", lesson.stem, broken)
    elif not outcome.timed_out and set(outcome.status.values()) <= {0, 77}:
        note("run", lesson.stem)


def read() -> "set[tuple[str, ...]]":
    """What has been noted; what cannot be read has not. Lines that say nothing to us are passed
    over."""
    path = file()
    try:
        text = _read(path) if path else b""
    except OSError:
        text = b""
    return {tuple(line.split()) for line in text.decode(errors="replace").splitlines() if line}


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
                name: ("broken", lesson.stem, name) in done for name in examples.breaks(lesson)
            }
            for lesson in self.lessons
        }
        self.exercises: "dict[str, dict[str, bool]]" = {lesson.stem: {} for lesson in self.lessons}
        for name, lesson in examples.exercises().items():
            self.exercises[lesson.stem][name] = ("solved", name) in done

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
                    f" {examples.exercise_task(name).relative_to(examples.ROOT)}"
                )
        return commands

    def next(self) -> "list[str]":
        """What comes next: what is left in the lesson that the reader has got to, the one after it,
        and the first one that was left out.

        Who begins with lesson 02, as the README does, is so led to 00 and 01 as well.
        """
        touched = [
            number
            for number, lesson in enumerate(self.lessons)
            if self.run[lesson.stem]
            or any(self.breaks[lesson.stem].values())
            or any(self.exercises[lesson.stem].values())
        ]
        here = max(touched, default=0)
        left = self.undone(self.lessons[here])[:1]
        left += [
            command
            for lesson in self.lessons[here + 1 : here + 2]
            for command in self.undone(lesson)[:1]
        ]
        left += [
            self.undone(lesson)[0] for lesson in self.lessons[:here] if not self.run[lesson.stem]
        ][:1]
        if not left:
            left = [command for lesson in self.lessons for command in self.undone(lesson)][:1]
        return left


def add_parser(subparsers) -> None:
    parser = subparsers.add_parser(
        "progress", help="what you have run and solved, and what comes next"
    )
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
    print(f"{'lesson':20} {'run':5} {'broken':8} solved")
    for lesson in state.lessons:
        stem = lesson.stem
        run = "yes" if state.run[stem] else "-"
        breaks, exercises = count(state.breaks[stem]), count(state.exercises[stem])
        print(f"{stem:20} {run:5} {breaks:8} {exercises}")
    print()
    for word, command in zip(("next:", "or:", "or:"), state.next()):
        print(f"{word:6}{command}")
    if not state.next():
        print(
            "You have run, broken and solved all there is. ./lab new DIR --from EXAMPLE starts a"
            " project of your own."
        )
    if trouble := why_not_kept(path):
        print(f"lab: progress is not kept: {trouble}", file=sys.stderr)
    return 0


def why_not_kept(path: Optional[Path]) -> str:
    """What is in the way of noting anything, or ""."""
    if path is None:
        return (
            "LAB_PROGRESS is off"
            if os.environ.get("LAB_PROGRESS") == "off"
            else "you have no home folder; set LAB_PROGRESS to a file"
        )
    try:
        _read(path)
    except FileNotFoundError:
        pass
    except OSError as error:
        return f"{path}: {error.strerror}" if error.strerror else str(error)
    there = next(folder for folder in (path, *path.parents) if folder.exists())
    if (there != path and not there.is_dir()) or not os.access(there, os.W_OK):
        return f"{there} cannot be written to; set LAB_PROGRESS to a file that can"
    return ""
