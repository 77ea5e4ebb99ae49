# SPDX-License-Identifier: MIT
"""./lab lint: runs an example, or any program, under librdmalint.so, and explains what it finds.

The library writes a line of JSON for each finding on the program's stderr. This module takes these
lines out of the output, adds source lines, and compares what the two sides of a connection said
about themselves.
"""
from __future__ import annotations

import functools
import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Callable, Optional, Sequence

from lab import build, examples, packages, pair, place
from lab.commands import run, trace
from lab.errors import LabError
from lab.paths import ROOT

LIBRARY = "tools/lint/librdmalint.so"
RULES = ROOT / "tools/lint/rules.def"
PREFIX = "rdmalint-json "
SEVERITIES = ["note", "warning", "error"]
STATUS = {"note": 0, "warning": 3, "error": 4}


@dataclass(frozen=True)
class Rule:
    name: str
    severity: str
    why: str
    read: str  # a file of lessons/, with a heading


@functools.cache
def rules() -> "dict[str, Rule]":
    """All rules by name, in the order of rules.def."""
    text = re.sub(r'"\n +"', "", RULES.read_text())  # one string over several lines
    found = re.findall(r'^RULE\(\w+, "([^"]+)", (\w+),\s+"([^"]+)",\s+"([^"]+)"\)', text, re.M)
    return {name: Rule(name, severity, why, read) for name, severity, why, read in found}


@dataclass
class Finding:
    rule: Rule
    role: str  # "server", "client" or ""
    what: str
    object: str
    at: "list[str]" = field(default_factory=list)  # lines of the program, innermost first
    history: "list[tuple[str, list[str]]]" = field(default_factory=list)

    def text(self) -> str:
        role = f" [{self.role}]" if self.role else ""
        lines = [f"lint{role}: {self.rule.severity}: {self.rule.name}: {self.what}"]
        rows = [("object", [self.object]), ("at", self.at), *self.history]
        rows += [("why", [self.rule.why]), ("read", [f"lessons/{self.rule.read}"])]
        for heading, texts in rows:
            for number, text in enumerate(texts):
                lines.append(f"    {heading if number == 0 else '':<10}{text}")
        return "\n".join(lines)

    def json(self) -> dict:
        return {
            "rule": self.rule.name,
            "severity": self.rule.severity,
            "role": self.role,
            "what": self.what,
            "object": self.object,
            "at": self.at,
            "history": [{"what": what, "at": at} for what, at in self.history],
            "why": self.rule.why,
            "read": f"lessons/{self.rule.read}",
        }


def lines_of(frames: "Sequence[tuple[str, int, str]]") -> "list[str]":
    """The frames as "function, file:line", up to main(); without debug information, as
    "module+offset"."""
    result = []
    for module, offset, symbol in frames:
        known = _lines(module, offset)
        if known is None:
            known = [f"{symbol or '?'}, {Path(module).name}+{offset:#x}"]
        for line in known:
            if line.startswith("rdmacommon::run_main,"):
                return result
            result.append(line)
            if line.startswith("main,"):
                return result
    return result


@functools.cache
def _lines(module: str, offset: int) -> "Optional[list[str]]":
    """What addr2line(1) knows of an address: the function, and those that it is inlined into,
    without the inline functions of the verbs header. None if it knows nothing."""
    if not shutil.which("addr2line") or not Path(module).exists():
        return None
    output = subprocess.run(
        ["addr2line", "-Cfie", module, hex(offset)], capture_output=True, text=True
    ).stdout.splitlines()
    result = []
    for name, place_of in zip(output[::2], output[1::2]):
        path, _, number = place_of.rpartition(":")
        if path == "??":
            return None
        if path.startswith("/usr/include/infiniband/"):
            continue
        source = Path(os.path.normpath(path))
        if source.is_relative_to(ROOT):
            source = source.relative_to(ROOT)
        name = re.sub(r"\(.*", "", name.replace("(anonymous namespace)::", ""))
        result.append(f"{name}, {source}:{number.split()[0]}")
    return result if output else None


class Collector:
    """What a run's programs say to ./lab lint, taken out of what they print."""

    def __init__(self, show: Callable[[str, str], None], report: Callable[[Finding], None]):
        self._show, self._report = show, report
        self.findings: "list[Finding]" = []
        self._facts: "list[dict]" = []

    def show(self, role: str, text: str) -> None:
        """For pair.run()."""
        before, found, said = text.partition(PREFIX)
        if not found:
            self._show(role, text)
            return
        if before:
            self._show(role, before)
        try:
            said = json.loads(said)
        except ValueError:  # a long line, and two processes that wrote at once
            self._show(role, text)
            return
        if "fact" in said:
            self._facts.append(said)
        else:
            self._add(
                Finding(
                    rules()[said["rule"]], role, said["what"], said["object"], lines_of(said["at"]),
                    [(what, lines_of(frames)) for what, frames in said["history"]]))

    def end(self, outcome: pair.Outcome) -> None:
        """Compares the two sides, and leaves in `outcome` what the programs printed."""
        # A program may have begun a line without its end.
        lines = [(role, text.partition(PREFIX)) for role, text in outcome.lines]
        outcome.lines = [(role, own) for role, (own, said, _) in lines if own or not said]
        for finding in [
            *compare(self._facts), *other_qkeys(self._facts), *unused_access(self._facts)
        ]:
            self._add(finding)

    def _add(self, finding: Finding) -> None:
        self.findings.append(finding)
        self._report(finding)

    def worst(self) -> str:
        """ "" without a finding."""
        return max((f.rule.severity for f in self.findings), key=SEVERITIES.index, default="")


