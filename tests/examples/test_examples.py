# SPDX-License-Identifier: MIT
"""Every example, and every "Break it" change, prints what the lessons show, and ends as they say;
and when an example closes its device, it has destroyed every QP, CQ, MR and PD."""
import concurrent.futures
import os
import threading
import unittest
import unittest.mock

import close_probe
import needs_device
from lab import examples, ladder, normalise, variants

# The server fails 5 s after the first round. On a busy machine, a client with 5,500 WRITEs may have
# some left then. These fail, and the client prints that in place of its times.
ARGUMENTS = {"measure.same_byte": ["--warm-up", "0", "--rounds", "500"]}


def run(job):
    """@param job a lesson, and one of its programs"""
    lesson, program = job[:2]
    return examples.run(
        needs_device.PLACE, needs_device.BUILD, program, lesson.kind, ARGUMENTS.get(program, ()),
        under=examples.limited(program))


def run_probed(job):
    (lesson,) = job
    return close_probe.run(lesson.program, lesson.kind)


def without_further_attempts(lines):
    """A shared client whose connection has gone tries to connect again, 0.1 s later. What came of
    that it may print before the program ends: two threads do the two."""
    kept, has_gone, is_further = [], False, False
    for line in lines:
        is_about = line.startswith("the connection to ")
        is_further = is_about and has_gone or is_further and line.startswith("hint: ")
        has_gone |= is_about
        if not is_further:
            kept.append(line)
    return kept


class Examples(unittest.TestCase):
    def compare(self, outcome, expected):
        self.assertFalse(outcome.timed_out, outcome.text())
        # A kernel module hears of the connection's end in rdma_cm's context, and its worker may
        # print one line more after that.
        roles = {
            role: sorted(
                without_further_attempts(outcome.of(role)),
                key=lambda line: line.startswith("error: the server has ended the connection"))
            for role in outcome.status}
        found = normalise.differences(
            variants.expected(expected, needs_device.PLACE).read_text(), roles,
            needs_device.PLACE.device)
        self.assertEqual(found, [], "\n".join(found))

    def test_prints_what_the_lesson_shows(self):
        def check(job, result):
            lesson, (outcome, closed, left) = job[0], result
            self.assertEqual(left, [])
            if lesson.kind != "alone" and not close_probe.HAS_SANITIZER:
                # A kernel module opens no device; its server does.
                opened = [
                    count
                    for role, count in closed.items()
                    if (lesson.kind, role) != ("kernel", "client")
                ]
                self.assertGreaterEqual(min(opened), 1, outcome.text())
            self.compare(outcome, examples.expected_file(lesson.stem))
            self.assertEqual(set(outcome.status.values()), {0}, outcome.text())

        needs_device.each(
            self, {lesson.stem: (lesson,) for lesson in ladder.read() if lesson.has_program},
            run_probed, check)

    @unittest.skipIf(os.environ.get("LAB_NESTED"), "not built with the sanitizers")
    def test_breaks_as_the_lesson_promises(self):
        def check(job, outcome):
            lesson, _, name = job
            self.compare(outcome, examples.expected_file(lesson.stem, name))
            self.assertEqual(max(outcome.status.values()), 1, outcome.text())

        needs_device.each(
            self,
            {
                f"{lesson.stem} {name}": (lesson, examples.program(lesson, name), name)
                for lesson in ladder.read()
                for name in examples.breaks(lesson)
            },
            run,
            check)

    @unittest.skipIf(os.environ.get("LAB_NESTED"), "once is enough with the sanitizers")
    def test_pair_is_a_pair_twice_in_a_row(self):
        """What one run leaves behind must not disturb the next."""
        for _ in range(3):
            outcome = run((examples.find("02"), "send_recv"))
            self.assertEqual(outcome.status, {"server": 0, "client": 0}, outcome.text())

    def test_a_measurement_shorter_than_that_of_the_clock(self):
        """28_measure takes 10 ms for the length of a tick, and these rounds take less."""
        outcome = examples.run(
            needs_device.PLACE, needs_device.BUILD, "measure", "pair",
            ["--warm-up", "0", "--rounds", "10"])
        self.assertFalse(outcome.failed, outcome.text())

    def test_one_at_a_time_joins_the_multicast_group(self):
        """From two builds: test_builds runs its own beside other tests."""
        both = threading.Barrier(2)

        def wait_for_the_other(*_):
            with self.assertRaises(threading.BrokenBarrierError):
                both.wait(0.5)  # seconds

        with unittest.mock.patch.object(examples, "_run", wait_for_the_other):
            builds = [needs_device.BUILD, needs_device.BUILD / "other"]
            with concurrent.futures.ThreadPoolExecutor() as pool:
                list(
                    pool.map(
                        lambda build: examples.run(needs_device.PLACE, build, "multicast", "pair"),
                        builds))


if __name__ == "__main__":
    needs_device.main()
