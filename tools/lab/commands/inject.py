# SPDX-License-Identifier: MIT
"""./lab dev inject: makes one verbs call of a program fail, and shows what the program does about
it.

A run without a failure lists the calls of each side. Each distinct call, by function and by the
path of calls from main() to it, then fails once, in a run of its own.
"""
from __future__ import annotations

import concurrent.futures
import dataclasses
import os
import random
import re
import signal
import subprocess
import sys
import zlib
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Iterator, Optional, Sequence

from lab import build, examples, packages, pair, place
from lab.commands import run
from lab.errors import LabError, UsageError
from lab.machine import machine

LIBRARY = "tools/inject/libverbs_inject.so"
AT_ONCE = 8  # runs; most of a run is waiting
INJECTED = re.compile(r"verbs-inject: (?:process [\d.]+, )?(\w+), call (\d+): (.*)")
LEFT = "verbs-inject: left open: "
SANITIZER = re.compile(r"ERROR: \w+Sanitizer|: runtime error: ")
COMPLETIONS = ("ibv_poll_cq", "ibv_start_poll", "ibv_next_poll")
EVENTS = ("ibv_get_cq_event", "rdma_get_cm_event")
# Destructors make these calls, and cannot report a failure by exit status: they print it.
ENDS = re.compile(
    "ibv_(dealloc|dereg|destroy|close|free|detach)_|rdma_(destroy|disconnect|reject|ack|leave)_?")
# Their servers wait for clients forever.
SERVE_ON = ("slot_server", "use_shared_client", "cache")


@dataclass(frozen=True)
class Call:
    """One call of a program, and how it is to fail ("" for the default of its function)."""

    side: str  # "server", "client", or "" for a program that is alone
    process: str  # "1", "1.2" for its second child, …
    function: str
    number: int  # counted by function, from 1
    how: str = ""
    path: str = ""  # of calls, from main() to it; "": the number says which call it is

    def _rule(self, which: str) -> str:
        process = "" if self.process == "1" else self.process + "/"
        return f"{process}{self.function}{which}" + (f":{self.how}" if self.how else "")

    @property
    def rule(self) -> str:
        """As VERBS_INJECT takes it. Another order of events changes the numbers, and not the
        paths."""
        return self._rule(f"@{self.path}" if self.path else f":{self.number}")

    def __str__(self) -> str:
        """As --side and --call take it."""
        return (self.side + " " if self.side else "") + self._rule(f":{self.number}")


def ways(function: str) -> tuple[str, ...]:
    """In which ways a call of this function can fail."""
    if function in COMPLETIONS:
        return ("", "negative")
    return ("", "lost", "delayed") if function in EVENTS else ("",)


def problem(call: Call, outcome: pair.Outcome) -> str:
    """What is wrong with how the programs took this failure; "" for nothing."""
    lines, status = outcome.of(call.side), outcome.status.get(call.side)
    begin = next((i for i, line in enumerate(lines) if INJECTED.match(line)), None)
    if outcome.timed_out:
        return "ran into the time limit"
    for _, line in outcome.lines:
        if SANITIZER.search(line):
            return line
        if line.startswith(LEFT):
            return line.removeprefix("verbs-inject: ")
    for role, ended in outcome.status.items():
        if role == "server" and ended == -signal.SIGTERM:
            continue  # it serves until somebody ends it: pair.run() has (SERVE_ON)
        if ended not in (0, 1):
            return f"the {role or 'program'} ended with status {ended}"
    if begin is None:
        return NOT_REACHED
    said, what = lines[begin + 1 :], INJECTED.match(lines[begin])[3]
    if call.how == "delayed":
        return "" if status == 0 else "a delayed event made it fail"
    if call.how == "lost":
        # A program may not need the event: it looks at the queue again before it gives up. A server
        # that serves on has nothing to say: its client, which waits in vain, says it.
        if status == -signal.SIGTERM:
            said = [line for _, line in outcome.lines]
        return "" if status == 0 or any("error: " in line for line in said) else "says nothing"
    if call.function in COMPLETIONS and what not in ("a negative count", "EIO"):
        reported = any("status" in line or IN_WORDS.get(what, "?") in line for line in said)
    else:
        reported = any(call.function in line for line in said)
    if not reported:
        return f"exit status {status}, and no message names the call"
    return "" if status == 1 or ENDS.match(call.function) else GOES_ON


