# SPDX-License-Identifier: MIT
"""The table at the top of lessons/troubleshooting.md, made from its entries: what one sees, and where to read."""
from __future__ import annotations

import re
from pathlib import Path

from lab.anchors import slug

SEES = re.compile(r"\*\*You see\*\* (.+?)\.(?=\n|\Z)", re.S)


def rows(text: str) -> "list[tuple[str, str, str]]":
    """Group, heading and symptom of each entry. @raises ValueError for one that does not begin with what one sees"""
    result = []
    for group, body in re.findall(r"^## ([^\n]+)\n(.*?)(?=^## |\Z)", text, re.M | re.S):
        for heading, entry in re.findall(r"^### ([^\n]+)\n(.*?)(?=^### |\Z)", body, re.M | re.S):
            sees = SEES.match(entry.strip())
            if not sees or "|" in sees[1] or len(sees[1]) > 200:
                raise ValueError(f"{heading}: it has to begin with **You see**, and the sentence to end with its line")
            result.append((group, heading, " ".join(sees[1].split())))
    return result


def table(path: Path) -> "list[str]":
    """The block `<!-- symptoms -->`."""
    lines, last = ["", "| you see | look at |", "|---|---|"], None
    for group, heading, sees in rows(path.read_text()):
        if group != last:
            lines.append(f"| **{group}** | |")
            last = group
        lines.append(f"| {sees} | [{heading}](#{slug(heading)}) |")
    return [*lines, ""]
