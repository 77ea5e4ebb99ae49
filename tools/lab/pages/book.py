# SPDX-License-Identifier: MIT
"""./lab docs --book: all lessons, and the pages beside them, as one PDF. Chromium prints it from
the pages of the site."""
from __future__ import annotations

import re
import subprocess
import tempfile
from pathlib import Path

from lab import ladder
from lab.errors import LabError

HEAD = """<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"/><title>RDMA by Example</title>
<link href="doxygen.css" rel="stylesheet"/><link href="style.css" rel="stylesheet"/>
<style>
@page { size: A4; margin: 18mm 16mm; }
section { break-before: page; }
h1, h2, h3 { break-after: avoid; }
div.line, .line { white-space: pre-wrap; overflow-wrap: anywhere; }
div.fragment, table, object, img { max-width: 100%; }
</style></head><body>
<h1>RDMA by Example</h1><p>Learn RDMA by running it.</p>
"""


def pages() -> "list[str]":
    """The names of the site's pages, in the order of the book."""
    lessons = (lesson.stem for lesson in ladder.read())
    stems = ["README", "what_is_rdma", *lessons, *ladder.BESIDE]
    return [f"page_lessons_{stem}" for stem in stems]


def whole(html: Path) -> str:
    """All pages as one. A link from one page to another leads there inside the book."""
    parts = [HEAD]
    for name in pages():
        text = (html / f"{name}.html").read_text()
        title = re.search(r'<div class="title">(.*?)</div>', text, re.S)
        body = re.search(r'<div class="contents">(.*)</div><!-- contents -->', text, re.S)
        without_box = re.sub(
            r'<p><label>Find.*?<script src="find.js"></script>', "", body[1], 1, re.S)
        parts.append(f'<section id="{name}"><h1>{title[1]}</h1>{without_box}</section>')
    book = "\n".join(parts) + "</body></html>\n"
    for name in pages():
        book = book.replace(f'href="{name}.html#', 'href="#')
        book = book.replace(f'href="{name}.html"', f'href="#{name}"')
    return book


def make(html: Path) -> Path:
    """Prints the book of a site that is built. @return the PDF. @raises LabError with what Chromium
    has said"""
    source, pdf = html / "book.html", html.parent / "rdma-by-example.pdf"
    source.write_text(whole(html))
    with tempfile.TemporaryDirectory() as profile:
        result = subprocess.run(
            [
                *("chromium", "--headless", "--no-sandbox", "--disable-gpu"),
                *("--disable-dev-shm-usage", f"--user-data-dir={profile}"),
                *("--virtual-time-budget=60000", "--print-to-pdf-no-header"),
                *("--no-pdf-header-footer", f"--print-to-pdf={pdf}", source.as_uri())],
            capture_output=True,
            text=True)
    if not pdf.exists():
        raise LabError(f"chromium has not printed the book:\n{result.stderr.strip()}")
    return pdf
