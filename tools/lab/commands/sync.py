# SPDX-License-Identifier: MIT
"""./lab dev sync: writes the generated blocks of the Markdown files anew, from the sources that
they quote; and the README.md of each example, all of it (lab/pages/readmes.py).

A block begins with a marker and ends with `<!-- end -->`; what stands between is this program's:

    <!-- snippet examples/02_send_recv/send_recv.cpp post-recv -->
        the lines between two // [post-recv]
    <!-- output examples/02_send_recv/expected.txt -->
        what a run printed; of a changed program, without the lines that nothing has changed
    <!-- newer examples/10_memory_windows/expected.kernel-6.4.txt -->
        the lines of it that older software prints otherwise
    <!-- table examples/11_when_it_breaks/expected.txt -->
        the table that a run printed
    <!-- table latency -->
        what ./lab bench has published, as a table: latency, p99, rate, groups, requests (time),
        cpu, counters, goals; or as a sentence: machine. Or what tests/counts has counted:
        system-calls
    <!-- diff examples/02_send_recv/break/no_grh.patch -->
        a change
    <!-- nav -->
        previous, index, next, the place in the part, and how long it takes to read
    <!-- contents -->
        the lesson's headings, with links
    <!-- ladder -->
        the table of lessons
    <!-- verbs -->
        the index of verbs
    <!-- symptoms -->
        the entries of this page, by what one sees
    <!-- rules -->
        the rules of ./lab lint
    <!-- lint -->
        which of the lesson's changes ./lab lint finds

Outside of the blocks, it links each term of lessons/glossary.md where a lesson uses it first:
lab/pages/glossary.py. Then it fills the lines of all Markdown files of the project:
lab/pages/wrap.py.

`--check`, which the tests run, changes nothing and fails where something would change.
"""
from __future__ import annotations

import difflib
import itertools
import os
import re
import sys
import textwrap
from pathlib import Path

from lab import ladder, normalise, variants
from lab.errors import LabError
from lab.pages import findings, glossary, headings, readmes, tables, verbs, wrap
from lab.paths import ROOT

MARKER = re.compile(r"<!-- (\w+)((?: [^ >]+)*) -->$")
MINUTES = "@minutes@"  # in what nav() returns, until the lesson is whole
CODE_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.M | re.S)
TIME = re.compile(r"\b\d+\.\d{3} (?:ns|us|ms|s)\b")
TAG = re.compile(r"\s*// \[[\w-]+\]$")


def add_parser(subparsers) -> None:
    parser = subparsers.add_parser(
        "sync", help="renew what is generated in the Markdown files, and fill their lines")
    parser.add_argument(
        "--check", action="store_true", help="change nothing; fail where something would change")
    parser.set_defaults(main=main)


def main(args) -> int:
    return 1 if renew(args.check) and args.check else 0


def renew(check: bool = False) -> int:
    """Writes each file that is not as it should be; with `check`, prints the difference instead.
    @return how many there were"""
    stale = 0
    wanted = [(path, renewed(path.read_text(), path)) for path in files()]
    wanted += [(path, path.read_text()) for path in others()] + readmes.all_files()
    for path, text in wanted:
        new = wrap.filled(text)
        old = path.read_text() if path.exists() else ""
        if new == old:
            continue
        name = path.relative_to(ROOT)
        stale += 1
        if check:
            sys.stdout.writelines(
                difflib.unified_diff(
                    old.splitlines(True), new.splitlines(True), f"{name}",
                    f"{name} after ./lab dev sync"))
        else:
            path.write_text(new)
            print(f"renewed {name}")
    return stale


def files() -> list[Path]:
    return [
        ROOT / "README.md", ROOT / "tools/lint/README.md", *sorted((ROOT / "lessons").glob("*.md"))]


def others() -> list[Path]:
    """The Markdown files that have no generated blocks."""
    found = {*ROOT.glob("*.md"), *ROOT.glob("tools/**/README.md")}
    return sorted(found - set(files()))


def renewed(text: str, path: Path) -> str:
    """`text` with every block as it should be. @raises LabError, naming file and line"""
    lines, result = iter(enumerate(text.splitlines(), start=1)), []
    for number, line in lines:
        result.append(line)
        match = MARKER.match(line)
        if not match or match[1] in ("end", "not"):
            if match and match[1] == "end":
                raise LabError(f"{path}:{number}: an end without a beginning")
            continue
        make, words = BLOCKS.get(match[1]), match[2].split()
        if make is None:
            raise LabError(
                f"{path}:{number}: no marker is called {match[1]}; there are {', '.join(BLOCKS)}")
        try:
            result += make(path, *words)
        except (LabError, OSError, TypeError, ValueError) as error:
            raise LabError(f"{path}:{number}: {error}") from error
        for _, inner in lines:
            if inner == "<!-- end -->":
                result.append(inner)
                break
            if MARKER.match(inner):
                raise LabError(f"{path}:{number}: the block has no <!-- end -->")
        else:
            raise LabError(f"{path}:{number}: the block has no <!-- end -->")
    new = "\n".join(result) + "\n"
    # At the lesson's beginning. The second line of this kind stands at its end.
    new = new.replace(MINUTES, f" · {reading_minutes(new)} minutes to read", 1).replace(MINUTES, "")
    return glossary.linked(new, path)


def fence(language: str, lines: list[str]) -> list[str]:
    return [f"```{language}", *lines, "```"]


