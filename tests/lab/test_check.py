# SPDX-License-Identifier: MIT
"""What ./lab check says of an exercise that is not solved, and the exercises that --watch checks.
Needs no device; test_exercises runs all of them on one."""
import contextlib
import io
import itertools
import os
import unittest
from types import SimpleNamespace
from unittest import mock

import labtest
from lab import examples, normalise
from lab.commands import check, progress
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


class Watch(unittest.TestCase):
    """./lab check --watch, of a reader who has solved exercise 01.1 and no other."""

    def setUp(self):
        folder = labtest.temporary_folder(self)
        environment = mock.patch.dict(os.environ, LAB_PROGRESS=str(folder / "progress.txt"))
        environment.start()
        self.addCleanup(environment.stop)
        progress.note("solved", "01.1_active_ports")

    def watch(self, exercise, *solved):
        """The reader saves a file three times, and then types Ctrl-C.

        @param solved exercises that are solved when they are checked
        @return the exercises that are checked, and the lines that are printed"""
        checked = []

        def verdict(place, folder, name, show):
            checked.append(name.split("_")[0])
            return [] if checked[-1] in solved else ["x"]

        def saves(path):
            yield from range(3)
            raise KeyboardInterrupt

        said = io.StringIO()
        with mock.patch.object(check.packages, "ensure"), mock.patch.object(
            check.build, "build"
        ), mock.patch.object(check.place, "find_place"), mock.patch.object(
            check, "verdict", verdict
        ), mock.patch.object(
            check.examples, "start_exercise", return_value=None
        ), mock.patch.object(
            check.watch, "saves", saves
        ), contextlib.redirect_stdout(
            said
        ), contextlib.suppress(
            KeyboardInterrupt
        ):
            self.assertEqual(check.main(SimpleNamespace(exercise=exercise, watch=True)), 0)
        return checked, said.getvalue().splitlines()

    def test_goes_on_when_an_exercise_is_solved(self):
        others = [name.split("_")[0] for name in examples.exercises()][1:]
        checked, said = self.watch(None, *others)
        self.assertEqual(checked, others)
        self.assertIn("exercise 01.2 is solved", said)
        self.assertIn("the next exercise that you have not solved is 01.3", said)
        self.assertEqual(said[-1], "all exercises are solved")

    def test_waits_for_a_solution(self):
        self.assertEqual(self.watch(None, "01.2")[0], ["01.2", "01.3", "01.3", "01.3"])

    def test_goes_on_without_progress(self):
        os.environ["LAB_PROGRESS"] = "off"
        checked, _ = self.watch(None, *[name.split("_")[0] for name in examples.exercises()])
        self.assertEqual(checked, [name.split("_")[0] for name in examples.exercises()])

    def test_stays_at_an_exercise_that_was_named(self):
        for exercise in ("01.1", "01.2"):
            checked, said = self.watch(exercise, exercise)
            self.assertEqual(checked, [exercise] * 3)
            self.assertNotIn("next", " ".join(said))


if __name__ == "__main__":
    unittest.main(verbosity=2)
