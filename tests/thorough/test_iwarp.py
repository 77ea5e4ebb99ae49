# SPDX-License-Identifier: MIT
"""Every example, on soft iWARP: it works, or it says in one line what the device lacks.

--record writes tests/thorough/iwarp.txt, which lesson 34 shows."""
import sys
import textwrap
import unittest

import needs_device
from lab import examples, ladder, place
from lab.pair import SKIPPED
from lab.paths import ROOT

RECORDED = ROOT / "tests/thorough/iwarp.txt"
# Of the shared client's programs one stands for all that use rdmashared. The rest of lesson 27's
# need further arguments.
OTHERS = {
    "06_completions": ["completion_costs"], "07_atomics": ["atomic_write"],
    "27_in_production": ["sequencer", "collector"], "28_measure": ["rate"]}
BEGINNING = "skipped: "


class IWarp(unittest.TestCase):
    def outcome(self, where, program, lesson):
        """@return what the device lacks; "" if the program works"""
        found = examples.run(where, needs_device.BUILD, program, lesson.kind)
        self.assertFalse(found.timed_out, found.text())
        lacking = [
            text.removeprefix(BEGINNING) for _, text in found.lines if text.startswith(BEGINNING)]
        if not lacking:
            self.assertEqual(set(found.status.values()), {0}, found.text())
            return ""
        self.assertIn(SKIPPED, found.status.values(), found.text())
        self.assertEqual(len(lacking), 1, found.text())
        self.assertFalse([text for _, text in found.lines if text.startswith("error: ")])
        return lacking[0]

    def test_all_examples(self):
        where = place.find_place(place.SIW)
        programs = {}  # what is lacking -> who says so
        for lesson in ladder.read():
            if not lesson.has_program or lesson.kind == "alone":
                continue
            for program in [lesson.program, *OTHERS.get(lesson.stem, [])]:
                with self.subTest(program):
                    lacking = self.outcome(where, program, lesson)
                    programs.setdefault(lacking, []).append(f"{lesson.number}~{program}")
        text = ""
        for lacking in sorted(programs):
            text += (f"{BEGINNING}{lacking}" if lacking else "works") + "\n"
            names = textwrap.fill(
                ", ".join(programs[lacking]), 90, initial_indent="    ", subsequent_indent="    ")
            text += names.replace("~", " ") + "\n"  # no line ends between the two
        if "--record" in sys.argv:
            RECORDED.write_text(text)
        self.assertEqual(text, RECORDED.read_text())


if __name__ == "__main__":
    unittest.main(argv=[each for each in sys.argv if each != "--record"], verbosity=2)
