"""Every example, and every "Break it" change, prints what the lessons show, and ends as they say; and when an example closes its
device, it has destroyed every QP, CQ, MR and PD."""
import os
import unittest

import close_probe
import needs_device
from lab import examples, ladder, normalise


def run(program: str, kind: str):
    return examples.run(needs_device.PLACE, needs_device.BUILD, program, kind)


class Examples(unittest.TestCase):
    def skip_without(self, lesson):
        why = needs_device.why_not(lesson)
        if why:
            self.skipTest(why)

    def compare(self, outcome, expected):
        self.assertFalse(outcome.timed_out, outcome.text())
        roles = {role: outcome.of(role) for role in outcome.status}
        found = normalise.differences(expected.read_text(), roles, needs_device.PLACE.device)
        self.assertEqual(found, [], "\n".join(found))

    def test_prints_what_the_lesson_shows(self):
        for lesson in ladder.read():
            if lesson.kind != "lesson":
                with self.subTest(lesson.stem):
                    self.skip_without(lesson)
                    outcome, closed, left = close_probe.run(lesson.program, lesson.kind)
                    self.assertEqual(left, [])
                    if lesson.kind != "alone" and not close_probe.HAS_SANITIZER:
                        # librdmacm, when it is first called, makes an event channel for itself, and that is the first one.
                        # A kernel module opens no device; its server does.
                        opened = [count for role, count in closed.items() if (lesson.kind, role) != ("kernel", "client")]
                        self.assertGreaterEqual(min(opened), 2 if lesson.kind in ("cm-pair", "kernel") else 1, outcome.text())
                    self.compare(outcome, examples.expected_file(lesson.stem))
                    self.assertEqual(set(outcome.status.values()), {0}, outcome.text())
                for other in examples.others(lesson):
                    with self.subTest(f"{lesson.stem} {other}"):
                        outcome = run(other, lesson.kind)
                        self.compare(outcome, examples.expected_file(lesson.stem, other=other))
                        self.assertEqual(set(outcome.status.values()), {0}, outcome.text())

    @unittest.skipIf(os.environ.get("LAB_NESTED"), "not built with the sanitizers")
    def test_breaks_as_the_lesson_promises(self):
        for lesson in ladder.read():
            for name in examples.breaks(lesson):
                with self.subTest(f"{lesson.stem} {name}"):
                    self.skip_without(lesson)
                    outcome = run(examples.program(lesson, name), lesson.kind)
                    self.compare(outcome, examples.expected_file(lesson.stem, name))
                    self.assertEqual(max(outcome.status.values()), 1, outcome.text())

    @unittest.skipIf(os.environ.get("LAB_NESTED"), "once is enough with the sanitizers")
    def test_pair_is_a_pair_twice_in_a_row(self):
        """What one run leaves behind must not disturb the next."""
        for _ in range(3):
            outcome = run("send_recv", "pair")
            self.assertEqual(outcome.status, {"server": 0, "client": 0}, outcome.text())


if __name__ == "__main__":
    needs_device.main()
