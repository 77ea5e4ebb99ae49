# SPDX-License-Identifier: MIT
"""The files of an example: those that a program is made of, in the order in which to read them, and
what each is for."""
from __future__ import annotations

import re
from pathlib import Path

INCLUDE = re.compile(r'^#include "([^"]+)"', re.M)


def of_program(folder: Path, program: str) -> list[Path]:
    """The program's own file first. Each header follows the file that includes it first, and its
    source follows the header. Without the files of libraries."""
    found: list[Path] = []

    def add(path: Path) -> None:
        if path in found or not path.exists():
            return
        found.append(path)
        for name in INCLUDE.findall(path.read_text()):
            add(folder / name)
        if path.suffix == ".hpp":
            add(path.with_suffix(".cpp"))

    add(folder / f"{program}.cpp")
    return found


def libraries(paths: list[Path]) -> list[str]:
    """The project's libraries that the files use."""
    text = "".join(path.read_text() for path in paths)
    return ["rdmacommon", *(["rdmashared"] if "<rdmashared/" in text else [])]


def members(paths: list[Path]) -> list[str]:
    """The members of struct ibv_qp_ex that the files use where rdma-core has them: HAVE_WR_FLUSH is
    for wr_flush."""
    return sorted(
        {
            name.lower()
            for path in paths
            for name in re.findall(r"\bHAVE_(WR_\w+)", path.read_text())
        })


def banner(path: Path) -> list[str]:
    """The lines of a file's first comment; none if it begins with code, as a source does whose
    header has the comment."""
    lines = []
    for line in path.read_text().splitlines():
        if re.match(r"(//|/\*) SPDX-", line) or line == "/*":
            continue
        if not line.startswith(("//", " *")) or line == " */":
            break
        lines.append(re.sub(r"^(// ?| \* ?)", "", line))
    return lines


def purpose(path: Path) -> str:
    """The first sentence of that comment, without the name in front of it."""
    text = " ".join(" ".join(banner(path)).split())
    sentence = re.split(r"(?<=[.!?]) (?=[A-Z`])| Lesson: ", text)[0]
    sentence = re.sub(r"^(\w+(?:, (?:its|the) \w+|, case `[\w-]+`)?): ", "", sentence)
    return sentence[:1].upper() + sentence[1:]