# Statuses that the library makes by itself, as ibv_wc_status_str() has them: a table may show one.
IN_WORDS = {
    "RETRY_EXC_ERR": "transport retry counter exceeded",
    "LOC_PROT_ERR": "local protection error",
}
NOT_REACHED = "this run did not make the call"
GOES_ON = "it reports the call, and does not end with exit status 1"


class Injection:
    """Runs programs with the library preloaded."""

    def __init__(self, where: place.Place, folder: Path, library: str):
        self.where, self.folder = where, folder
        preload = [library]
        if "sanitize" in folder.name:  # whose library has to be the first one
            asan = ["g++", "-print-file-name=libasan.so"]
            preload.insert(
                0, subprocess.run(asan, capture_output=True, text=True, check=True).stdout.strip())
        self.preload = f"LD_PRELOAD={':'.join(preload)}"

    def under(self, call: Optional[Call] = None, side: str = "", listing: str = "") -> list[str]:
        rule = call.rule if call and call.side == side else ""
        more = [f"VERBS_INJECT_LIST={listing}"] if listing else []
        return ["env", f"VERBS_INJECT={rule}", *more, self.preload]

    def run(
        self, program: str, kind: str, arguments: Sequence[str] = (), call: Optional[Call] = None
    ) -> pair.Outcome:
        """An example's program, with its other side. @param call the one that fails"""
        return self._run(program, kind, arguments, {s: self.under(call, s) for s in sides(kind)})

    def _run(self, program, kind, arguments, under) -> pair.Outcome:
        return examples.run(
            self.where, self.folder, program, kind, arguments,
            under=under.get("server", under.get("")), client_under=under.get("client"),
            stop_server=program in SERVE_ON, has_next_client=True)

    def calls(self, program: str, kind: str, arguments: Sequence[str] = ()) -> list[Call]:
        """One Call for each distinct call that this program and its other side make."""
        files = {side: f"/tmp/verbs-inject-{os.getpid()}-{program}{side}" for side in sides(kind)}
        under = {side: self.under(listing=file) for side, file in files.items()}
        outcome = self._run(program, kind, arguments, under)
        texts = self._take(list(files.values()))
        if outcome.failed:
            raise LabError(f"{program} fails before any call was made to fail:\n{outcome.text()}")
        return [call for side, text in zip(files, texts) for call in distinct(side, text)]

    def calls_of_command(self, command: Sequence[str]) -> list[Call]:
        file = f"/tmp/verbs-inject-{os.getpid()}"
        pair.run(self.where, [*self.under(listing=file), *command])
        return distinct("", self._take([file])[0])

    def run_command(self, command: Sequence[str], call: Call) -> pair.Outcome:
        return pair.run(self.where, [*self.under(call), *command])

    def _take(self, files: list[str]) -> list[str]:
        """What the files hold, which are removed."""
        # Thousands of calls are made on the same path.
        script = ("for file; do awk '!seen[$1, $2, $4]++' \"$file\"; echo =; rm -f \"$file\"; done")
        result = subprocess.run(
            self.where.wrap(["sh", "-c", script, "sh", *files]), stdin=subprocess.DEVNULL,
            capture_output=True, text=True, check=True)
        return result.stdout.split("=\n")[: len(files)]


def sides(kind: str) -> tuple[str, ...]:
    """The roles of an example of this kind that libibverbs takes part in."""
    if kind == "kernel":
        return ("server",)
    return ("server", "client") if kind in examples.PORT_OPTION else ("",)


def distinct(side: str, listed: str) -> list[Call]:
    """The first call on each path, in each way in which it can fail. Processes that are forked at
    the same place make the same calls: the first of them stands for all."""
    found: dict[tuple, Call] = {}
    for line in listed.splitlines():
        process, function, number, path = line.split()
        found.setdefault((function, path), Call(side, process, function, int(number), "", path))
    return [
        dataclasses.replace(call, how=how)
        for call in found.values()
        for how in ways(call.function)
    ]


@contextmanager
def installed(where: place.Place, folder: Path) -> Iterator[Injection]:
    """With the library where a preloaded one can lie: LD_PRELOAD takes a space in a path for the
    end of it."""
    if not (folder / LIBRARY).exists():
        raise LabError(f"{folder / LIBRARY} is not built")
    library = f"/tmp/libverbs_inject-{os.getpid()}.so"
    wrap = {"stdin": subprocess.DEVNULL, "check": True}
    subprocess.run(where.wrap(["cp", str(folder / LIBRARY), library]), **wrap)
    try:
        yield Injection(where, folder, library)
    finally:
        subprocess.run(where.wrap(["rm", "-f", library]), **wrap)


