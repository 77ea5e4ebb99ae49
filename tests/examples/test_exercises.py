"""Each exercise's solution passes its check, and what the reader starts from does not."""
import unittest

import needs_device
from lab import check, examples


class Exercises(unittest.TestCase):
    def test_solution_passes(self):
        for name in examples.exercises():
            with self.subTest(name):
                if why := needs_device.why_not(examples.exercises()[name]):
                    self.skipTest(why)
                self.assertEqual(check.verdict(needs_device.PLACE, needs_device.BUILD, name, suffix=".solution"), [])

    def test_start_fails(self):
        for name in examples.exercises():
            with self.subTest(name):
                if why := needs_device.why_not(examples.exercises()[name]):
                    self.skipTest(why)
                self.assertNotEqual(check.verdict(needs_device.PLACE, needs_device.BUILD, name), [])

    def test_each_lesson_has_two(self):
        for lesson in set(examples.exercises().values()):
            self.assertGreaterEqual(sum(its == lesson for its in examples.exercises().values()), 2, lesson.stem)


if __name__ == "__main__":
    needs_device.main()
