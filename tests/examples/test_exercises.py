# SPDX-License-Identifier: MIT
"""Each exercise's solution passes its check, and what the reader starts from does not."""
import unittest

import needs_device
from lab import check, examples


class Exercises(unittest.TestCase):
    def each_verdict(self, check_it, suffix=""):
        """@param check_it called with check's verdict on each exercise"""
        needs_device.each(
            self,
            {name: (lesson, name) for name, lesson in examples.exercises().items()},
            lambda job: check.verdict(
                needs_device.PLACE, needs_device.BUILD, job[1], suffix=suffix
            ),
            lambda _, verdict: check_it(verdict, []),
        )

    def test_solution_passes(self):
        self.each_verdict(self.assertEqual, suffix=".solution")

    def test_start_fails(self):
        self.each_verdict(self.assertNotEqual)

    def test_each_lesson_has_two(self):
        for lesson in set(examples.exercises().values()):
            self.assertGreaterEqual(
                sum(its == lesson for its in examples.exercises().values()), 2, lesson.stem
            )


if __name__ == "__main__":
    needs_device.main()
