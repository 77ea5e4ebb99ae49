# SPDX-License-Identifier: MIT
"""librdmalint.so finds each mistake, and nothing in the right twin of the program; the examples
have the findings that they are meant to have, and no other."""
import unittest

import needs_device
from lab import pair, variants
from lab.commands import lint

PLACE = needs_device.PLACE
CASES = str(needs_device.BUILD / "tests/lint/lint_cases")
# Further findings of a case, since one mistake leads to another.
FOLLOWS = {
    "other-context": {"local-protection", "local-operation"},
    "unknown-lkey": {"local-protection", "local-operation"},
    "outside-region": {"local-protection", "local-operation"},
    "other-pd": {"local-protection", "local-operation"},
    "short-receive": {"remote-operation", "remote-request"},
    "remote-operation": {"short-receive", "remote-request"},
    "status-ignored": {"remote-access"},
    "late-receive": {"rnr-exceeded"},
    "access-mismatch": {"remote-access", "remote-request", "access-unused"},
    "remote-request": {"access-mismatch", "remote-access", "access-unused"},
    "remote-access": {"access-unused"},
    "no-rd-atomic": {"retry-exceeded", "access-unused"},
    "leak": {"destroy-order"},
    "deregistered-in-flight": {"freed-in-flight"},
    "never-signaled": {"unsignaled-lost"},
    "queue-full": {"cq-too-small"},
    "cq-not-polled": {"no-poll-after-arm"},
    "freed-in-flight": {"freed-registered"},
    "destroyed-in-use": {"destroy-order"},
    "psn-differs": {"retry-exceeded"},
    "window-bind": {"local-operation"},
    "ah-destroyed-early": {"local-operation"},
    "completion-of-destroyed": {"destroyed-with-posts"},
}


# What SoftRoCE does not report, or not on every kernel: ./lab dev inject's library makes it.
INJECTED = {
    "local-protection": "ibv_poll_cq:1:LOC_PROT_ERR",
    "local-operation": "ibv_poll_cq:1:LOC_QP_OP_ERR"}
if variants.since(PLACE, variants.LOCAL_ERRORS_ARE_FLUSHES):
    INJECTED["window-bind"] = "ibv_poll_cq:1:MW_BIND_ERR"
# The device counts RNR NAKs for all programs, and others run beside.
UNSTEADY = {"late-receive"}
# Changes the machine's addresses: see tests/two_hosts/test_pairs.py.
ELSEWHERE = {"gid-changed"}
ENDS_WITH = {"interrupted": 1}  # 0 otherwise
MORE_CASES = [
    "call-failed, ibv_get_async_event", "call-failed, ibv_wr_complete",
    "bad-argument, null", "bad-argument, attributes", "other-context, region",
    "other-context, handle", "no-poll-after-arm, poll", "no-poll-after-arm, poll_chk",
    "no-poll-after-arm, select", "no-poll-after-arm, epoll"]
INJECT = "tools/inject/libverbs_inject.so"


def run(rule, wrong, poison=False):
    """@return the findings of a case, and how it ended"""
    collector = lint.Collector(lambda role, text: None, lambda finding: None)
    injected = wrong and INJECTED.get(rule)
    start = lint.under(
        PLACE, needs_device.BUILD, protect=rule == "read-early", poison=poison,
        libraries=(lint.LIBRARY, INJECT) if injected else (lint.LIBRARY,))
    if injected:
        start.insert(1, f"VERBS_INJECT={injected}")
    wrong = wrong and not injected
    argv = [CASES, "--device", PLACE.device, "--case", rule, *(["--wrong"] * wrong)]
    outcome = pair.run(PLACE, [*start, *argv], show=collector.show)
    collector.end(outcome)
    return collector, outcome


class Rules(unittest.TestCase):
    """One wrong program for each rule, and its right twin."""

    def test_each_rule(self):
        cases = [*(rule for rule in lint.rules() if rule not in ELSEWHERE), *MORE_CASES]
        jobs = [(case, wrong) for case in cases for wrong in (True, False)]
        with needs_device.concurrent.futures.ThreadPoolExecutor(needs_device.AT_ONCE) as pool:
            results = pool.map(lambda job: run(*job), jobs)
            for (case, wrong), (collector, outcome) in zip(jobs, results):
                rule = case.split(",")[0]
                with self.subTest(case, wrong=wrong):
                    found = {finding.rule.name for finding in collector.findings}
                    found -= UNSTEADY - {rule}
                    text = outcome.text() + "\n".join(f.text() for f in collector.findings)
                    ends_with = ENDS_WITH.get(rule, 0) if wrong else 0
                    self.assertEqual(outcome.status, {"": ends_with}, text)
                    if wrong:
                        self.assertIn(rule, found, text)
                        others = found - {rule, "call-failed"}  # many mistakes end in one
                        self.assertLessEqual(others, FOLLOWS.get(rule, set()), text)
                    else:
                        self.assertEqual(found, set(), text)

    def test_reasons(self):
        """After a refused call, the checker finds the reason."""
        reasons = [
            "nothing is mapped at 0x1000",
            "IBV_ACCESS_REMOTE_WRITE and IBV_ACCESS_REMOTE_ATOMIC need IBV_ACCESS_LOCAL_WRITE",
            "are mapped r--p, and the access flags allow writing",
            "qp_type is 0: has it been set?", "max_send_wr is 1073741824, and the device has at"]
        if variants.there(PLACE).get("kernel", (99,)) < (6, 2):
            reasons.append("are mapped r--s: kernel 6.1 refuses shared pages that are read-only")
        collector, outcome = run("call-failed, reasons", True)
        self.assertEqual(outcome.status, {"": 0}, outcome.text())
        text = "\n".join(f.text() for f in collector.findings)
        for reason in reasons:
            with self.subTest(reason):
                self.assertIn(reason, text, outcome.text())

    def test_poison(self):
        """It overwrites the eight members that are not valid in a failed completion."""
        for case in ("completion, ibv_poll_cq", "completion, ibv_start_poll"):
            for wrong in (True, False):
                for poison in (True, False):
                    with self.subTest(case, wrong=wrong, poison=poison):
                        outcome = run(case, wrong, poison)[1]
                        self.assertEqual(outcome.status, {"": 0}, outcome.text())
                        self.assertIn(
                            f"status {5 if wrong else 0}, wr_id 1, the QP's number, "
                            f"{8 if wrong and poison else 0} of 8 are 0xa5", outcome.text())
                        if not wrong:
                            self.assertIn("byte_len 64", outcome.text())


if __name__ == "__main__":
    needs_device.main()
