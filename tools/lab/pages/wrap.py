# SPDX-License-Identifier: MIT
"""Fills the paragraphs and list items of a Markdown text to 100 columns, and changes nothing of
what a reader sees. Part of ./lab dev sync."""
from __future__ import annotations

import re
from typing import Iterator, List

COLUMNS = 100
FENCE = re.compile(r"\s*(```+|~~~+)")
# What ./lab dev sync generates stands between a marker and its end.
MARKER = re.compile(r"<!-- (?!end|not-run)\w+[^:]*-->$")
ITEM = re.compile(r"( *)([-+*]|\d{1,9}[.)])( +)(?=\S)")
QUOTE = re.compile(r" {0,3}> ?")
# A heading, a table, HTML or a comment, a rule or an underline, the definition of a link.
OTHER = re.compile(r"\s*(#{1,6}\s|\||<[a-zA-Z/!?]|([-=*_] *){3,}$|\[[^\]]+\]:\s)")
HARD_BREAK = re.compile(r"( {2}|\\)$")

CODE = r"(?P<ticks>`+)(?!`).+?(?<!`)(?P=ticks)(?!`)"
LINK = r"!?\[(?:`[^`]*`|[^\[\]`])*\]\([^)]*\)"
# No line ends in the middle of code, a link or a comment.
WORD = re.compile(rf"(?:{CODE}|{LINK}|<!--.*?-->|\S)+")
# These begin something else at the beginning of a line.
SIGN = re.compile(r"([-+*]|#{1,6}|\d{1,9}[.)]|[-=*_]{3,})$|>|\||<[a-zA-Z/!?]|```|~~~|\[[^\]]+\]:")
# test_names.py looks for an exercise and its grade on one line.
GRADE = re.compile(r"\(★+\):$")
# headings.py looks for the end of this sentence at the end of a line.
SYMPTOM = "**You see** "


def filled(text: str) -> str:
    """The text of a file, with its lines filled."""
    return "\n".join(_blocks(text.split("\n"), COLUMNS))


def _blocks(lines: List[str], columns: int) -> Iterator[str]:
    at, items = 0, []  # items: the columns where the text of each open list item begins
    while at < len(lines):
        line = lines[at]
        indent = len(line) - len(line.lstrip())
        item = ITEM.match(line)
        if line.strip() and at and not lines[at - 1].strip():
            items = [column for column in items if column <= indent]
        end = _verbatim(lines, at, indent - (items[-1] if items else 0))
        if end > at:
            yield from lines[at:end]
            at = end
        elif QUOTE.match(line):
            end = at
            while end < len(lines) and QUOTE.match(lines[end]):
                end += 1
            inner = [QUOTE.sub("", quoted, count=1) for quoted in lines[at:end]]
            yield from (f"> {one}".rstrip(" ") for one in _blocks(inner, columns - 2))
            at = end
        else:
            first = item[0] if item else " " * indent
            if item:
                items = [column for column in items if column <= len(item[1])] + [len(first)]
            end = at + 1
            while end < len(lines) and not _ends_paragraph(lines[end], items):
                end += 1
            if end < len(lines) and re.match(r"\s*(=+|-+)\s*$", lines[end]):  # a heading
                yield from lines[at:end]
            else:
                yield from _paragraph(lines[at:end], first, columns)
            at = end


def _verbatim(lines: List[str], at: int, indent: int) -> int:
    """@return the line behind what must stay as it is, or `at`"""
    line = lines[at]
    fence = FENCE.match(line)
    if fence or MARKER.match(line):
        end = at + 1
        while end < len(lines) and not (
            lines[end].strip().startswith(fence[1]) if fence else lines[end] == "<!-- end -->"
        ):
            end += 1
        return end + 1
    is_code = indent >= 4 and not ITEM.match(line)
    return at + 1 if not line.strip() or OTHER.match(line) or is_code else at


def _ends_paragraph(line: str, items: List[int]) -> bool:
    item = ITEM.match(line)
    # In a paragraph, only the number 1 begins a list.
    begins_item = item and (items or not item[2][0].isdigit() or item[2][:-1] == "1")
    return bool(
        not line.strip() or begins_item or OTHER.match(line) or FENCE.match(line)
        or QUOTE.match(line) or re.match(r"\s*(=+|-+)\s*$", line))


def _paragraph(lines: List[str], first: str, columns: int) -> Iterator[str]:
    """@param first the indentation, and the mark of a list item"""
    lines = [lines[0][len(first) :], *(line.lstrip() for line in lines[1:])]
    if lines[0].startswith(SYMPTOM):
        end = next((n for n, line in enumerate(lines) if line.endswith(".")), 0)
        groups = [lines[: end + 1], lines[end + 1 :]]
    else:
        groups = [lines]
    for group in groups:
        some: List[str] = []
        for line in group:
            if HARD_BREAK.search(line):
                yield from _fill(some, first, columns)
                first = " " * len(first) if some else first
                yield first + line
                first, some = " " * len(first), []
            else:
                some.append(line)
        yield from _fill(some, first, columns)
        first = " " * len(first)


def _fill(lines: List[str], first: str, columns: int) -> Iterator[str]:
    line, is_empty = first, True
    for word in _words(" ".join(line.strip() for line in lines)):
        if not is_empty and len(line) + 1 + len(word) > columns:
            yield line
            line = " " * len(first) + word
        else:
            line += word if is_empty else " " + word
        is_empty = False
    if not is_empty:
        yield line


def _words(text: str) -> List[str]:
    """The pieces between which a line may end."""
    words: List[str] = []
    is_symptom = text.startswith(SYMPTOM)
    for word in (match[0] for match in WORD.finditer(text)):
        if words and (
            SIGN.match(word) or GRADE.match(word) or GRADE.search(words[-1])
            or is_symptom and words[-1].endswith(".")
        ):
            words[-1] += " " + word
        else:
            words.append(word)
    return words
