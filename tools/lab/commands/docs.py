# SPDX-License-Identifier: MIT
"""./lab docs: the site of lessons, API and examples, by Doxygen; any of its warnings is an
error."""
from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

from lab import build, ladder, packages
from lab.errors import LabError
from lab.pages import book, headings
from lab.paths import ROOT
from play import site

PAGES = (".cpp", ".hpp", ".c", ".h", ".task", ".patch")  # sources with a page of their own


def add_parser(subparsers) -> None:
    parser = subparsers.add_parser("docs", help="build the site: lessons, API, pictures")
    parser.add_argument(
        "--book", action="store_true", help="print all lessons into one PDF as well, by Chromium")
    parser.add_argument(
        "--play", action="store_true",
        help="let readers run the examples in the page, in an emulated machine (the first build:"
        " about 15 minutes)")
    parser.add_argument("--serve", action="store_true", help="serve the site on this host alone")
    parser.set_defaults(main=main)


def main(args) -> int:
    packages.ensure(
        "docs", *(["book"] if args.book else []), *(site.groups() if args.play else []))
    first = make(build.directory() / "docs")
    if args.play:
        site.make(first.parent)
    # A browser loads no scripts of this kind from a file.
    print(f"the site: {first}" + (" (./lab docs --play --serve serves it)" if args.play else ""))
    if args.book:
        print(f"the book: {book.make(first.parent)}")
    if args.serve:
        command = [sys.executable, "-m", "http.server", "--bind", "127.0.0.1", "0"]
        return subprocess.run(command, cwd=first.parent).returncode
    return 0


def make(out: Path) -> Path:
    """Builds the site below `out`. @return its first page. @raises LabError with what Doxygen has
    said"""
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    (out / "examples.dox").write_text("".join(example_pages()))
    # Doxygen puts all pictures into one folder.
    (out / "pictures").mkdir()
    for picture in (ROOT / "pictures").glob("*/*.svg"):
        shutil.copy(picture, out / "pictures" / f"{picture.parent.name}_{picture.name}")
    settings = (ROOT / "tools/site/Doxyfile").read_text()
    for name, value in {"ROOT": ROOT, "OUT": out}.items():
        settings = settings.replace(f"@{name}@", str(value))
    result = subprocess.run(
        ["doxygen", "-"], input=settings, capture_output=True, text=True, cwd=ROOT)
    if result.returncode or result.stderr.strip():
        raise LabError(
            "Doxygen reports:\n" + (result.stderr.strip() or result.stdout.strip()))
    (out / "html/find_data.js").write_text(
        f"const sections = {json.dumps(sections(), ensure_ascii=False)};\n")
    return out / "html/index.html"


def sections() -> "list[list[str]]":
    """What tools/site/find.js looks in: [page's title, heading, address, text] of each section."""
    found = []
    for path in sorted((ROOT / "lessons").glob("*.md")):
        page = f"page_lessons_{path.stem}"
        title, in_code = "", False
        for line in path.read_text().splitlines():
            in_code ^= line.startswith("```")
            heading = not in_code and re.match(r"#+ (.*)", line)
            if heading and not title:
                title = heading[1]
                found.append([title, "", f"{page}.html", ""])
            elif heading:
                address = f"{page}.html#{page}--{headings.slug(heading[1])}"
                found.append([title, heading[1].replace("`", ""), address, ""])
            elif in_code and not line.startswith("```"):
                found[-1][3] += line + " "
            elif not line.startswith(("<!--", "```", "|---")):
                found[-1][3] += re.sub(r"!?\[([^\]]*)\]\([^)\s]+\)|[*`]", r"\1", line) + " "
    return found


def lesson_of(source: Path, stem: str) -> str:
    """The lesson that explains a file: that of an exercise's number, which may lie in the folder of
    another lesson; else `stem`."""
    number = re.match(r"(\d\d)\.\d_", source.name)
    return next((one.stem for one in ladder.read() if number and one.number == number[1]), stem)


def example_pages():
    """A page for each source that a lesson quotes, those of the examples and of the libraries, and
    for each task and solution. Its lines are numbered, and each is an anchor."""
    folders = [(lesson.stem, ROOT / "examples", lesson.stem) for lesson in ladder.read()]
    folders += [("23_shared_client", ROOT / "rdmashared", part) for part in ("src", "include")]
    folders += [("README", ROOT / "rdmacommon", part) for part in ("src", "include")]
    for stem, top, part in folders:
        for source in sorted(
                path for path in (top / part).rglob("*") if path.suffix in PAGES):
            yield (
                f"/** @example{{lineno}} {source.relative_to(top).as_posix()}\n * Explained in @ref"
                f" page_lessons_{lesson_of(source, stem)}. */\n")
