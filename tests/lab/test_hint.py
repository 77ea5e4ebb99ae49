# SPDX-License-Identifier: MIT
"""./lab hint gives one more hint each time, and each exercise has some."""
import os
import re
import subprocess
import tempfile
import unittest
from pathlib import Path

from lab import examples
from lab.commands import hint
from lab.paths import ROOT


class Hint(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.progress = str(Path(folder.name) / "progress")

    def run_lab(self, *words):
        result = subprocess.run(
            [ROOT / "lab", "hint", *words], env={**os.environ, "LAB_PROGRESS": self.progress},
            capture_output=True, text=True)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result.stdout

    def numbers(self, *words):
        return re.findall(r"^(\d+)\. ", self.run_lab(*words), re.M)

    def test_one_more_each_time(self):
        name = examples.find_exercise("05.1")
        count = len(hint.hints(name))
        for shown in range(1, count + 1):
            self.assertEqual(len(self.numbers("05.1")), shown)
        self.assertEqual(len(self.numbers("05.1")), count)
        self.assertIn(f"{name}.patch", self.run_lab("05.1"))
        self.assertEqual(self.numbers("05.2"), ["1"])

    def test_all_at_once(self):
        self.assertEqual(
            len(self.numbers("05.1", "--all")), len(hint.hints(examples.find_exercise("05.1"))))

    def test_solution_is_a_whole_file(self):
        for name in examples.exercises():
            with self.subTest(name):
                start = examples.exercise_start(name)
                solved = hint.solution(name)
                self.assertNotEqual(solved, start)
                self.assertEqual(solved.split("\n\n")[0], start.split("\n\n")[0])  # its banner
        whole = self.run_lab("05.1", "--solution", "--all")
        self.assertEqual(whole.split("\n")[1][:16], "// Exercise 05.1")

    def test_what_a_solution_changes_is_shown_whole(self):
        for name in examples.exercises():
            with self.subTest(name):
                parts, whole = hint.changed_parts(name), hint.solution(name)
                self.assertLess(len(parts), len(whole))
                for part in re.split(r"\n\n(?=\S)", parts.rstrip()):
                    self.assertIn(f"\n\n{part}\n", whole)
                for line in re.findall(r"^\+(?!\+\+ )(.+)", hint.patch(name).read_text(), re.M):
                    self.assertIn(f"\n{line}\n", f"\n{parts}")
        self.assertRegex(self.run_lab("05.1", "--solution"), r"^void doorbell\(")

    def test_without_a_number_it_is_the_next_one(self):
        self.assertIn("./lab hint 01.1 again", self.run_lab())
        Path(self.progress).write_text("run 02_send_recv\n")
        self.assertIn("./lab hint 02.1 again", self.run_lab())
        solved = [f"solved {name}\n" for name in examples.exercises()]
        Path(self.progress).write_text("".join(solved[:-1]))
        last = list(examples.exercises())[-1].split("_")[0]
        self.assertIn(f"./lab hint {last} again", self.run_lab())

    def test_each_exercise_has_some(self):
        for name in examples.exercises():
            with self.subTest(name):
                every = hint.hints(name)
                self.assertGreaterEqual(len(every), 2)
                for text in every:
                    self.assertLessEqual(max(map(len, text.splitlines())), 100)
                self.assertIn(
                    f"Hints: ./lab hint {name.split('_')[0]}\n",
                    examples.exercise_start(name))


if __name__ == "__main__":
    unittest.main(verbosity=2)
