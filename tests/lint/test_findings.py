# SPDX-License-Identifier: MIT
"""The examples and their "Break it" changes have the findings that findings.json lists, and no
other. Notes do not count. An example that is not listed has none.

`test_findings.py --record` writes what is found now; look at the difference."""
import concurrent.futures
import json
import sys
import unittest

import needs_device
from lab import examples, ladder, lint, variants
from lab.paths import ROOT

PLACE = needs_device.PLACE
RECORDED = ROOT / "tests/lint/findings.json"
# Since Linux 6.4 SoftRoCE reports these local errors as a flush (lessons 10 and 11).
NOT_REPORTED = {"local-operation", "local-protection", "window-bind"}
NEWER = variants.there(PLACE).get("kernel", ()) >= (6, 4)


def programs():
    """(program, kind, whether it is one with a change). Lesson 20's programs measure: they run for
    half a minute, and check nothing that the others do not."""
    for lesson in ladder.read():
        if lesson.kind in ("lesson", "kernel") or lesson.number == "20":
            continue
        for program in [lesson.program, *examples.others(lesson)]:
            yield program, lesson.kind, False
        for broken in examples.breaks(lesson):
            yield examples.program(lesson, broken), lesson.kind, True


def found(program, kind):
    """The names of the rules above a note that this program breaks."""
    collector = lint.Collector(lambda role, text: None, lambda finding: None)
    start = lint.under(PLACE, needs_device.BUILD)
    outcome = examples.run(
        PLACE, needs_device.BUILD, program, kind, under=start, show=collector.show
    )
    collector.end(outcome)
    return {f.rule.name for f in collector.findings if f.rule.severity != "note"}, outcome


def every():
    jobs = list(programs())
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        yield from zip(jobs, pool.map(lambda job: found(*job[:2]), jobs))


class Findings(unittest.TestCase):
    def test_all(self):
        recorded = json.loads(RECORDED.read_text())
        for (program, _, broken), (rules, outcome) in every():
            with self.subTest(program):
                wanted = set(recorded.get(program, [])) - (NOT_REPORTED if NEWER else set())
                self.assertLessEqual(wanted, rules, outcome.text())
                if not broken:  # one that is broken fails in one way or another
                    self.assertEqual(rules - set(recorded.get(program, [])), set(), outcome.text())
                    self.assertFalse(outcome.failed, outcome.text())


def record():
    result = {program: sorted(rules) for (program, *_), (rules, _) in every() if rules}
    RECORDED.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    if "--record" in sys.argv:
        record()
    else:
        needs_device.main()
