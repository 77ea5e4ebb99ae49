# SPDX-License-Identifier: MIT
"""What there is to run: the examples, their "Break it" changes and exercises, as built programs."""
from __future__ import annotations

import collections
import contextlib
import dataclasses
import fcntl
import functools
import os
import re
from pathlib import Path
from typing import Optional, Sequence

from lab import ladder, normalise, pair, place as places, variants
from lab.errors import LabError, UsageError, nearest
from lab.listening import LISTENING
from lab.machine import kbuild
from lab.paths import ROOT, WORK, runtime_dir
from lab.place import Place


def find(stem: str, with_program: bool = True) -> ladder.Lesson:
    """The lesson called `stem`, or by its number or name alone. @raises UsageError for one that has
    no program, unless that may be"""
    lessons = ladder.read()
    for lesson in lessons:
        if stem not in (lesson.stem, lesson.number, lesson.name):
            continue
        if lesson.has_program or not with_program:
            return lesson
        raise UsageError(
            f"{lesson.stem} is a lesson without a program of its own: lessons/{lesson.stem}.md has"
            " its commands")
    raise UsageError(f"no example {stem}" + nearest(stem, [lesson.stem for lesson in lessons]))


@functools.cache
def _facts() -> dict[str, dict]:
    """What examples/programs.txt says of each example. Its first lines explain the others."""
    result: dict[str, dict] = collections.defaultdict(
        lambda: {"programs": [], "module": "", "breaks": {}, "exercises": {}, "own": {}})
    for line in (ROOT / "examples/programs.txt").read_text().splitlines():
        name, *words = line.split()
        program = name.removesuffix(".ko")
        if name.startswith("#"):
            continue
        if not line.startswith(" "):
            facts = result[name]
        elif name[0].isdigit():
            facts["exercises"][name], *own = words
            facts["own"].update((name, program) for program in own)
        else:
            if program == name:
                facts["programs"].append(name)
            else:
                facts["module"] = program
            facts["breaks"].update(dict.fromkeys(words, program))
    return result


def of(lesson: ladder.Lesson) -> dict:
    """`programs`, `module`, `breaks` (name -> program), `exercises` (name -> kind) and `own`
    (exercise -> the program that it changes) of the lesson's example."""
    return _facts()[lesson.stem]


def programs(lesson: ladder.Lesson) -> list[str]:
    """What can be run: those of a kernel module's example are its server, which runs with the
    module."""
    return [of(lesson)["module"]] if lesson.kind == "kernel" else of(lesson)["programs"]


def program(lesson: ladder.Lesson, broken: str) -> str:
    """The built program that has this change."""
    return f"{of(lesson)['breaks'][broken]}.{broken}"


def breaks(lesson: ladder.Lesson) -> list[str]:
    """In the order in which the lesson has them."""
    return list(of(lesson)["breaks"])


def exercises() -> dict[str, ladder.Lesson]:
    """Name ("02.1_three_messages") of each exercise, by its number -> the lesson in whose folder it
    lies."""
    its = {name: lesson for lesson in ladder.read() for name in of(lesson)["exercises"]}
    return dict(sorted(its.items(), key=lambda item: item[0]))


def readers_copy(name: str) -> Optional[str]:
    """The lesson's program that the exercise changes; None if it starts from a file of its own."""
    return of(exercises()[name])["own"].get(name)


def exercise_part(name: str, suffix: str) -> Path:
    """What comes with an exercise: its ".hints", its ".patch", what its solution prints
    (".txt"), and its ".task" or its start."""
    return ROOT / "examples" / exercises()[name].stem / "exercises" / (name + suffix)


def exercise_task(name: str) -> Path:
    """The file that says what the exercise asks for."""
    return exercise_part(name, ".task" if readers_copy(name) else ".cpp")


def exercise_file(name: str) -> Path:
    """Where the reader writes: for an exercise that changes the lesson's program, a copy of it."""
    if not readers_copy(name):
        return exercise_task(name)
    return WORK / (name + exercise_source(name).suffix)


def exercise_source(name: str) -> Path:
    """The file that the solution's patch changes: the lesson's program, a file of its module, or
    where the reader writes."""
    return kbuild.changed_by(exercise_part(name, ".patch"))


def exercise_output(name: str, place: Place) -> "dict[str, list[str]]":
    """What each side of the solved exercise prints, at this place."""
    roles = normalise.split_roles(variants.expected(exercise_part(name, ".txt"), place).read_text())
    like = lesson_output(name)
    if not like:
        return roles
    others = normalise.split_roles(variants.expected(like, place).read_text())
    return {role: normalise.filled(lines, others.get(role, [])) for role, lines in roles.items()}


