# SPDX-License-Identifier: MIT
"""librdmalint.so finds each mistake, and nothing in the right twin of the program; the examples
have the findings that they are meant to have, and no other."""
import unittest

import needs_device
from lab import lint, pair

PLACE = needs_device.PLACE
CASES = str(needs_device.BUILD / "tests/lint/lint_cases")
LIBRARY = needs_device.BUILD / lint.LIBRARY
# What a case shows besides its rule, since one mistake leads to another.
FOLLOWS = {
    "unknown-lkey": {"local-protection", "local-operation"},
    "outside-region": {"local-protection", "local-operation"},
    "other-pd": {"local-protection", "local-operation"},
    "local-protection": {"unknown-lkey", "local-operation"},
    "short-receive": {"remote-operation", "remote-request"},
    "remote-operation": {"short-receive", "remote-request"},
    "status-ignored": {"remote-access"},
    "late-receive": {"rnr-exceeded"},
    "access-mismatch": {"remote-access", "remote-request", "access-unused"},
    "remote-request": {"access-mismatch", "remote-access", "access-unused"},
    "remote-access": {"access-unused"},
    "no-rd-atomic": {"retry-exceeded", "access-unused"},
    "event-not-acked": {"leak"},
    "leak": {"destroy-order"},
    "never-signaled": {"unsignaled-lost"},
    "queue-full": {"cq-too-small"},
    "cq-not-polled": {"no-poll-after-arm"},
    "freed-in-flight": {"freed-registered"},
    "destroyed-in-use": {"destroy-order"},
    "psn-differs": {"retry-exceeded"},
    "window-bind": {"local-operation"},
}


def run(argv, **options):
    """@return the findings, and how the program ended"""
    collector = lint.Collector(lambda role, text: None, lambda finding: None)
    start = lint.under(PLACE, needs_device.BUILD, **options)
    outcome = pair.run(PLACE, [*start, *argv], show=collector.show)
    collector.end(outcome)
    return collector, outcome


class Rules(unittest.TestCase):
    """One wrong program for each rule, and its right twin."""

    def test_each_rule(self):
        rules = [rule for rule in lint.rules() if not rule.startswith("local-")]
        jobs = [(rule, wrong) for rule in rules for wrong in (True, False)]

        def one(rule, wrong):
            argv = [CASES, "--device", PLACE.device, "--case", rule, *(["--wrong"] * wrong)]
            return run(argv, protect=rule == "read-early")

        with needs_device.concurrent.futures.ThreadPoolExecutor(needs_device.AT_ONCE) as pool:
            results = pool.map(lambda job: one(*job), jobs)
            for (rule, wrong), (collector, outcome) in zip(jobs, results):
                with self.subTest(rule, wrong=wrong):
                    found = {finding.rule.name for finding in collector.findings}
                    text = outcome.text() + "\n".join(f.text() for f in collector.findings)
                    self.assertEqual(outcome.status, {"": 0}, text)
                    if wrong:
                        self.assertIn(rule, found, text)
                        self.assertLessEqual(found - {rule}, FOLLOWS.get(rule, set()), text)
                    else:
                        self.assertEqual(found, set(), text)


if __name__ == "__main__":
    needs_device.main()
