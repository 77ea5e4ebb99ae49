# SPDX-License-Identifier: MIT
"""What ./lab sync writes about ./lab lint: the table of its rules, and what it finds in a lesson's
changes."""
from __future__ import annotations

import json
import re
from pathlib import Path

from lab import examples, ladder, lint
from lab.paths import ROOT

RECORDED = ROOT / "tests/lint/findings.json"  # tests/lint/test_findings.py records it
TOOL = "../tools/lint/README.md"
SHOWN = re.compile(r"<!-- diff examples/(\w+)/break/(\w+)\.patch -->")


def of_program(program: str) -> "set[str]":
    """The rules above a note that an example's program is known to break, without a mistake."""
    return set(json.loads(RECORDED.read_text()).get(program, []))


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
