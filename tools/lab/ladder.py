"""The ladder: reads lessons/ladder.txt, the one ordered list of lessons."""
from __future__ import annotations

from dataclasses import dataclass

from lab.errors import LabError
from lab.paths import ROOT

KINDS = ("lesson", "device", "pair")


@dataclass(frozen=True)
class Lesson:
    stem: str  # 02_send_recv
    part: str  # Verbs by hand
    idea: str  # the one new idea
    kind: str  # "lesson": text only, "device": one program, "pair": server and client

    @property
    def number(self) -> str:
        return self.stem.split("_", 1)[0]

    @property
    def name(self) -> str:
        return self.stem.split("_", 1)[1]

    @property
    def file(self):
        return ROOT / "lessons" / f"{self.stem}.md"


def read(path=ROOT / "lessons/ladder.txt") -> list[Lesson]:
    lessons = []
    for number, line in enumerate(path.read_text().splitlines(), start=1):
        if line.startswith("#") or not line.strip():
            continue
        fields = [field.strip() for field in line.split("|")]
        if len(fields) != 4 or fields[3] not in KINDS:
            raise LabError(f"{path.name}:{number}: stem | part | new idea | {' or '.join(KINDS)}")
        lessons.append(Lesson(*fields))
    return lessons
