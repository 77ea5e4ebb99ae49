# SPDX-License-Identifier: MIT
"""What is made from a page's headings: their anchors, a lesson's table of contents, and the table
of symptoms at the top of lessons/troubleshooting.md."""
from __future__ import annotations

import re
from pathlib import Path
from typing import List, Tuple

SEES = re.compile(r"\*\*You see\*\* (.+?)\.(?=\n|\Z)", re.S)


def slug(heading: str) -> str:
    """The anchor that code-hosting sites give to a heading. The links of the lessons are written
    for it."""
    return re.sub(r"[^\w\- ]", "", re.sub(r"[`*]", "", heading).lower()).strip().replace(" ", "-")


def contents(path: Path) -> List[str]:
    """A line for each section but the two that follow at once, with the section's parts behind
    it."""
    text = re.sub(r"^```.*?^```$", "", path.read_text(), flags=re.M | re.S)
    lines: List[str] = []
    for marks, heading in re.findall(r"^(###?) (.*)$", text, re.M):
        link = f"[{heading}](#{slug(heading)})"
        if marks == "##":
            lines.append(f"- {link}")
        else:
            lines[-1] += (" · " if ": [" in lines[-1] else ": ") + link
    return ["", *lines[2:], ""]


def symptom_rows(text: str) -> List[Tuple[str, str, str]]:
    """Group, heading and symptom of each entry. @raises ValueError for one that does not begin with
    what one sees"""
    result = []
    for group, body in re.findall(r"^## ([^\n]+)\n(.*?)(?=^## |\Z)", text, re.M | re.S):
        for heading, entry in re.findall(r"^### ([^\n]+)\n(.*?)(?=^### |\Z)", body, re.M | re.S):
            sees = SEES.match(entry.strip())
            if not sees or "|" in sees[1] or len(sees[1]) > 200:
                raise ValueError(
                    f"{heading}: it has to begin with **You see**, and the sentence to end with its"
                    " line")
            result.append((group, heading, " ".join(sees[1].split())))
    return result


def symptoms(path: Path) -> List[str]:
    """The block `<!-- symptoms -->`."""
    lines, last = ["", "| you see | look at |", "|---|---|"], None
    for group, heading, sees in symptom_rows(path.read_text()):
        if group != last:
            lines.append(f"| **{group}** | |")
            last = group
        lines.append(f"| {sees} | [{heading}](#{slug(heading)}) |")
    return [*lines, ""]
