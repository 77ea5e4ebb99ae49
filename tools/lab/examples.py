"""What there is to run: the examples, their "Break it" changes and exercises, as built programs."""
from __future__ import annotations

from pathlib import Path
from typing import Callable, Optional, Sequence

from lab import ladder, pair
from lab.errors import LabError, UsageError, nearest
from lab.paths import ROOT
from lab.place import Place


def find(stem: str) -> ladder.Lesson:
    """The lesson called `stem`, or by its number or name alone."""
    lessons = [lesson for lesson in ladder.read() if lesson.kind != "lesson"]
    for lesson in lessons:
        if stem in (lesson.stem, lesson.number, lesson.name):
            return lesson
    raise UsageError(f"no example {stem}" + nearest(stem, [lesson.stem for lesson in lessons]))


def breaks(lesson: ladder.Lesson) -> list[str]:
    return sorted(path.stem for path in (ROOT / "examples" / lesson.stem / "break").glob("*.patch"))


def exercises() -> dict[str, ladder.Lesson]:
    """Number ("02.1") of each exercise with its name -> its lesson."""
    return {path.stem: lesson for lesson in ladder.read()
            for path in sorted((ROOT / "examples" / lesson.stem / "exercises").glob("*.cpp"))}


def find_exercise(number: str) -> str:
    names = list(exercises())
    for name in names:
        if number in (name, name.split("_")[0]):
            return name
    raise UsageError(f"no exercise {number}" + nearest(number, [name.split("_")[0] for name in names]))


def kind_of_exercise(name: str) -> str:
    """"pair" or "device": the expected output tells, since there each line begins with its role."""
    return "pair" if expected_file(name).read_text().startswith("[") else "device"


def run(place: Place, build: Path, program: str, kind: str, extra: Sequence[str] = (), *,
        time_limit: float = 60,
        show: Callable[[str, str], None] = lambda role, text: None) -> pair.Outcome:
    """Runs a program of build/examples by its kind ("device" or "pair", as in ladder.txt)."""
    path = build / "examples" / program
    if not path.exists():
        raise LabError(f"{path} is not built: ninja -C {build}")
    argv = [str(path), *(["--device", place.device] if place.device else []), *extra]
    return pair.run(place, argv, argv if kind == "pair" else None, time_limit=time_limit, show=show)


def expected_file(stem: str, broken: Optional[str] = None) -> Path:
    return ROOT / "tests" / "expected" / (stem + (f".break.{broken}" if broken else "") + ".txt")
