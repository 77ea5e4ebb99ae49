# SPDX-License-Identifier: MIT
"""The transcripts, lessons/transcripts/LESSON.NAME.txt: a command behind "$ ", and what it prints.

./lab dev record writes them, and a test runs the commands again. The output of a capture is
compared by packets.lanes(), everything else to the letter.
"""
from __future__ import annotations

import re
import subprocess
from pathlib import Path

from lab import normalise, variants
from lab.commands import capture
from lab.errors import LabError
from lab.paths import ROOT
from lab.wire import packets

LIMIT = 900  # seconds


def files(stem: str = "*") -> list[Path]:
    """Those of all lessons or of one, without their variants (variants.py)."""
    return sorted(
        path for path in (ROOT / "lessons/transcripts").glob(f"{stem}.*.txt")
        if not variants.conditions(path))


def said(command: str) -> str:
    """What a command prints, without ./lab's own remarks, which depend on what is running and built
    already.

    @raises LabError with all that it has printed, if a capture fails: a remark says why"""
    result = subprocess.run(
        ["sh", "-c", command], cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, timeout=LIMIT)
    if result.returncode and " capture " in command:
        raise LabError(f"{command}: status {result.returncode}\n{result.stdout}")
    lines = result.stdout.splitlines(True)
    return "".join(
        line for line in lines if not re.match(r"lab: |ninja: |\[\d+/\d+\]", line))


def run(transcript: str) -> str:
    """The transcript anew, by its own command. A capture is whole: a repeated packet may have
    pushed another out of its first lines."""
    command = transcript.partition("\n")[0]
    if " capture " in command:
        return f"{command}\n{said(command[2:].partition(' | head')[0])}"
    return f"{command}\n{said(command[2:])}"


def shown(transcript: str) -> str:
    """What the lesson shows of run()'s transcript."""
    command, text = transcript.split("\n", 1)
    head = re.search(r" \| head -n (\d+)$", command)
    return f"{command}\n{''.join(text.splitlines(True)[: int(head[1])]) if head else text}"


def differences(expected: str, transcript: str, device: str) -> list[str]:
    """How run()'s transcript differs from an expected one, as lines."""
    command = expected.partition("\n")[0]
    if " capture " not in command:
        return normalise.differences(expected, normalise.split_roles(transcript), device)
    shown, captured = capture.read_table(expected), capture.read_table(transcript)
    if " | head" in command:  # then it shows the first connection only, and not all of it
        first = {packet.host: packet.dest_qp for packet in reversed(captured)}
        captured = [packet for packet in captured if packet.dest_qp == first[packet.host]]
    wanted, seen = (normalise.lanes(packets.lanes(sent), device) for sent in (shown, captured))
    if " | head" in command:
        seen = {lane: seen.get(lane, [])[: len(lines)] for lane, lines in wanted.items()}
    return normalise.compare(wanted, seen, device)
