# SPDX-License-Identifier: MIT
"""The ladder: reads lessons/ladder.txt, the one ordered list of lessons."""
from __future__ import annotations

from dataclasses import dataclass

from lab.errors import LabError
from lab.paths import ROOT

# The pages of lessons/ that come after the lessons. what_is_rdma comes before them.
BESIDE = (
    "reading_a_packet", "completion_costs", "extended_verbs", "real_hardware", "operating",
    "protocol", "troubleshooting", "glossary", "verbs")
# Lessons that a reader can leave out at first: no lesson of the main path builds on them.
LATER = ("07_atomics", "08_datagrams", "09_shared_receive", "10_memory_windows", "14_multicast")
KINDS = ("lesson", "text", "device", "alone", "pair", "cm-pair", "kernel")


@dataclass(frozen=True)
class Lesson:
    stem: str  # 02_send_recv
    part: str  # Verbs by hand
    idea: str  # the one new idea
    kind: str  # of KINDS: lessons/ladder.txt explains them
    sides: tuple[str, ...] = ()  # the programs, where server and client are two

    @property
    def number(self) -> str:
        return self.stem.split("_", 1)[0]

    @property
    def name(self) -> str:
        return self.stem.split("_", 1)[1]

    @property
    def program(self) -> str:
        """The one that stands for the lesson: it is run where no other is named."""
        if not self.sides:
            return self.name
        server, client = self.sides
        return client if self.kind == "kernel" else server

    @property
    def only_to_build(self) -> bool:
        """Whether it is left out on the route of those who only use the shared client."""
        return self.part == "Building a shared client"

    @property
    def on_main_path(self) -> bool:
        """Whether a reader needs it in order to understand the shared client, and to run it."""
        return self.stem not in LATER and self.part not in ("Measuring", "Side branches")

    @property
    def has_program(self) -> bool:
        return self.kind not in ("lesson", "text")

    @property
    def command(self) -> str:
        """What the reader runs first; "" where there is nothing to run."""
        if self.has_program:
            return f"./lab run {self.stem}"
        return "./lab doctor" if self.kind == "lesson" else ""

    @property
    def is_pair(self) -> bool:
        return self.kind in ("pair", "cm-pair", "kernel")

    @property
    def file(self):
        return ROOT / "lessons" / f"{self.stem}.md"


def read(path=ROOT / "lessons/ladder.txt") -> list[Lesson]:
    lessons = []
    for number, line in enumerate(path.read_text().splitlines(), start=1):
        if line.startswith("#") or not line.strip():
            continue
        fields = [field.strip() for field in line.split("|")]
        kind, *sides = fields[-1].split() or [""]
        if len(fields) != 4 or kind not in KINDS or len(sides) not in (0, 2):
            raise LabError(
                f"{path.name}:{number}: stem | part | new idea | {' or '.join(KINDS)} [SERVER"
                " CLIENT]")
        lessons.append(Lesson(*fields[:3], kind, tuple(sides)))
    return lessons
