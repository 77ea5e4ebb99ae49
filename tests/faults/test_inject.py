# SPDX-License-Identifier: MIT
"""Each verbs call of each example fails once: the program prints the message for that call, ends
with exit status 1 within its time limit, and leaves nothing on the device.

The list of calls comes from a run of each program (lab/commands/inject.py). A tenth of them fails,
chosen by a seed; LAB_INJECT=all is all of them, and LAB_INJECT=SEED another tenth.
"""
import concurrent.futures
import os
import re
import subprocess
import unittest

import needs_device
from lab import examples, ladder
from lab.commands import inject

PLACE = needs_device.PLACE
AGAIN = "./lab test test_inject"
SEED = "x7"  # by default: the same tenth in each run of a build
CHOICE = os.environ.get("LAB_INJECT", "")
ONLY = os.environ.get("LAB_INJECT_ONLY", "")  # "02_send_recv", or one of its programs

# As long as the whole run may take: if a client fails, another one comes. Not for device_memory,
# whose processes wait for each other: a later client does not take the place of one of them.
WAIT = ["--wait", "600"]
WITHOUT_WAIT = "device_memory"
LONGER = ["--timeout", "60"]  # listing the calls takes time, too
# Programs beside a lesson's own.
ALSO = {"06_completions": ["completion_costs"]}
# Fewer rounds of what is measured: they make the same calls.
FEWER = {"completion_costs": ["--measure", "1"]}
SHARED = ("slot_server", "use_shared_client", "cache")  # servers or clients of rdmashared
# These go on by design, instead of an end with exit status 1 and a message for the call. They are
# not excepted from anything else: the time limit, what is left open, signals, the sanitizers.
# (program, side, function or None for all) -> (whether it may be silent about it, why)
BY_DESIGN = {
    ("many_server", "server", None): (False, "a server drops the client, and serves the others"),
    ("shared_receive", "server", None): (False, "a server drops the client, and serves the others"),
    ("many_server", "server", "rdma_disconnect"): (True, "the connection may have ended already"),
    ("datagrams", "server", "ibv_create_ah_from_wc"): (
        True, "it refuses the datagram, and says why"),
    ("send_variants", "server", "ibv_create_qp"): (True, "it tries again with less inline data"),
    ("send_variants", "client", "ibv_create_qp"): (True, "it tries again with less inline data"),
    ("kernel_client", "server", "rdma_disconnect"): (True, "the connection may have ended already"),
    ("memory_windows", "server", "ibv_poll_cq"): (False, "its table shows what a request comes to"),
    ("memory_windows", "client", "ibv_poll_cq"): (False, "its table shows what a request comes to"),
    ("many_server", "client", None): (True, "a client tries again; --verbose says why"),
    ("sharing", "", None): (False, "the owner names the worker, and serves the others"),
    ("fork", "", None): (True, "it shows what a call of a child returns"),
}
for _program in SHARED:
    BY_DESIGN |= {
        (_program, "server", None): (False, "a server drops the client, and serves the others"),
        (_program, "server", "rdma_disconnect"): (True, "the connection may have ended already"),
        (_program, "server", "rdma_migrate_id"): (True, "it takes its queue pairs down at once"),
        (_program, "client", None): (False, "a shared client says why, and connects again"),
    }


def excepted(program, call, wrong):
    """Why this is no failure of the program; "" if there is no reason."""
    may_be_silent, why = BY_DESIGN.get(
        (program, call.side, call.function), BY_DESIGN.get((program, call.side, None), (False, "")))
    silent = re.fullmatch(r"exit status \S+, and no message names the call", wrong)
    return why if wrong == inject.GOES_ON or (may_be_silent and silent) else ""


def on_device(*argv):
    return subprocess.run(
        PLACE.wrap(list(argv)), stdin=subprocess.DEVNULL, capture_output=True, text=True)


def programs():
    """(lesson, program) of all that make verbs calls."""
    for lesson in ladder.read():
        if not lesson.has_program or lesson.kind == "alone" or needs_device.why_not(lesson):
            continue
        for program in (lesson.program, *ALSO.get(lesson.stem, [])):
            if ONLY in ("", lesson.stem, program):
                yield lesson, program


def has_timeout(lesson):
    return lesson.kind in ("pair", "cm-pair")


