# SPDX-License-Identifier: MIT
"""Names, sizes, and what stands above each exercise: what the layout promises."""
import re
import unittest
from collections import Counter
from itertools import takewhile

from lab import examples, ladder, variants
from lab.paths import ROOT

FOLDERS = ["rdmacommon", "rdmashared", "examples", "tests", "tools"]
SUFFIXES = {".cpp", ".hpp", ".c", ".h", ".py", ".sh", ".svg", ".txt", ".patch"}


def files():
    return [
        path
        for folder in FOLDERS
        for path in (ROOT / folder).rglob("*")
        if path.suffix in SUFFIXES and "__pycache__" not in path.parts
    ]


def is_area(name):
    """Whether a commit's subject may begin so: what it names exists."""
    places = (
        name, f"tools/{name}", f".{name}", f"meson.{name}", f"{name.upper()}.md",
        f"lessons/{name}.md")
    return any((ROOT / place).exists() for place in places) or any(
        (ROOT / "tests").glob(f"*/{name}.py"))


class Names(unittest.TestCase):
    def test_areas_of_commits(self):
        text = (ROOT / "CONTRIBUTING.md").read_text()
        listed = text.split("An area is one of these:", 1)[1].split("\n\n")[1]
        areas = set(re.findall(r"`(\w+)`", listed)) - {"NN"}
        self.assertGreater(len(areas), 10)
        self.assertEqual([name for name in areas if not is_area(name)], [])

    def test_basenames_are_unique(self):
        # A header and its source share a stem, not a name. Each example has its expected.txt; a
        # change that is shown may have one name in two lessons. What ./lab new copies has the names
        # that a project of one's own would have.
        recorded = set(examples.recorded())
        names = Counter(
            path.name for path in files()
            if path.parent.name not in ("break", "new") and path not in recorded)
        self.assertEqual([name for name, count in names.items() if count > 1], [])

    def test_each_lesson_has_its_files(self):
        stems = [lesson.stem for lesson in ladder.read()]
        self.assertEqual(stems, sorted(stems))
        for lesson in ladder.read():
            self.assertTrue(lesson.file.exists(), lesson.stem)
            self.assertEqual(
                (ROOT / "examples" / lesson.stem).is_dir(), lesson.has_program, lesson.stem)
            self.assertEqual(
                lesson.program in examples.programs(lesson), lesson.has_program, lesson.stem)
        self.assertLessEqual(
            {path.name for path in (ROOT / "examples").iterdir() if path.is_dir()}, set(stems))
        self.assertEqual({path.stem for path in (ROOT / "lessons").glob("[0-9]*.md")}, set(stems))

    def test_front_page(self):
        """README has a row for each part of the ladder, and lines that lesson 02 prints."""
        text = (ROOT / "README.md").read_text()
        rows = re.findall(
            r"^\| \[\d+\]\(lessons/(\w+)\.md\) (?:(?:to|and) \[\d+\]\(lessons/(\w+)\.md\) )?\| "
            r"\*\*(.+?)\*\*", text, re.M)
        parts = {}
        for lesson in ladder.read():
            parts.setdefault(lesson.part, []).append(lesson.stem)
        self.assertEqual(
            rows, [(stems[0], stems[-1] if stems[1:] else "", part)
                   for part, stems in parts.items()])
        printed = iter(
            (ROOT / "examples/02_send_recv/expected.txt").read_text().splitlines())
        block = re.search(r"```text\n(.*?)```", text, re.S)[1]
        for line in block.splitlines():
            self.assertIn(line, printed)  # each after the one before

    def test_examples_stay_short(self):
        for path in [
            *(ROOT / "examples").rglob("*.?pp"), *(ROOT / "examples").rglob("*.[ch]")
        ]:
            self.assertLessEqual(len(path.read_text().splitlines()), 300, path)
        # A library is read by its layers: few files, of a job each.
        for path in (ROOT / "rdmashared").rglob("*.?pp"):
            self.assertLessEqual(len(path.read_text().splitlines()), 500, path)

    def test_no_recorded_output_is_left_over(self):
        """Each is that of a program, of a change, of an exercise or of a lesson's command."""
        for path in {variants.base(path) for path in examples.recorded()}:
            if path.parent.name == "break":
                self.assertTrue(path.with_suffix(".patch").exists(), path)
            elif path.parent.name == "exercises":
                self.assertIn(path.stem, examples.exercises())
            elif path.parent.name == "transcripts":
                self.assertTrue((ROOT / f"lessons/{path.name.split('.')[0]}.md").exists(), path)
            else:
                self.assertEqual(path.name, "expected.txt")


def banner(lesson, name):
    lines = examples.exercise_task(name).read_text().splitlines()
    if not examples.readers_copy(name):
        del lines[0]  # the licence
    return list(takewhile(lambda line: line.startswith("//"), lines))


def grade(lesson, name):
    """One star, two or three; "" if the exercise does not say."""
    found = re.match(
        rf"// Exercise {name.split('_')[0]} \((★{{1,3}})\): \S", banner(lesson, name)[0])
    return found[1] if found else ""


class Exercises(unittest.TestCase):
    def test_each_says_what_it_wants(self):
        for name, lesson in examples.exercises().items():
            with self.subTest(name):
                lines = banner(lesson, name)
                self.assertTrue(grade(lesson, name), lines[0])
                labels = [found[1] for line in lines if (found := re.match(r"// (\w+): +\S", line))]
                self.assertEqual(labels, ["Wanted", "Hints", "Check"])
                self.assertEqual(lines[-1], f"// Check: ./lab check {name.split('_')[0]}")

    def test_the_lesson_gives_the_same_grade(self):
        for lesson in ladder.read():
            # One without a program of its own has its exercises in the folder of another one.
            names = [name for name in examples.exercises() if name.startswith(f"{lesson.number}.")]
            told = re.findall(
                r"^(\d+)\. \[(.+?)\]\((.+?)\) \((★+)\): \S", lesson.file.read_text(), re.M)
            files = [examples.exercise_task(name) for name in names]
            self.assertEqual(
                told,
                [
                    (str(number), file.name, f"../{file.relative_to(ROOT)}", grade(lesson, name))
                    for number, (name, file) in enumerate(zip(names, files), 1)],
                lesson.stem)


if __name__ == "__main__":
    unittest.main(verbosity=2)