def compare(facts: "list[dict]") -> "list[Finding]":
    """Attributes of two connected queue pairs that do not fit."""
    result = []
    connected = [fact for fact in facts if fact["fact"] == "qp"]
    for index, one in enumerate(connected):
        for other in connected[index + 1 :]:
            # A queue pair may be connected to the same peer again.
            if (one["qp"], one["dest"], one["time"]) != (other["dest"], other["qp"], other["time"]):
                continue
            both = f"qp {one['qp']:#x} and qp {other['qp']:#x}"
            for a, b in ((one, other), (other, one)):
                if a["sq_psn"] != b["rq_psn"]:
                    words = f"sq_psn {a['sq_psn']:#x}, and the peer's rq_psn {b['rq_psn']:#x}"
                    result.append(Finding(rules()["psn-differs"], "", words, both))
                if a["max_rd_atomic"] > b["max_dest_rd_atomic"]:
                    words = (
                        f"max_rd_atomic {a['max_rd_atomic']}, and the peer's max_dest_rd_atomic"
                        f" {b['max_dest_rd_atomic']}")
                    result.append(Finding(rules()["depth-differs"], "", words, both))
            if one["mtu"] != other["mtu"]:
                words = f"path MTU {one['mtu']} B and {other['mtu']} B"
                result.append(Finding(rules()["mtu-differs"], "", words, both))
    return result


def other_qkeys(facts: "list[dict]") -> "list[Finding]":
    """Datagrams to a queue pair of this run that has another Q_Key."""
    known: "dict[int, set[int]]" = {}
    for fact in facts:
        if fact["fact"] == "ud":
            known.setdefault(fact["qp"], set()).add(fact["qkey"])
    result = []
    for fact in facts:
        if fact["fact"] != "datagram" or fact["qkey"] in known.get(fact["to"], {fact["qkey"]}):
            continue
        theirs = " or ".join(f"{qkey:#x}" for qkey in sorted(known[fact["to"]]))
        words = f"a datagram has Q_Key {fact['qkey']:#x}, and qp {fact['to']:#x} has {theirs}"
        rule = rules()["qkey-differs"]
        result.append(Finding(rule, "", words, fact["name"], lines_of(fact["at"])))
    return result


ACCESS = {2: "REMOTE_WRITE", 4: "REMOTE_READ", 8: "REMOTE_ATOMIC"}  # IBV_ACCESS_REMOTE_*


def unused_access(facts: "list[dict]") -> "list[Finding]":
    """Regions of which no process in this run used what they grant. Those of which nothing was
    used are left out: the run ended early, or a memory window was used."""
    used: "dict[int, int]" = {}
    for fact in facts:
        if fact["fact"] == "used":
            used[fact["rkey"]] = used.get(fact["rkey"], 0) | fact["access"]
    result = []
    for fact in facts:
        if fact["fact"] != "mr" or not used.get(fact["rkey"]):
            continue
        unused = [
            name for bit, name in ACCESS.items() if fact["access"] & ~used[fact["rkey"]] & bit]
        if unused:
            words = f"{fact['name']} grants {' and '.join(unused)}, which no peer used"
            rule = rules()["access-unused"]
            result.append(Finding(rule, "", words, fact["name"], lines_of(fact["made"])))
    return result


def under(
    where: place.Place, folder: Path, protect: bool = False, poison: bool = False,
    libraries: Sequence[str] = (LIBRARY,)
) -> "list[str]":
    """What starts a program under the library, where `where` is. The library is built.

    @param libraries what to preload: others may follow the first, and are called by it"""
    paths = [folder / library for library in libraries]
    if any(re.search(r"[\s:]", str(path)) for path in paths):  # LD_PRELOAD takes them for an end
        # By mv, since a program may be using the copy that is there.
        copy = 'for library; do cp "$library" "/tmp/$$" && mv "/tmp/$$" "/tmp/${library##*/}"; done'
        argv = where.wrap(["sh", "-ec", copy, "sh", *map(str, paths)])
        subprocess.run(argv, stdin=subprocess.DEVNULL, check=True)
        paths = [Path("/tmp") / path.name for path in paths]
    return [
        "env", "RDMALINT_JSON=stderr", *(["RDMALINT_PROTECT=1"] if protect else []),
        *(["RDMALINT_POISON=1"] if poison else []),
        f"LD_PRELOAD={':'.join(map(str, paths))}"]