def arguments(lesson, program):
    waits = has_timeout(lesson) and program != WITHOUT_WAIT
    return (WAIT if waits else []) + FEWER.get(program, [])


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
                program, lesson.kind, FEWER.get(program, []) + LONGER * has_timeout(lesson))

        with concurrent.futures.ThreadPoolExecutor(inject.AT_ONCE) as pool:
            return [
                (*job, call) for job, found in zip(jobs, pool.map(calls, jobs)) for call in found]

    def test_rules(self):
        for rule, (status, wanted) in {
            "ibv_open_device:1": (1, "error: ibv_open_device: Permission denied, EACCES"),
            "ibv_open_device:1:EMFILE": (1, "error: ibv_open_device: Too many open files, EMFILE"),
            "ibv_query_port:1": (1, "error: ibv_query_port: Input/output error, EIO"),
            "ibv_query_port:99": (0, ""),
            "1.1/ibv_query_port:1": (0, ""),
            "ibv_query_port": (2, "a rule is FUNCTION:N or FUNCTION:N:HOW"),
            "ibv_query_port:0": (2, "N is a number, counted from 1"),
            "ibv_query_port:1:lost": (2, "only an event can be lost or delayed"),
            "ibv_query_port:1:ESPOON": (2, "no error number has this name"),
            "ibv_poll_cq:1:EIO": (2, "nor a completion's status such as RETRY_EXC_ERR"),
        }.items():
            with self.subTest(rule):
                under = ["env", f"VERBS_INJECT={rule}", self.injection.preload]
                outcome = examples.run(
                    PLACE, needs_device.BUILD, "hello_device", "device", under=under)
                self.assertEqual(outcome.status, {"": status}, outcome.text())
                self.assertIn(wanted, outcome.text())

    def test_hints(self):
        """Of failures that no example shows and that no other test can make."""
        for anchor, (program, kind, rule) in {
            "#no-dev-infiniband": ("hello_device", "device", "ibv_open_device:1:EACCES"),
            "#no-connection-manager": (
                "cm_server", "cm-pair", "rdma_create_event_channel:1:ENOENT"),
            "#device-gone": ("hello_device", "device", "ibv_open_device:1:EIO"),
            "#cgroup-limit": ("hello_device", "device", "ibv_open_device:1:EAGAIN"),
            "#address-handle-refused": ("datagrams", "pair", "ibv_create_ah:1:EINVAL"),
            "#multicast-refused": ("multicast", "pair", "rdma_join_multicast:1:EINVAL"),
            "#rtr-timeout": ("send_recv", "pair", "ibv_modify_qp:2:ETIMEDOUT"),
            "#local-length": ("send_recv", "pair", "ibv_poll_cq:1:LOC_LEN_ERR"),
        }.items():
            with self.subTest(anchor):
                under = ["env", f"VERBS_INJECT={rule}", self.injection.preload]
                outcome = examples.run(PLACE, needs_device.BUILD, program, kind, under=under)
                self.assertNotIn(0, outcome.status.values(), outcome.text())
                self.assertIn(f"troubleshooting.md{anchor}", outcome.text())

    def test_every_call(self):
        known = self.known()
        self.assertGreater(len(known), 100 if not ONLY else 0)
        chosen, its_seed = known, ""
        if CHOICE != "all":
            its_seed = CHOICE or SEED
            chosen = [
                job for job in known if inject.is_chosen(job[2], f"{its_seed} {job[1]}")
            ] or known[:1]
        print(
            f"{len(chosen)} of {len(known)} calls fail"
            + (f"; again: LAB_INJECT={its_seed} {AGAIN}" if its_seed else ""),
            flush=True)
        before = on_device("rdma", "resource").stdout

        def run(job):
            lesson, program, call = job
            # With a delayed event a program has to work, so it gets as much time as it needs.
            longer = LONGER * (has_timeout(lesson) and call.how == "delayed")
            outcome = self.injection.run(
                program, lesson.kind, [*arguments(lesson, program), *longer], call)
            return inject.problem(call, outcome), outcome

        passed, designed, not_reached = 0, {}, []
        with concurrent.futures.ThreadPoolExecutor(inject.AT_ONCE) as pool:
            for (lesson, program, call), (wrong, outcome) in zip(chosen, pool.map(run, chosen)):
                why = excepted(program, call, wrong)
                if why:
                    designed[why] = designed.get(why, 0) + 1
                    continue
                if wrong == inject.NOT_REACHED and not outcome.failed:
                    not_reached.append(f"{program} {call}")
                    continue
                passed += not wrong
                with self.subTest(f"{program} {call}"):
                    self.assertEqual(wrong, "", f"{program} {call}\n{outcome.text()}")
        if CHOICE == "all":  # then it runs alone; else other tests use the device, too
            self.assertEqual(on_device("rdma", "resource").stdout, before)
        # Whether a program has to sleep for an event, say, depends on the order of events.
        print(f"{len(not_reached)} not made in these runs: {', '.join(not_reached)}")
        self.assertLess(len(not_reached), len(chosen) / 2)
        print(f"{passed} of {len(chosen)} calls failed as they should")
        for why, number in designed.items():
            print(f"{number} by design: {why}")


if __name__ == "__main__":
    needs_device.main()
