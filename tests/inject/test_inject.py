# SPDX-License-Identifier: MIT
"""Each verbs call of each example fails once: the program prints the message for that call, ends
with exit status 1 within its time limit, and leaves nothing on the device.

The list of calls comes from a run of each program (tools/lab/inject.py). A tenth of them fails,
chosen by a seed; LAB_INJECT=all is all of them, and LAB_INJECT=SEED another tenth.
"""
import concurrent.futures
import os
import subprocess
import unittest

import needs_device
from lab import examples, inject, ladder

PLACE = needs_device.PLACE
NESTED = bool(os.environ.get("LAB_NESTED"))
SHARE = 60 if NESTED else 10  # one call of so many; the sanitizers' build takes longer
CHOICE = os.environ.get("LAB_INJECT", "")
ONLY = os.environ.get("LAB_INJECT_ONLY", "")  # "02_send_recv", or one of its programs

# A server whose client has failed does not wait for another one for long.
WAIT = ["--wait", "10"]
PATIENCE = ["--timeout", "60"]  # listing the calls takes time, too
# Fewer rounds of what is measured: they make the same calls.
FEWER = {"completions": ["--measure", "1"]}
# Programs that make no verbs calls, or do not run like the others.
NOT_THESE = {}
# (program, side, function, how) -> why the program does not end with exit status 1. None: any.
BY_DESIGN = {}


def excepted(program, call):
    """Why this call's failure is no failure of the program; "" if there is no reason."""
    for (its_program, side, function, how), why in BY_DESIGN.items():
        if (
            its_program in (None, program)
            and side in (None, call.side)
            and function == call.function
            and how in (None, call.how)
        ):
            return why
    return ""


def seed():
    """The commit, so that a run can be repeated and each commit tries others."""
    if CHOICE:
        return CHOICE
    head = subprocess.run(
        ["git", "-C", str(examples.ROOT), "rev-parse", "--short=12", "HEAD"],
        capture_output=True,
        text=True,
    )
    return head.stdout.strip() or "0"


def on_device(*argv):
    return subprocess.run(
        PLACE.wrap(list(argv)), stdin=subprocess.DEVNULL, capture_output=True, text=True
    )


def programs():
    """(lesson, program) of all that make verbs calls."""
    for lesson in ladder.read():
        if lesson.kind in ("lesson", "alone") or needs_device.why_not(lesson):
            continue
        names = [lesson.program, *examples.others(lesson)]
        for name in names:
            if name not in NOT_THESE and ONLY in ("", lesson.stem, name):
                yield lesson, name


def has_timeout(lesson):
    return lesson.kind in ("pair", "cm-pair")


def arguments(lesson, program):
    return (WAIT if has_timeout(lesson) else []) + FEWER.get(program, [])


class Inject(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        context = inject.installed(PLACE, needs_device.BUILD)
        cls.injection = context.__enter__()
        cls.addClassCleanup(context.__exit__, None, None, None)

    def known(self):
        """(lesson, program, call) of all calls of all programs."""
        jobs = list(programs())

        def calls(job):
            lesson, program = job
            return self.injection.calls(
                program, lesson.kind, arguments(lesson, program) + PATIENCE * has_timeout(lesson)
            )

        with concurrent.futures.ThreadPoolExecutor(inject.AT_ONCE) as pool:
            return [
                (*job, call) for job, found in zip(jobs, pool.map(calls, jobs)) for call in found
            ]

    def test_every_call(self):
        known = self.known()
        self.assertGreater(len(known), 100 if not ONLY else 0)
        chosen, its_seed = known, ""
        if CHOICE != "all":
            its_seed = seed()
            chosen = inject.some(known, its_seed, SHARE)
        print(
            f"{len(chosen)} of {len(known)} calls fail"
            + (f"; again: LAB_INJECT={its_seed} ./lab test test_inject" if its_seed else ""),
            flush=True,
        )
        before = on_device("rdma", "resource").stdout

        def run(job):
            lesson, program, call = job
            for _ in range(3):  # another order of events may have other calls
                outcome = self.injection.run(
                    program, lesson.kind, arguments(lesson, program), call
                )
                wrong = inject.problem(call, outcome)
                if wrong != inject.NOT_REACHED:
                    break
            return wrong, outcome

        passed, designed = 0, {}
        with concurrent.futures.ThreadPoolExecutor(inject.AT_ONCE) as pool:
            for (lesson, program, call), (wrong, outcome) in zip(chosen, pool.map(run, chosen)):
                why = excepted(program, call) if wrong else ""
                if why:
                    designed[why] = designed.get(why, 0) + 1
                    continue
                passed += not wrong
                with self.subTest(f"{program} {call}"):
                    self.assertEqual(wrong, "", f"{program} {call}\n{outcome.text()}")
                if wrong:
                    print(f"FAILED {program} {call}: {wrong}\n{outcome.text()}", flush=True)
        self.assertEqual(on_device("rdma", "resource").stdout, before)
        print(f"{passed} of {len(chosen)} calls failed as they should")
        for why, number in designed.items():
            print(f"{number} by design: {why}")


if __name__ == "__main__":
    needs_device.main()
