# SPDX-License-Identifier: MIT
"""What there is to run: the examples, their "Break it" changes and exercises, as built programs."""
from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Optional, Sequence

from lab import kbuild, ladder, pair, place as places, sources
from lab.errors import LabError, UsageError, nearest
from lab.listening import LISTENING
from lab.paths import ROOT
from lab.place import Place


def find(stem: str) -> ladder.Lesson:
    """The lesson called `stem`, or by its number or name alone."""
    lessons = [lesson for lesson in ladder.read() if lesson.kind != "lesson"]
    for lesson in lessons:
        if stem in (lesson.stem, lesson.number, lesson.name):
            return lesson
    raise UsageError(f"no example {stem}" + nearest(stem, [lesson.stem for lesson in lessons]))


def programs(lesson: ladder.Lesson) -> list[str]:
    if lesson.kind == "kernel":
        return [lesson.program]  # of several sources, whose names are no programs
    return sources.programs(ROOT / "examples" / lesson.stem)


def others(lesson: ladder.Lesson) -> list[str]:
    """Programs of the lesson's besides the one with its name: those whose output the lesson shows."""
    text = lesson.file.read_text() if lesson.file.exists() else ""
    return [name for name in programs(lesson)
            if name not in (lesson.program, *lesson.sides) and expected_file(lesson.stem, other=name).name in text]


def program(lesson: ladder.Lesson, broken: str) -> str:
    """The built program that has this change. The patch says which one it is made from, or names the broken_source of one."""
    folder = ROOT / "examples" / lesson.stem
    if lesson.kind == "kernel":
        return f"{lesson.program}.{broken}"
    changed = Path(re.search(r"^\+\+\+ b/(\S+)", (folder / "break" / f"{broken}.patch").read_text(), re.M)[1])
    whose = re.search(rf"'(\w+)(?:\.\w+)?': '\S*/{re.escape(changed.name)}'", (folder / "meson.build").read_text())
    return (whose[1] if whose else changed.stem) + f".{broken}"


def breaks(lesson: ladder.Lesson) -> list[str]:
    """In the order in which the lesson has them; one that it does not have is among the first."""
    there = re.findall(r"--break (\w+)", lesson.file.read_text())
    names = sorted(path.stem for path in (ROOT / "examples" / lesson.stem / "break").glob("*.patch"))
    return sorted(names, key=lambda name: there.index(name) if name in there else -1)


def exercises() -> dict[str, ladder.Lesson]:
    """Number ("02.1") of each exercise with its name -> its lesson."""
    return {path.stem: lesson for lesson in ladder.read()
            for path in sorted((ROOT / "examples" / lesson.stem / "exercises").glob("*"))
            if path.suffix in (".c", ".cpp")}


def exercise_file(name: str) -> Path:
    """Where the reader writes."""
    lesson = exercises()[name]
    return ROOT / "examples" / lesson.stem / "exercises" / (name + (".c" if lesson.kind == "kernel" else ".cpp"))


def find_exercise(number: str) -> str:
    names = list(exercises())
    for name in names:
        if number in (name, name.split("_")[0]):
            return name
    raise UsageError(f"no exercise {number}" + nearest(number, [name.split("_")[0] for name in names]))


def kind_of_exercise(name: str) -> str:
    """As its lesson's, or "device": the expected output tells, since for a pair each line begins with its role."""
    kind = exercises()[name].kind
    return kind if kind in ("alone", "kernel") or expected_file(name).read_text().startswith("[") else "device"


def groups(lesson: ladder.Lesson, device: Optional[str] = None, two_hosts: bool = False) -> list[str]:
    """The packages (packages.py) that running it needs, besides those that build it."""
    if lesson.kind == "kernel":
        return ["device", "machine", "kernel"]
    return ["device", "machine"] if two_hosts else places.groups(device)


PORT_OPTION = {"pair": "--tcp-port", "cm-pair": "--cm-port"}


