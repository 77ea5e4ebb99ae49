# SPDX-License-Identifier: MIT
"""What ./lab check says of an exercise that is not solved. Needs no device; test_exercises runs all
of them on one."""
import itertools
import unittest

from lab import examples, normalise
from lab.commands import check
from lab.place import Place


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

    def test_each_output_fits_the_lessons(self):
        """An output that has only what differs is whole again."""
        for name in examples.exercises():
            with self.subTest(name):
                whole = examples.exercise_output(name, Place("device", "", "mlx5_0", "10.77.0.1"))
                self.assertNotIn("...", itertools.chain(*whole.values()))

    def test_shortened_and_filled(self):
        lesson = "[server] a\n[client] 1\n[server] took 1.000 us\n[client] 2\n[client] 3\n"
        solved = lesson.replace("2\n", "2.5\n").replace("1.000", "2.000") + "[client] 4\n"
        short = normalise.shortened(solved, lesson)
        self.assertEqual(short, "[server] ...\n[client] 1\n[client] 2.5\n[client] 3\n[client] 4\n")
        self.assertEqual(normalise.shortened(lesson, lesson), "[server] ...\n[client] ...\n")
        every = [list(lines) for size in range(6) for lines in itertools.product("ab", repeat=size)]
        for lines, others in itertools.product(every, every):
            short = normalise.shortened("\n".join(lines), "\n".join(others)).split()
            self.assertEqual(normalise.filled(short, others), lines, (short, others))
        with self.assertRaises(ValueError):
            normalise.filled(["...", "c"], ["a", "b"])

    def test_differences_in_words(self):
        wanted = ["listening on TCP port 40329", "received one", "received two", "took 1.500 us"]
        self.assertEqual(
            check.unmet("server", wanted, [*wanted[:2], "received 2", "took 9.123 us"], "rxe0"),
            [
                "the server does not print: received two",
                "the server prints, and should not: received 2"])
        self.assertEqual(check.unmet("server", wanted, wanted, "rxe0"), [])
        self.assertEqual(
            check.unmet("program", ["a", "b"], ["a"], "rxe0"), ["the program does not print: b"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
