# SPDX-License-Identifier: MIT
"""./lab hint gives one more hint each time, and each exercise has some."""
import os
import re
import subprocess
import tempfile
import unittest
from pathlib import Path

from lab import examples, hint
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
        self.assertEqual(self.run_lab("05.1", "--solution").split("\n")[1][:16], "// Exercise 05.1")

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
