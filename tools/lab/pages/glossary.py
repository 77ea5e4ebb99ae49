# SPDX-License-Identifier: MIT
"""Links each term of lessons/glossary.md where a lesson uses it first. Part of ./lab dev sync,
which makes these links anew each time.

Below the heading of a term stands, in a comment, which words are linked to it: `words: memory
region, MR`. A word that means something else in other lessons is linked in those only that are
named: a lesson by its number, a page beside the lessons by its name: `words: slot, slots; only: 17
18 operating`.
"""
from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from pathlib import Path

from lab.pages.headings import slug
from lab.paths import ROOT

FILE = ROOT / "lessons/glossary.md"
# Readers look something up in these pages, and do not read them from start to end.
WITHOUT = ("README", "glossary", "verbs", "troubleshooting")

ENTRY = re.compile(
    (
        r"^## ([^\n]+)\n\n<!-- words: ([^;\n]+?)(?:; only: ([\w ]+))? -->\n\n(.+?)(?=\n##"
        r" |\n\[Index|\Z)"),
    re.M | re.S)
OURS = re.compile(r"\[([^\]]*)\]\(glossary\.md#[\w-]+\)")
# What is no running text inside a paragraph: code, links and pictures, comments.
MASKED = re.compile(r"`[^`]*`|!?\[[^\]]*\]\([^)]*\)|<!--.*?-->|https?://\S+", re.S)


@dataclass(frozen=True)
class Term:
    name: str
    words: "tuple[str, ...]"
    only: "tuple[str, ...]"  # numbers of lessons, names of pages; none: all of them
    text: str

    @property
    def anchor(self) -> str:
        return slug(self.name)


@functools.lru_cache(maxsize=None)
def read(text: "str | None" = None) -> "list[Term]":
    """@raises ValueError for a heading without its words"""
    text = FILE.read_text() if text is None else text
    terms = [
        Term(
            name, tuple(word.strip() for word in words.split(",")), tuple((only or "").split()),
            body.strip())
        for name, words, only, body in ENTRY.findall(text)]
    missing = set(re.findall(r"^## (.+)", text, re.M)) - {term.name for term in terms}
    if missing:
        raise ValueError(
            f"glossary.md: {', '.join(sorted(missing))}: the comment with its words is missing")
    return terms


def pattern(word: str) -> str:
    """The word as it stands in a text: perhaps at the beginning of a sentence, perhaps over the end
    of a line."""
    first = f"[{word[0]}{word[0].upper()}]" if word[0].islower() else re.escape(word[0])
    return first + re.escape(word[1:]).replace(r"\ ", r"(?: |\n *)")


def linked(text: str, path: Path, terms: "list[Term] | None" = None) -> str:
    """A lesson with a link at the first use of each term, and with no other link to the
    glossary."""
    if path.parent != FILE.parent or path.stem in WITHOUT:
        return text
    here = {path.stem, path.stem.split("_")[0]}
    whose = {
        word: term
        for term in (read() if terms is None else terms)
        if not term.only or here.intersection(term.only)
        for word in term.words
    }
    # The longest first, so that a completion channel is not taken for a completion.
    words = sorted(whose, key=len, reverse=True)
    anything = re.compile(
        "|".join(
            [f"(?P<masked>{MASKED.pattern})"]
            + [rf"(?<![\w/-])(?P<w{i}>{pattern(word)})(?![\w/(-])" for i, word in enumerate(words)]
        ),
        re.S)
    seen: "set[str]" = set()

    def link(paragraph: str) -> str:
        result, at = "", 0
        for match in anything.finditer(paragraph):
            if match.lastgroup == "masked":
                continue
            term = whose[words[int(match.lastgroup[1:])]]
            if term.name in seen:
                continue
            seen.add(term.name)
            label, after = match[0], paragraph[match.end() :]
            result += paragraph[at : match.start()]
            at = match.end()
            # A link stays on one line: the rest of the term moves up to its beginning.
            if "\n" in label:
                indent = re.search(r"\n( *)", label)[1]
                label = re.sub(r"\n *", " ", label)
                rest = re.match(r"(\S*)( |\n|$)", after)
                result += f"[{label}](glossary.md#{term.anchor}){rest[1]}" + (
                    "\n" + indent if rest[2] == " " else "")
                at += len(rest[1]) + (rest[2] == " ")
            else:
                result += f"[{label}](glossary.md#{term.anchor})"
        return result + paragraph[at:]

    return "".join(
        link(part) if running else part for running, part in parts(OURS.sub(r"\1", text)))


def parts(text: str):
    """The text in pieces, and of each whether it is running text: no heading, table, code, or
    generated block."""
    kept: "list[str]" = []
    was, inside = False, None
    for line in text.splitlines(keepends=True):
        if inside:
            running = False
            if line.startswith(inside):
                inside = None
        elif line.startswith("```"):
            running, inside = False, "```"
        elif re.match(r"<!-- (?!end|not-run)\w+[^:]*-->$", line.rstrip()):
            running, inside = False, "<!-- end -->"
        else:
            running = bool(line.strip()) and not line.startswith(("#", "|", "<!--"))
        if running != was and kept:
            yield was, "".join(kept)
            kept = []
        was = running
        kept.append(line)
    if kept:
        yield was, "".join(kept)
