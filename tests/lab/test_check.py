# SPDX-License-Identifier: MIT
"""What ./lab check says of an exercise that is not solved. Needs no device; test_exercises runs all
of them on one."""
import unittest

from lab import check, examples


class Check(unittest.TestCase):
    def test_each_exercise_says_what_it_asks_for(self):
        for name in examples.exercises():
            with self.subTest(name):
                wanted = check.wanted(examples.exercise_task(name))
                self.assertTrue(wanted[0], name)
                for line in wanted:
                    self.assertNotRegex(line, r"Hints?:|Check:|^//|\*/")

    def test_more_than_one_line(self):
        wanted = check.wanted(examples.exercise_file("01.2_gid_by_address"))
        self.assertEqual(wanted, ["10.77.0.1 is GID index 1", "192.0.2.1 is not in the table"])

    def test_differences_in_words(self):
        wanted = ["listening on TCP port 40329", "received one", "received two", "took 1.500 us"]
        self.assertEqual(
            check.unmet("server", wanted, [*wanted[:2], "received 2", "took 9.123 us"], "rxe0"),
            [
                "the server does not print: received two",
                "the server prints, and should not: received 2"],
        )
        self.assertEqual(check.unmet("server", wanted, wanted, "rxe0"), [])
        self.assertEqual(
            check.unmet("program", ["a", "b"], ["a"], "rxe0"), ["the program does not print: b"]
        )


if __name__ == "__main__":
    unittest.main(verbosity=2)