def kernel_lesson(program: str) -> Optional[ladder.Lesson]:
    """The lesson whose module, changed module, or exercise `program` is."""
    for lesson in ladder.read():
        if lesson.kind == "kernel" and (program.partition(".")[0] == lesson.program or program.startswith(lesson.number + ".")):
            return lesson
    return None


def sides(program: str) -> tuple[str, str]:
    """Server and client: what `program`, perhaps with a change in it, is run with. Most are both sides themselves."""
    base = program.partition(".")[0]
    for lesson in ladder.read():
        if base in lesson.sides:
            server, client = lesson.sides
            return (program, client) if base == server else (server, program)
    return program, program


def targets(program: str) -> list[str]:
    """What Meson builds in order to run it. A module is kbuild's, and is built when it is run."""
    lesson = kernel_lesson(program)
    if lesson:
        return [f"examples/{lesson.sides[0]}"]
    return [f"examples/{side}" for side in dict.fromkeys(sides(program))]


def run(place: Place, build: Path, program: str, kind: str, extra: Sequence[str] = (), *, under: Sequence[str] = (),
        client_place: Optional[Place] = None, **options) -> pair.Outcome:
    """Runs a program of build/examples, with its other side, by its kind, as in ladder.txt.

    @param under what starts the program, if it is not to start by itself: env(1), strace(1), …
    @param client_place where the client runs, if not where the server does
    @param options as pair.run() takes them"""
    if kind == "kernel":
        return _run_module(place, build, program, extra, under, client_place, options)
    without_device = dataclasses.replace(place, device="")
    if kind not in PORT_OPTION:
        return pair.run(place, _command(build, program, without_device if kind == "alone" else place, under, extra), **options)
    # rdma_cm finds the device by the address.
    both = [_command(build, side, place if kind == "pair" else without_device, under, extra) for side in sides(program)]
    return run_pair(place, *both, client_place, port_option=PORT_OPTION[kind], **options)


def _run_module(place: Place, build: Path, program: str, extra: Sequence[str], under: Sequence[str],
                client_place: Optional[Place], options) -> pair.Outcome:
    """The server, which `under` starts, and the module as its client. Both in the emulated machine, and never elsewhere: a mistake in a module is
    one in the kernel."""
    lesson = kernel_lesson(program)
    place = place if place.kind == "machine" else places.find_machine()
    client = client_place or place
    if client.kind != "machine":
        raise LabError(f"{lesson.stem} is a kernel module, which runs in the emulated machine only")
    module = kbuild.module(lesson, program, build)
    client_argv = ["python3", "-I", "-S", str(ROOT / "tools/lab/guest_module.py"), str(module), *extra]
    return pair.run(place, [*_command(build, lesson.sides[0], dataclasses.replace(place, device=""), under, ()), "--cm-port", "0"],
                    pair.Client(LISTENING, lambda line: [*client_argv, f"server={place.address}", f"port={line[1]}"], client), **options)


def _command(build: Path, program: str, place: Place, under: Sequence[str], extra: Sequence[str]) -> list[str]:
    path = build / "examples" / program
    if not path.exists():
        raise LabError(f"{path} is not built: ninja -C {build}")
    return [*under, str(path), *(["--device", place.device] if place.device else []), *extra]


def run_pair(place: Place, server: Sequence[str], client: Sequence[str], client_place: Optional[Place] = None, *,
             port_option: str = "--tcp-port", **options) -> pair.Outcome:
    """Runs a server and its client by their command lines; where to listen and whom to connect to is added."""
    return pair.run(place, [*server, port_option, "0"], pair.Client(
        LISTENING, lambda line: [*client, "--host", place.address, port_option, line[1]], client_place), **options)


def expected_file(stem: str, broken: Optional[str] = None, other: Optional[str] = None) -> Path:
    """@param other a program of the lesson's that has not its name"""
    return ROOT / "tests" / "expected" / (stem + (f".{other}" if other else "") + (f".break.{broken}" if broken else "")
                                          + ".txt")
