# SPDX-License-Identifier: MIT
"""What ./lab lint finds in the examples and their changes, as it is recorded; and what ./lab dev
sync writes about that: the table of the rules, and what is found in a lesson's changes."""
from __future__ import annotations

import concurrent.futures
import json
import re
import sys
from pathlib import Path

from lab import examples, ladder, variants
from lab.commands import lint
from lab.paths import ROOT

RECORDED = ROOT / "tools/lint/findings.json"
TOOL = "../tools/lint/README.md"
SHOWN = re.compile(r"<!-- diff examples/(\w+)/break/(\w+)\.patch -->")


def of_program(program: str) -> "set[str]":
    """The rules above a note that an example's program is known to break, without a mistake."""
    return set(json.loads(RECORDED.read_text()).get(program, []))


def not_reported(where) -> "set[str]":
    """The rules of `RECORDED` whose errors SoftRoCE does not report there (lessons 10 and 11)."""
    flushed = variants.since(where, variants.LOCAL_ERRORS_ARE_FLUSHES)
    return {"local-operation", "local-protection", "window-bind"} if flushed else set()


def programs(lessons) -> "list[tuple[str, str, bool]]":
    """(program, kind, whether it is one with a change). Lesson 28's programs measure: they run for
    half a minute, and check nothing that the others do not."""
    result = []
    for lesson in lessons:
        if lesson.has_program and lesson.kind != "kernel" and lesson.name != "measure":
            result.append((lesson.program, lesson.kind, False))
            for broken in examples.breaks(lesson):
                result.append((examples.program(lesson, broken), lesson.kind, True))
    return result


def found(where, folder, program: str, kind: str):
    """The names of the rules above a note that this program breaks, and its run's outcome."""
    collector = lint.Collector(lambda role, text: None, lambda finding: None)
    under = examples.limited(program) + lint.under(where, folder)
    outcome = examples.run(where, folder, program, kind, under=under, show=collector.show)
    collector.end(outcome)
    return {f.rule.name for f in collector.findings if f.rule.severity != "note"}, outcome


def each(where, folder, lessons):
    """Runs them, and yields what programs() and found() say of each."""
    jobs = programs(lessons)
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        yield from zip(jobs, pool.map(lambda job: found(where, folder, *job[:2]), jobs))


def record(where, folder, lessons) -> None:
    """Writes what is found now in the programs of these lessons."""
    recorded = json.loads(RECORDED.read_text())
    for (program, *_), (rules, _) in each(where, folder, lessons):
        rules |= of_program(program) & not_reported(where)
        recorded[program] = sorted(rules)
    order = [program for program, *_ in programs(ladder.read())]
    result = {program: recorded[program] for program in order if recorded.get(program)}
    RECORDED.write_text(json.dumps(result, indent=2) + "\n")
    print(RECORDED.relative_to(ROOT), file=sys.stderr)


def rules_table(path: Path) -> "list[str]":
    """The block `<!-- rules -->`."""
    rows = [
        f"| `{rule.name}` | {rule.severity} | {rule.why} | [{rule.read.partition('.')[0]}]"
        f"(../../lessons/{rule.read}) |"
        for rule in lint.rules().values()
    ]
    return ["", "| rule | severity | why it is wrong | read |", "|---|---|---|---|", *rows, ""]


def changes(path: Path) -> "list[str]":
    """The block `<!-- lint -->`: which of the changes that a lesson shows ./lab lint finds, and by
    which rule. The findings that the unchanged program has, too, are left out."""
    lessons = {lesson.stem: lesson for lesson in ladder.read()}
    rows = []
    for stem, change in SHOWN.findall(path.read_text()):
        lesson = lessons[stem]
        program = examples.program(lesson, change)
        new = of_program(program) - of_program(program.partition(".")[0])
        names = [f"`{name}`" for name in sorted(new)]
        if names:
            rows.append(f"| `./lab lint {lesson.stem} --break {change}` | {', '.join(names)} |")
    if not rows:
        raise ValueError("./lab lint finds none of this lesson's changes")
    return [
        "",
        f"[`./lab lint`]({TOOL}) watches the calls of a program, and explains what is wrong. It"
        " finds these changes:",
        "",
        "| run | it reports |",
        "|---|---|",
        *rows,
        "",
    ]