def is_chosen(call: Call, seed: str) -> bool:
    """Whether this call is in the tenth that `seed` names. Its place in the programs of this build
    decides it: a run with another order of events makes some more calls or fewer, and the others
    stay chosen."""
    where = f"{seed} {call.side} {call.function} {call.path} {call.how}"
    return zlib.crc32(where.encode()) % 10 == 0


# ---- the command


def add_parser(subparsers) -> None:
    parser = subparsers.add_parser(
        "inject",
        help="make a program's verbs calls fail, one in each run",
        description=(
            "./lab dev inject 02_send_recv;  ./lab dev inject 02_send_recv --call ibv_reg_mr:1"
            " --side client;  ./lab dev inject -- ibv_devinfo"))
    parser.add_argument(
        "--program", metavar="NAME",
        help="another program of the example's than the one with its name")
    parser.add_argument("--side", choices=("server", "client"), help="only calls of this side")
    parser.add_argument(
        "--call",
        metavar="NAME:N[:HOW]",
        help="only the N-th call of this function; HOW is an errno, a completion's status,"
        " negative, lost or delayed")
    parser.add_argument("--list", action="store_true", help="only list the calls")
    parser.add_argument("--all", action="store_true", help="every call, and not a tenth of them")
    parser.add_argument("--seed", metavar="TEXT", help="chooses the tenth [a new one for each run]")
    parser.add_argument(
        "words", nargs="+", metavar="EXAMPLE | -- COMMAND",
        help="an example's name or number, with -- ARGUMENT… for it; or any program")
    parser.set_defaults(main=main)


def main(args) -> int:
    is_command = "--" in sys.argv and sys.argv.index("--") < sys.argv.index(args.words[0])
    if is_command:
        if args.program or args.side:
            raise UsageError("--program and --side are for examples")
        targets, kind, groups = [], "device", place.groups()
    else:
        lesson, program = run.choose(args.words[0], None, args.program)
        targets, kind, groups = examples.targets(program), lesson.kind, examples.groups(lesson)
        if args.side and args.side not in sides(kind):
            raise UsageError(f"{program} has no {args.side} that makes verbs calls")
    packages.ensure("build", *groups)
    folder, arguments = build.build(*targets, LIBRARY), args.words[1:]
    where = place.find_machine() if kind == "kernel" else place.find_place()
    with installed(where, folder) as injection:
        if is_command:
            known, one = (
                lambda: injection.calls_of_command(args.words),
                lambda call: injection.run_command(args.words, call))
        else:
            known, one = (
                lambda: injection.calls(program, kind, arguments),
                lambda call: injection.run(program, kind, arguments, call))
        calls = [named(args.call, side) for side in (args.side and [args.side]) or sides(kind)] if (
            args.call
        ) else [call for call in known() if args.side in (None, call.side)]
        if args.list:
            print(*calls, sep="\n")
            return 0
        if not args.call and not args.all:
            seed = args.seed or str(random.randrange(10**6))
            print(f"lab: a tenth of {len(calls)} calls: --seed {seed}", file=sys.stderr)
            calls = [call for call in calls if is_chosen(call, seed)] or calls[:1]
        return report(calls, one)


def named(text: str, side: str) -> Call:
    found = re.fullmatch(r"(?:([\d.]+)/)?(\w+):(\d+)(?::(\w+))?", text)
    if not found:
        raise UsageError(f"--call {text}: it is NAME:N or NAME:N:HOW")
    return Call(side, found[1] or "1", found[2], int(found[3]), found[4] or "")


def report(calls: list[Call], one) -> int:
    """Runs each, and prints what came of it. @return the exit status"""
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        for call, outcome in zip(calls, pool.map(one, calls)):
            if machine.CRASHED in outcome.status.values():
                raise LabError("the programs were ended, since their machine is gone")
            wrong = problem(call, outcome)
            failed += bool(wrong)
            lines = outcome.of(call.side)
            begin = next((i for i, line in enumerate(lines) if INJECTED.match(line)), 0)
            what = [line for line in lines[begin:] if not line.startswith("hint: ")]
            said = [line for line in what if "error: " in line] or what[-1:]
            print(f"{call}: {'NOT reported: ' + wrong if wrong else 'reported'}")
            print(f"    status {outcome.status.get(call.side)}, {said[0] if said else 'no output'}")
    print(
        f"lab: {len(calls)} calls failed on purpose, {failed} not as they should", file=sys.stderr)
    return 1 if failed else 0
