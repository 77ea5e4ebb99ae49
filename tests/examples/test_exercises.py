# SPDX-License-Identifier: MIT
"""Each exercise's solution passes its check, and what the reader starts from does not."""
import os
import unittest
import unittest.mock

import needs_device
from lab import examples, ladder, normalise, variants
from lab.commands import check
from lab.pages import findings


# The findings that ./lab lint may have in a solution that makes a mistake on purpose. Newer kernels
# report some refused accesses with another status.
FINDINGS = {
    "10.1_two_halves": {"remote-access"},  # it shows that an access is refused
    "10.2_again": {"remote-access"},
    # It sends where no receive is. On a busy machine, the six retries of 0.64 ms end before the
    # program has moved its queue pair to the error state.
    "11.2_all_back": {"rnr-exceeded"},
    "30.1_move": {"access-mismatch"},  # the helper of lesson 30 grants all kinds of access
    "30.2_readers": {"access-mismatch"},
}


class Exercises(unittest.TestCase):
    def each_verdict(self, names, check_it, program):
        """@param names of exercises
        @param check_it called with the exercise's name, check's verdict, and the names of the
        rules above a note that the checker reports
        @param program called with the exercise's name: what is run"""

        def run(job):
            found = []
            missing = check.verdict(
                needs_device.PLACE, needs_device.BUILD, job[1], program=program(job[1]),
                report=found.append)
            return missing, {f.rule.name for f in found if f.rule.severity != "note"}

        needs_device.each(
            self, {name: (examples.exercises()[name], name) for name in names}, run,
            lambda job, result: check_it(job[1], *result))

    def test_solution_passes(self):
        def check_it(name, missing, found):
            self.assertEqual(missing, [])
            known = findings.of_program(examples.readers_copy(name) or "")  # the lesson shows them
            self.assertLessEqual(found, FINDINGS.get(name, set()) | known)

        self.each_verdict(examples.exercises(), check_it, "{}.solution".format)

    @unittest.skipUnless(
        needs_device.PLACE.device.startswith("rxe"), "the double stands on SoftRoCE")
    def test_on_memory_of_the_nic(self):
        """A double stands in for that memory, and says which calls come to it."""
        # By a relative path, since LD_PRELOAD takes a space for the end of one.
        under = [
            "env", f"--chdir={needs_device.BUILD}/tests/doubles", "FAKE_CALLS=1",
            "LD_PRELOAD=./libfake_device_memory.so"]
        for name in ("30.1_move", "30.2_readers"):
            outcome = examples.run(
                needs_device.PLACE, needs_device.BUILD, f"{name}.solution", "device", under=under)
            lines = [line for line in outcome.of("") if not line.startswith("fake: ")]
            self.assertLess(len(lines), len(outcome.of("")))
            expected = variants.expected(
                examples.exercise_part(name, ".txt"), needs_device.PLACE)
            self.assertEqual(lines[1:], expected.read_text().splitlines()[1:])

    # Some starts wait for a message that never comes. A reader waits 5 s for it, too.
    @unittest.mock.patch.dict(os.environ, {"RDMA_TIMEOUT": "5"})
    def test_start_fails(self):
        """Where the reader starts from the lesson's program, test_examples has run it: its recorded
        output is not the one that the exercise wants."""
        programs = {}
        for name in examples.exercises():
            like = examples.lesson_output(name)
            if not like:
                programs[name] = name
                continue
            start = normalise.split_roles(variants.expected(like, needs_device.PLACE).read_text())
            wanted = examples.exercise_output(name, needs_device.PLACE)
            with self.subTest(name):
                self.assertTrue(normalise.compare(wanted, start, needs_device.PLACE.device))
        self.each_verdict(
            programs, lambda name, missing, found: self.assertNotEqual(missing, []), programs.get)

    def test_each_lesson_has_some(self):
        """By its number, in whatever folder: two, and from lesson 24 on at least one."""
        numbers = [name[:2] for name in examples.exercises()]
        for lesson in ladder.read()[1:]:
            self.assertGreaterEqual(
                numbers.count(lesson.number), 2 if lesson.number < "24" else 1, lesson.stem)

    def test_each_lesson_has_one_that_changes_its_program(self):
        """But lesson 27, whose exercises are about the library's sizes and messages."""
        for lesson in set(examples.exercises().values()) - {examples.find("in_production")}:
            self.assertTrue(examples.of(lesson)["own"], lesson.stem)


if __name__ == "__main__":
    needs_device.main()
