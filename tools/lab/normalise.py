# SPDX-License-Identifier: MIT
"""What changes from run to run, and from machine to machine, taken out of an example's output.

The rest is compared with the recorded output to the letter.
"""
from __future__ import annotations

import re

RULES = [
    (re.compile(r"\b[0-9a-f]{4}:[0-9a-f]{6}:[0-9a-f]{6}:[0-9a-f]{32}\b"), "LID:QPN:PSN:GID"),
    (re.compile(r"\b[0-9a-f]{16}:[0-9a-f]{8}:[0-9a-f]{16}\b"), "ADDRESS:RKEY:LENGTH"),
    (re.compile(r" *\b\d+\.\d{3} (?=(?:ns|us|ms|s|times)\b)"), " N "),
    (re.compile(r"\b\d+(?= increments were lost)"), "N"),
    (re.compile(r"\b\d+(?= limit events)"), "N"),
    (re.compile(r"\b\d+(?= (?:runs|credits)(?:,|$))"), "N"),
    (re.compile(r"\bfe80::[0-9a-f:]+ *"), "LINK-LOCAL "),
    (re.compile(r"(?<=: IPv4, )[\d.:f]+ -> [\d.:f]+"), "ADDRESS -> ADDRESS"),
    (re.compile(r"\b(TCP|rdma_cm) port \d+"), r"\1 port N"),
    (re.compile(r"\[::\]:\d+"), "TCP port N"),
    (re.compile(r"\b(\d+(?:\.\d+){3}):\d+"), r"\1:N"),
    (re.compile(r"\(([\w.]+?)(?:\.solution)?(\.[ch]pp):\d+\)"), r"(\1\2:LINE)"),  # an exercise's
    (re.compile(r" *\b0x[0-9a-f]+\b"), " 0xN"),
    (re.compile(r"^ *\d+\.\d{3}(?=  [ab] -> )"), "TIME"),
]
# A device other than rxe has its own name, limits and addresses; the words still have to be right.
OTHER_DEVICE = [
    (re.compile(r"\b(?:mlx|bnxt|irdma|efa|erdma|hns|qedr|siw|rxe)\w*\d\b"), "DEVICE"),
    (
        re.compile(r"has memory of its own: (\d+) bytes of it are ours"),
        r"has no memory of its own: \1 bytes of host memory stand in for it"),
    (re.compile(r"\d+"), "N"),
    (re.compile(r" +"), " "),
]


def normalise(line: str, device: str) -> str:
    """`line` with the variable parts replaced; `device` is the one that it ran on."""
    for pattern, replacement in RULES + ([] if device == "rxe0" else OTHER_DEVICE):
        line = pattern.sub(replacement, line)
    return line.rstrip()


def lanes(found: dict[tuple, list[str]], device: str) -> dict[str, list[str]]:
    """Lists of lines by role, for compare(). A key's first part says what a list is, the second
    tells lists of one kind apart in this run. They get numbers that are the same in each run."""
    ordered = sorted(
        (kind, [normalise(line, device) for line in lines]) for (kind, _), lines in found.items())
    kinds = [kind for kind, _ in ordered]
    return {
        f"{kind} ({number - kinds.index(kind) + 1})": lines
        for number, (kind, lines) in enumerate(ordered)}


def split_roles(text: str) -> dict[str, list[str]]:
    """An expected output as lines by role: "[server] ..." and "[client] ...", or all under ""."""
    roles: dict[str, list[str]] = {}
    for line in text.splitlines():
        match = re.match(r"\[(server|client)\] ?(.*)", line)
        roles.setdefault(match[1] if match else "", []).append(match[2] if match else line)
    return roles


def shortened(text: str, other: str) -> str:
    """An output, role by role, without what it has in common with the lesson's. "..." stands for
    what the lesson's output has between the line before and the line behind."""
    import difflib

    result, others = [], split_roles(other)
    for role, lines in split_roles(text).items():
        known, short = others.get(role, []), list(lines)
        sides = [[normalise(line, "rxe0") for line in side] for side in (known, lines)]
        for a, b, size in reversed(
            difflib.SequenceMatcher(None, *sides, autojunk=False).get_matching_blocks()
        ):
            # The first line and the last one stay, except at the beginning and the end of both.
            first = b + (a + b > 0)
            last = b + size - (a + size < len(known) or b + size < len(lines))
            if last - first > 1:
                short[first:last] = ["..."]
        try:
            whole = [normalise(line, "rxe0") for line in filled(short, known)]
        except ValueError:  # a line that comes twice can be taken for the other one
            whole = []
        lines = short if whole == sides[1] else lines
        result += [f"[{role}] {line}" if role else line for line in lines]
    return "".join(line + "\n" for line in result)


def filled(lines: list[str], others: list[str]) -> list[str]:
    """One role's lines of what shortened() has made, whole again.

    @param others the same role's lines of the lesson's output
    @raises ValueError if the line behind "..." is none of these any more"""
    known = [normalise(line, "rxe0") for line in others]
    result: list[str] = []
    at = 0  # behind the line of `others` that was the last in common
    for line, behind in zip(lines, [*lines[1:], None]):
        if line == "...":
            end = len(known) if behind is None else known.index(normalise(behind, "rxe0"), at)
            result += others[at:end]
            at = end
            continue
        result.append(line)
        if normalise(line, "rxe0") in known[at:]:
            at = known.index(normalise(line, "rxe0"), at) + 1
    return result


def differences(expected: str, roles: dict[str, list[str]], device: str) -> list[str]:
    """Empty if the output is the expected one; else a unified diff by role, as lines."""
    return compare(split_roles(expected), roles, device)


def compare(wanted: dict[str, list[str]], roles: dict[str, list[str]], device: str) -> list[str]:
    """The same, of an expected output that is split already."""
    import difflib

    found = []
    for role in sorted(set(wanted) | set(roles)):
        sides = [
            [normalise(line, device) for line in side.get(role, [])] for side in (wanted, roles)]
        found += difflib.unified_diff(*sides, f"expected {role}", f"real {role}", lineterm="")
    return found
