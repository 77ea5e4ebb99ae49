# SPDX-License-Identifier: MIT
"""Links, anchors, pictures and the parts that a lesson must have."""
import os
import re
import sys
import unittest
from pathlib import Path

from lab import ladder
from lab.paths import ROOT

sys.path.insert(0, str(ROOT / "tools/site"))
from filter import LINK  # noqa: E402
from lab.pages.headings import slug  # noqa: E402

PAGES = [
    *sorted(ROOT.glob("*.md")), *sorted((ROOT / "lessons").glob("*.md")),
    *sorted((ROOT / "tools").rglob("README.md"))]
SECTIONS = [
    "You will learn", "Before you start", "Run it", "On the wire", "Break it", "Exercises",
    "On real hardware", "Where to read more"]
# A lesson without a program of its own has these, and others as they fit.
OF_TEXTS = ("You will learn", "Before you start", "Where to read more")


def without_code(text: str) -> str:
    return re.sub(r"^```.*?^```", "", text, flags=re.S | re.M)


def anchors(path: Path) -> set:
    return {
        slug(heading) for heading in re.findall(r"^#+ (.*)", without_code(path.read_text()), re.M)}


def problems(path: Path, text: str) -> list:
    """What is wrong with the links of a page, as lines."""
    found = []
    for picture, label, target in LINK.findall(without_code(text)):
        if "://" in target:
            continue
        file, _, anchor = target.partition("#")
        linked = Path(os.path.normpath(path.parent / file)) if file else path
        if not linked.exists():
            found.append(f"{path.name}: {target} does not exist")
        elif anchor and anchor not in anchors(linked):
            found.append(f"{path.name}: {linked.name} has no heading for #{anchor}")
        if picture and len(label) < 15:
            found.append(
                f"{path.name}: the picture {target} needs words for those who cannot see it")
    return found


class Links(unittest.TestCase):
    def test_every_link_leads_somewhere(self):
        self.assertEqual(
            [problem for page in PAGES for problem in problems(page, page.read_text())], [])

    def test_a_wrong_link_is_found(self):
        page = ROOT / "lessons/02_send_recv.md"
        for text in (
            "[x](no_such.md)", "[x](troubleshooting.md#no-such)", "[x](#no-such)",
            "![x](../pictures/x.svg)", "![short](../pictures/02_send_recv/flow.svg)"
        ):
            self.assertNotEqual(problems(page, text), [], text)

    def test_lessons_are_whole(self):
        for lesson in ladder.read():
            text = lesson.file.read_text()
            self.assertEqual(text.count("<!-- nav -->"), 2, lesson.stem)
            self.assertEqual(
                "<!-- contents -->" in text, text.count("\n") > 440,
                f"{lesson.stem}: a table of contents if it has over 440 lines")
            headings = re.findall(r"^## (.*)", text, re.M)
            wanted = [
                name
                for name in SECTIONS
                if lesson.has_program or name in headings or name in OF_TEXTS
            ]
            self.assertEqual(
                [heading for heading in headings if heading in SECTIONS], wanted, lesson.stem)
            if lesson.has_program:
                self.assertIn("../pictures/", text, lesson.stem)

    def test_every_picture_is_shown(self):
        shown = {
            (page.parent / target).resolve()
            for page in PAGES
            for picture, _, target in LINK.findall(page.read_text())
            if picture
        }
        self.assertEqual(set((ROOT / "pictures").glob("*/*.svg")), shown)


if __name__ == "__main__":
    unittest.main(verbosity=2)