def lesson_output(name: str) -> Optional[Path]:
    """What the program prints that the exercise changes: the exercise's expected output has only
    what differs (normalise.shortened). None for an exercise that changes no program."""
    return expected_file(exercises()[name].stem) if readers_copy(name) else None


def with_task(name: str, text: str) -> str:
    """What the reader gets of the exercise's source, or of its solution: a lesson's program gets
    the task on top, below its licence."""
    if not readers_copy(name):
        return text
    licence, rest = text.split("\n", 1)
    return f"{licence}\n{exercise_task(name).read_text()}//\n{rest}"


def exercise_start(name: str) -> str:
    """The file as the reader gets it."""
    return with_task(name, exercise_source(name).read_text())


def start_exercise(name: str) -> Optional[Path]:
    """Makes the reader's copy of the lesson's program, whole or not at all. @return it, if it was
    not there before"""
    path = exercise_file(name)
    if path.exists():
        return None
    path.parent.mkdir(exist_ok=True)
    new = path.with_name(f"{path.name}.{os.getpid()}")
    new.write_text(exercise_start(name))
    new.rename(path)
    return path


def find_exercise(number: str) -> str:
    names = list(exercises())
    for name in names:
        if number in (name, name.split("_")[0]):
            return name
    raise UsageError(
        f"no exercise {number}" + nearest(number, [name.split("_")[0] for name in names]))


def kind_of_exercise(name: str) -> str:
    """How it runs, as in ladder.txt."""
    return of(exercises()[name])["exercises"][name]


def groups(
    lesson: ladder.Lesson, device: Optional[str] = None, two_hosts: bool = False
) -> list[str]:
    """The packages (packages.py) that running it needs, besides those that build it."""
    if lesson.kind == "kernel":
        return ["device", "machine", "kernel"]
    return ["device", "machine"] if two_hosts else places.groups(device)


IN_VAIN = re.compile(r"\bwithin \d+ m?s\b|\b5000 ms\b|\b5 s\b|in time|missed a wake")
PORT_OPTION = {"pair": "--tcp-port", "cm-pair": "--cm-port"}


def kernel_lesson(program: str) -> Optional[ladder.Lesson]:
    """The lesson whose module or changed module `program` is, or in whose folder this exercise
    lies."""
    of_exercise = exercises().get(program.removesuffix(".solution"))
    for lesson in ladder.read():
        if lesson.kind == "kernel" and (
            lesson == of_exercise or lesson.program == program.partition(".")[0]
        ):
            return lesson
    return None


def sides(program: str) -> tuple[str, str]:
    """Server and client: what `program`, perhaps with a change in it, is run with. Most are both
    sides themselves."""
    base = program.partition(".")[0]
    exercise = program.removesuffix(".solution")
    if exercise in exercises():
        base = readers_copy(exercise) or base
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


def run(
    place: Place, build: Path, program: str, kind: str, extra: Sequence[str] = (), *,
    under: Sequence[str] = (), client_under: Optional[Sequence[str]] = None,
    client_place: Optional[Place] = None, has_next_client: bool = False, **options
) -> pair.Outcome:
    """Runs a program of build/examples, with its other side, by its kind, as in ladder.txt. The
    programs of lesson 14 run one at a time: they join the same multicast group, and with one of
    them its whole host, so that another would receive what it is to miss.

    @param under what starts the program, if it is not to start by itself: env(1), strace(1), …
    @param client_under the same for the client; None: what starts the server. A kernel module is
    no program, and starts by itself
    @param client_place where the client runs, if not where the server does
    @param has_next_client another client comes if the first one fails, as pair.Client has it
    @param options as pair.run() takes them"""
    group = find("multicast")
    with contextlib.ExitStack() as stack:
        if program.partition(".")[0] in (group.program, group.number):
            fcntl.flock(
                stack.enter_context(open(runtime_dir() / "multicast-group", "w")), fcntl.LOCK_EX)
        return _run(
            place, build, program, kind, extra, under, client_under, client_place, has_next_client,
            options)