def add_parser(subparsers) -> None:
    parser = subparsers.add_parser(
        "lint",
        help="check a program's verbs calls, and explain what is wrong",
        description=(
            "./lab lint 02_send_recv;  ./lab lint -- ibv_devinfo;  ./lab lint -- SERVER… --"
            " CLIENT….  Exit status: 0 no finding above a note, 3 warnings, 4 errors, 1 the program"
            " failed without a finding."))
    parser.add_argument(
        "--break", dest="broken", metavar="NAME", help="an example with one of the lesson's changes"
    )
    parser.add_argument(
        "--program", metavar="NAME",
        help="another program of the example's than the one with its name")
    parser.add_argument(
        "--protect", action="store_true",
        help="take the whole pages of posted receives away until the completion")
    parser.add_argument(
        "--poison", action="store_true",
        help="overwrite the members that are not valid in a failed completion")
    parser.add_argument(
        "--two-hosts", action="store_true", help="the server on host a, the client on host b")
    parser.add_argument(
        "--json", action="store_true", help="the findings as JSON, and nothing else, on stdout")
    parser.add_argument("--rules", action="store_true", help="list the rules and end")
    parser.add_argument(
        "words", nargs="*", metavar="EXAMPLE | -- COMMAND",
        help="an example's name or number, with -- ARGUMENT… for it; or any program")
    parser.set_defaults(main=main)


def main(args) -> int:
    if args.rules:
        print("\n".join(f"{r.severity:<8} {r.name:<24} {r.why}" for r in rules().values()))
        return 0
    if not args.words:
        raise LabError("lint needs an example or a command: ./lab lint 02_send_recv")
    is_example = "--" not in sys.argv or sys.argv.index("--") > sys.argv.index(args.words[0])
    printer = run.printer() if not args.json else lambda role, text: print(text, file=sys.stderr)
    collector = Collector(
        printer, lambda finding: None if args.json else print(finding.text(), flush=True))
    if is_example:
        lesson, program = run.choose(args.words[0], args.broken, args.program)
        trace.refuse_module(lesson.kind)
        packages.ensure("build", *examples.groups(lesson, two_hosts=args.two_hosts))
        folder = build.build(*examples.targets(program), LIBRARY)
    else:
        packages.ensure("build", *place.groups())
        folder = build.build(LIBRARY, trace.LIBRARY)
    hosts = place.find_hosts() if args.two_hosts else (place.find_place(),) * 2
    libraries = (LIBRARY,) if is_example else (LIBRARY, trace.LIBRARY)
    # On both hosts: there the library may be copied to.
    start = [
        under(where, folder, args.protect, args.poison, libraries)
        for where in dict.fromkeys(hosts)][0]
    if is_example:
        outcome = examples.run(
            hosts[0], folder, program, lesson.kind, args.words[1:], under=start,
            client_place=hosts[1], show=collector.show)
    else:
        outcome = run_command(hosts, start, args.words, collector)
    collector.end(outcome)
    run.report(outcome)
    if args.json:
        print(json.dumps([finding.json() for finding in collector.findings], indent=2))
    else:
        print(f"lab: {summary(collector.findings)}", file=sys.stderr)
    return STATUS.get(collector.worst(), 0) or int(outcome.failed and not args.broken)


def run_command(hosts, start, words, collector, stop_server: bool = False) -> pair.Outcome:
    """Any program; after a second "--", its client. The tracer says when the server listens.

    @param stop_server see pair.run()"""
    if "--" not in words:
        return pair.run(hosts[0], [*start, *words], show=collector.show)
    middle = words.index("--")
    announced = [start[0], "VERBS_TRACE=/dev/null", "VERBS_TRACE_ANNOUNCE=1", *start[1:]]

    def show(role: str, text: str) -> None:
        if not trace.READY.fullmatch(text):
            collector.show(role, text)

    client = pair.Client(trace.READY, lambda _: [*announced, *words[middle + 1 :]], hosts[1])
    outcome = pair.run(
        hosts[0], [*announced, *words[:middle]], client, show=show, stop_server=stop_server)
    outcome.lines = [line for line in outcome.lines if not trace.READY.fullmatch(line[1])]
    return outcome


def summary(findings: "list[Finding]") -> str:
    """How many of each severity, worst first."""
    counts = [
        (sum(finding.rule.severity == severity for finding in findings), severity)
        for severity in reversed(SEVERITIES)]
    words = [f"{number} {severity}{'s' * (number > 1)}" for number, severity in counts if number]
    return ", ".join(words) or "no findings"