def snippet(path: Path, source: str, tag: str) -> list[str]:
    lines = (ROOT / source).read_text().splitlines()
    places = [index for index, line in enumerate(lines) if line.strip() == f"// [{tag}]"]
    if len(places) != 2:
        raise ValueError(f"{source} has the tag [{tag}] {len(places)} times, not twice")
    inner = [line for line in lines[places[0] + 1 : places[1]] if not TAG.match(line)]
    return fence(
        "c" if source.endswith(".c") else "cpp", textwrap.dedent("\n".join(inner)).splitlines())


def output(path: Path, source: str) -> list[str]:
    return fence("text", news(ROOT / source))


def news(file: Path) -> list[str]:
    """The lines of an expected output. Of a changed program's, three lines or more that the
    unchanged program prints as well become one of three dots."""
    lines = file.read_text().splitlines()
    if file.parent.name != "break":
        return lines
    known = {
        _alike(line)
        for other in file.parent.parent.glob("expected*.txt")
        for line in other.read_text().splitlines()
    }
    result: list[str] = []
    for is_known, group in itertools.groupby(lines, lambda line: _alike(line) in known):
        some = list(group)
        result += ["..."] if is_known and len(some) >= 3 else some
    return result


def _alike(line: str) -> str:
    """The same for lines that say the same: a GID, a length and a time can be the point."""
    line = re.sub(r"\b[0-9a-f]{4}:[0-9a-f]{6}:[0-9a-f]{6}(?=:[0-9a-f]{32}\b)", "LID:QPN:PSN", line)
    line = re.sub(r"\b[0-9a-f]{16}:[0-9a-f]{8}(?=:[0-9a-f]{16}\b)", "ADDRESS:RKEY", line)
    return line if TIME.search(line) else normalise.normalise(line, "rxe0")


def newer(path: Path, source: str) -> list[str]:
    """Of a variant of an expected output, what is not in the output itself."""
    file = ROOT / source
    if not variants.conditions(file):
        raise ValueError(f"{source} names no condition")
    old = {
        normalise.normalise(line, "rxe0") for line in variants.base(file).read_text().splitlines()}
    return fence(
        "text",
        [
            line
            for line in file.read_text().splitlines()
            if normalise.normalise(line, "rxe0") not in old
        ])


def table(path: Path, source: str) -> list[str]:
    """A table of the published measurements; or what a run printed as one in Markdown, without the
    role in front of it."""
    if source in tables.TABLES:
        return tables.make(source)
    rows = re.findall(r"^(?:\[\w+\] )?(\|.*\|)$", (ROOT / source).read_text(), re.M)
    if not rows:
        raise ValueError(f"{source} has no table")
    return ["", *rows, ""]


def diff(path: Path, source: str) -> list[str]:
    hunks = [
        line
        for line in (ROOT / source).read_text().splitlines()
        if not line.startswith(("---", "+++"))
    ]
    # A line number says nothing to a reader; between hunks a gap does.
    return fence("diff", ["..." if line.startswith("@@") else line for line in hunks][1:])


def nav(path: Path) -> list[str]:
    lessons = ladder.read()
    stems = [lesson.stem for lesson in lessons]
    if path.stem in ladder.BESIDE:
        return ["[← index](README.md)" + MINUTES]
    here = stems.index(path.stem)
    parts = ["[index](README.md)"]
    if here > 0:
        parts.insert(0, f"[← {stems[here - 1]}]({stems[here - 1]}.md)")
    if here + 1 < len(stems):
        parts.append(f"[{stems[here + 1]} →]({stems[here + 1]}.md)")
    part = [lesson.stem for lesson in lessons if lesson.part == lessons[here].part]
    place = f" · {lessons[here].part}, {part.index(path.stem) + 1} of {len(part)}"
    if path.stem in ladder.LATER:
        place += ", can wait"
    return [" · ".join(parts) + place + MINUTES]


def reading_minutes(text: str) -> int:
    """150 words a minute, in prose and in tables; 20 lines of output, 10 lines of anything else.
    New readers took this long, in 15 of 17 lessons within 4 minutes. A multiple of 5."""
    text = re.sub(r"<!--.*?-->", "", text, flags=re.S)
    minutes = len(re.findall(r"[^\s|]+", CODE_BLOCK.sub("", text))) / 150
    for language, block in CODE_BLOCK.findall(text):
        minutes += len(re.findall(r"\S.*", block)) / (20 if language == "text" else 10)
    return max(5, 5 * round(minutes / 5))


def ladder_table(path: Path) -> list[str]:
    result, part = [], None
    for lesson in ladder.read():
        if lesson.part != part:
            part = lesson.part
            result += ["", f"**{part}**", ""]
            if lesson.only_to_build:
                result += ["If you only use it, leave these lessons out.", ""]
            result += ["| lesson | the new idea | run it |", "|---|---|---|"]
        link = os.path.relpath(lesson.file, path.parent)
        run = f"`{lesson.command}`" if lesson.command else ""
        result.append(f"| [{lesson.stem}]({link}) | {lesson.idea} | {run} |")
    return [*result, ""]


BLOCKS = {
    "snippet": snippet,
    "output": output,
    "newer": newer,
    "table": table,
    "diff": diff,
    "nav": nav,
    "contents": headings.contents,
    "ladder": ladder_table,
    "verbs": verbs.index,
    "symptoms": headings.symptoms,
    "rules": findings.rules_table,
    "lint": findings.changes,
}