def _run(
    place: Place, build: Path, program: str, kind: str, extra: Sequence[str],
    under: Sequence[str], client_under: Optional[Sequence[str]], client_place: Optional[Place],
    has_next_client: bool, options
) -> pair.Outcome:
    if kind == "kernel":
        return _run_module(place, build, program, extra, under, client_place, options)
    commands = command_lines(place, build, program, kind, extra, under, client_under)
    if len(commands) == 1:
        return pair.run(place, commands[0], **options)
    if has_next_client:
        commands += command_lines(place, build, program, kind, extra)[1:]
    return run_pair(
        place, *commands, client_place=client_place, port_option=PORT_OPTION[kind], **options)


def command_lines(
    place: Place, build: Path, program: str, kind: str, extra: Sequence[str] = (),
    under: Sequence[str] = (), client_under: Optional[Sequence[str]] = None
) -> list[list[str]]:
    """The command line of a program that is alone, or those of a server and its client, without
    where to listen and whom to connect to. Parameters as for run()."""
    without_device = dataclasses.replace(place, device="")
    if kind not in PORT_OPTION:
        alone = without_device if kind == "alone" else place
        return [_command(build, program, alone, under, extra)]
    # rdma_cm finds the device by the address.
    server, client = sides(program)
    listen = _listen(place) if server != client else []
    return [
        _command(build, side, place if kind == "pair" else without_device, start, [*extra, *where])
        for side, start, where in (
            (server, under, listen), (client, under if client_under is None else client_under, []))]


def _listen(place: Place) -> list[str]:
    """What makes a server listen at one address. siw binds a listener for all addresses to its
    netdev, but what a host sends to itself comes by lo."""
    return ["--host", place.address] if place.device == places.SIW else []


def _run_module(
    place: Place, build: Path, program: str, extra: Sequence[str], under: Sequence[str],
    client_place: Optional[Place], options
) -> pair.Outcome:
    """The server, which `under` starts, and the module as its client. Both in the emulated machine,
    and never elsewhere: a mistake in a module is one in the kernel."""
    lesson = kernel_lesson(program)
    place = place if place.kind == "machine" else places.find_machine()
    client = client_place or place
    if client.kind != "machine":
        raise LabError(f"{lesson.stem} is a kernel module, which runs in the emulated machine only")
    module = kbuild.module(lesson, program, build)
    client_argv = [
        "python3", "-I", "-S", str(ROOT / "tools/lab/machine/guest_module.py"), str(module), *extra]
    return pair.run(
        place,
        [
            *_command(
                build, lesson.sides[0], dataclasses.replace(place, device=""), under,
                _listen(place)),
            "--cm-port", "0"],
        pair.Client(
            LISTENING, lambda line: [*client_argv, f"server={place.address}", f"port={line[1]}"],
            client),
        **options)


def _command(
    build: Path, program: str, place: Place, under: Sequence[str], extra: Sequence[str]
) -> list[str]:
    path = build / "examples" / program
    if not path.exists():
        raise LabError(f"{path} is not built: ninja -C {build}")
    return [*under, str(path), *(["--device", place.device] if place.device else []), *extra]


def run_pair(
    place: Place, server: Sequence[str], client: Sequence[str], next_client: Sequence[str] = (), *,
    client_place: Optional[Place] = None, port_option: str = "--tcp-port", **options
) -> pair.Outcome:
    """Runs a server and its client by their command lines; where to listen and whom to connect to
    is added."""

    def connecting(command):
        return lambda line: [*command, "--host", place.address, port_option, line[1]]

    return pair.run(
        place,
        [*server, port_option, "0"],
        pair.Client(
            LISTENING, connecting(client), client_place,
            connecting(next_client) if next_client else None),
        **options)


def expected_file(stem: str, broken: Optional[str] = None) -> Path:
    """What the lesson's program prints, or its change; exercise_part() has an exercise's."""
    return ROOT / "examples" / stem / (f"break/{broken}.txt" if broken else "expected.txt")


def limited(changed: str) -> list[str]:
    """What a changed program runs under in a test. One that waits in vain, as its recorded output
    says, waits for 5 s, as for a reader. The others keep the longer limit that the tests have: on a
    busy machine, a step of another process may take more than 5 s."""
    waits = any(
        IN_VAIN.search(expected_file(lesson.stem, broken).read_text())
        for lesson in ladder.read()
        for broken in breaks(lesson)
        if program(lesson, broken) == changed)
    return ["env", "RDMA_TIMEOUT=5"] if waits else []


def recorded() -> list[Path]:
    """All recorded outputs, with their variants."""
    return sorted(
        path
        for where in (
            "examples/*/expected*", "examples/*/break/*", "examples/*/exercises/*",
            "lessons/transcripts/*")
        for path in ROOT.glob(f"{where}.txt"))
