# SPDX-License-Identifier: MIT
"""./lab trace: strace for verbs. Runs an example, or any program, and shows its calls and their
packets.

An example with two sides runs on two hosts, and so does any other program that listens: the client
is then the same command with the server's address behind it, or what stands behind a second "--".
"""
from __future__ import annotations

import re
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Optional, Sequence

from lab import build, examples, packages, pair, place
from lab.commands import run
from lab.errors import LabError, UsageError
from lab.machine import machine
from lab.machine.tap import Tap
from lab.wire import packets, timeline, timeline_svg, timeline_text
from lab.wire.recording import Recording

LIBRARY = "tools/trace/libverbs_trace.so"
CALLS = "/tmp/verbs-trace.json"  # on each host
# On each host, too. LD_PRELOAD takes a space in a path for the end of it.
PRELOADED = "/tmp/libverbs_trace.so"
UNDER = ["env", f"VERBS_TRACE={CALLS}", "VERBS_TRACE_ANNOUNCE=1", f"LD_PRELOAD={PRELOADED}"]
READY = re.compile("verbs-trace: listening")
PACKAGES = ["build", "device", "machine", "wire"]


def add_parser(subparsers) -> None:
    parser = subparsers.add_parser(
        "trace",
        help="show a program's verbs calls and their packets, in one timeline",
        description=(
            "./lab trace 02_send_recv;  ./lab trace -- ibv_rc_pingpong -g 1;  "
            "./lab trace -- SERVER… -- CLIENT…"))
    parser.add_argument(
        "--break", dest="broken", metavar="NAME", help="an example with one of the lesson's changes"
    )
    parser.add_argument(
        "--program", metavar="NAME",
        help="another program of the example's than the one with its name")
    parser.add_argument(
        "--svg", type=Path, metavar="FILE", help="where to draw it (default: build/wire/NAME.svg)")
    parser.add_argument(
        "words", nargs="+", metavar="EXAMPLE | -- COMMAND",
        help="an example's name or number, with -- ARGUMENT… for it; or any program")
    parser.set_defaults(main=main)


def main(args) -> int:
    # argparse takes the first "--" away, so that a command's first word stands where an example
    # would.
    if "--" not in sys.argv or sys.argv.index("--") > sys.argv.index(args.words[0]):
        lesson, program = run.choose(args.words[0], args.broken, args.program)
        refuse_module(lesson.kind)
        packages.ensure(*PACKAGES)
        outcome, recorded = of_example(lesson.kind, program, args.words[1:])
    else:
        program = Path(args.words[0]).name
        packages.ensure(*PACKAGES)
        outcome, recorded = of_command(args.words)
    file = args.svg or build.directory() / "wire" / f"{program}.svg"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(timeline_svg.draw(recorded))
    print(timeline_text.render(recorded), end="")
    print(f"lab: drawn in {file}", file=sys.stderr)
    return 1 if outcome.failed and not args.broken else 0


def refuse_module(kind: str) -> None:
    if kind == "kernel":
        raise UsageError(
            "a kernel module makes no calls of libibverbs; ./lab capture shows its packets")


def of_example(
    kind: str, program: str, arguments: Sequence[str] = ()
) -> tuple[pair.Outcome, Recording]:
    """Runs a program of build/examples. @raises LabError if a host dies, or a pair sends nothing"""
    refuse_module(kind)
    folder = _built(*examples.targets(program))
    return _record(
        folder, kind not in ("device", "alone"),
        lambda a, b: examples.run(a, folder, program, kind, arguments, under=UNDER, client_place=b),
        arguments)


def of_command(words: list[str]) -> tuple[pair.Outcome, Recording]:
    """@param words a command, or two of them with "--" between: server and client"""
    folder = _built()
    server = words[: words.index("--")] if "--" in words else words
    given = words[words.index("--") + 1 :] if "--" in words else None

    def both(a: place.Place, b: place.Place) -> pair.Outcome:
        client = pair.Client(READY, lambda _: [*UNDER, *(given or [*server, a.address])], b)
        return pair.run(a, [*UNDER, *server], client)

    return _record(folder, None, both)


def _built(*targets: str) -> Path:
    packages.need(*PACKAGES)
    folder = build.build(*targets, LIBRARY)
    if not (folder / LIBRARY).exists():
        raise LabError(f"{folder / LIBRARY} is not built")
    return folder


def _record(
    folder: Path, two_sides: Optional[bool], start, arguments: Sequence[str] = ()
) -> tuple[pair.Outcome, Recording]:
    """@param two_sides whether packets have to come; None: if the program turns out to have a
    client that works"""
    hosts = dict(zip(machine.HOSTS, place.find_hosts()))
    files = {host: folder / "wire" / f"trace-{host}.pcap" for host in hosts}
    for where in hosts.values():
        prepare = ["sh", "-c", f'rm -f {CALLS} && cp "$0" {PRELOADED}', str(folder / LIBRARY)]
        subprocess.run(where.wrap(prepare), stdin=subprocess.DEVNULL, check=True)
    with ExitStack() as taps:
        for host, where in hosts.items():
            taps.enter_context(Tap(where, files[host]))
        outcome = start(hosts["a"], hosts["b"])
        # That line is for ./lab trace, and not for the reader.
        outcome.lines = [(role, text) for role, text in outcome.lines if not READY.fullmatch(text)]
        run.report(outcome, with_output=True)
    calls = {host: _calls(where) for host, where in hosts.items()}
    if two_sides is None:
        two_sides = "client" in outcome.status and not any(outcome.status.values())
    seen = {host: packets.read(file, may_be_empty=not two_sides) for host, file in files.items()}
    roles = {"a": "server", "b": "client"} if "client" in outcome.status else {"a": "program"}
    return outcome, Recording(
        {host: f"host {host}: {role}" for host, role in roles.items()},
        timeline.merge(calls, seen), arguments)


def _calls(where: place.Place) -> list[timeline.Call]:
    # A host on which no program was traced has no such file.
    fetch = where.wrap(["sh", "-c", f"cat {CALLS} 2>/dev/null"])
    return timeline.read_calls(
        subprocess.run(fetch, stdin=subprocess.DEVNULL, capture_output=True, text=True).stdout)
