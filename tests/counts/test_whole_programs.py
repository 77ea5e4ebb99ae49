# SPDX-License-Identifier: MIT
"""What whole programs do for a request or a message, over the device: the system calls of all their
processes and threads, posts, completions, wakes, sleeps, and instructions in user space.

With ordinary scheduling, these counts differ from run to run: 10 to 12 % in three runs with 16
processes. How many requests go in a group, and which threads sleep, depends on the order in which
the processes run. So fixed_schedule.py fixes that order, and all sides wait for events: how often a
side looks before it sleeps depends on the time. Ten runs of each case, four of them beside two
endless loops, then differed by 3 % at most. The loads are those with a fixed pattern: one process
with one request, or processes with 16 requests each. (16 processes with one request each may split
into two halves, which doubles the number of groups.) The counts show what a change adds. They do
not show how large groups are on a machine with more CPUs.

In detail:
- The start of the programs goes out by a difference: one run has twice as many requests as the
  other. --stats counts the whole run.
- A count that differs is counted again, up to four times, and of each kind of run the one with the
  fewest system calls decides.
- --stats prints three digits, so half of the last one is allowed beside the 5 %.
- Instructions: of a server, and of clients that are threads of one process. A worker process needs
  pidfd_open, which the valgrind of Debian 12 does not know.
- `rate` polls, so its counts measure time. It is not counted here.

whole_programs.json has the counts of the system on which CI runs this: they depend on the compiler,
the kernel and the libraries. --record writes those of this system:
PYTHONPATH=tools:tests/support python3 tests/counts/test_whole_programs.py --record"""
import json
import os
import platform
import re
import sys
import unittest
from pathlib import Path

import labtest
from lab import place
from lab.paths import ROOT

BUILD = Path(os.environ.get("LAB_BUILD", ROOT / "build"))
PROGRAMS, OPPONENTS = BUILD / "examples", BUILD / "tools/bench/opponents"
RUNNER = str(Path(__file__).parent / "fixed_schedule.py")
EXPECTED = Path(__file__).parent / "whole_programs.json"
SYSTEM = f"{platform.freedesktop_os_release().get('VERSION_CODENAME')} {platform.machine()}"
MOST_CHANGE = 0.05
HALF_A_DIGIT = 0.0005  # of what --stats prints
TRIES = 4
TO_SERVER = ("--host", place.ADDRESS)


def shared(processes, threads, in_flight, requests):
    server = [
        str(PROGRAMS / "slot_server"), "--clients", "0", "--cm-port", "0", "--waiting", "events",
        "--stats"]
    client = [
        str(PROGRAMS / "shared_client"), *TO_SERVER, "--cm-port", "PORT", "--responses", "slots",
        "--waiting", "events", "--sender-waits", "events", "--timeout", "120", "--processes",
        str(processes), "--threads", str(threads), "--in-flight", str(in_flight), "--requests",
        str(requests), "--stats"]
    return server, client, max(processes, 1) * threads * requests


def own(processes, in_flight, requests):
    server = [str(OPPONENTS / "own_connections"), "--cm-port", "0", "--connections", str(processes)]
    client = [
        str(OPPONENTS / "own_connections"), *TO_SERVER, "--cm-port", "PORT", "--processes",
        str(processes), "--in-flight", str(in_flight), "--requests", str(requests)]
    return server, client, processes * requests


def credits_of(requests):
    server = [str(PROGRAMS / "credits"), "--tcp-port", "0"]
    client = [
        str(PROGRAMS / "credits"), *TO_SERVER, "--tcp-port", "PORT", "--callers", "64",
        "--requests", str(requests)]
    return server, client, 64 * requests


# name -> the two command lines and the number of requests, or messages, for a run of so many of
# each process
CALLS = {
    "shared client, 1 x 1": (lambda each: shared(1, 1, 1, each), 400),
    "shared client, 16 x 16": (lambda each: shared(16, 1, 16, each), 400),
    "own connections, 1 x 1": (lambda each: own(1, 1, each), 400),
    "credits": (credits_of, 200),
}
INSTRUCTIONS = {
    "slot_server, 16 x 1": ("server", lambda each: shared(16, 1, 1, each), 50),
    "shared_client, 16 threads": ("client", lambda each: shared(0, 16, 1, each), 50),
}


def run(case, each, counted):
    """@return what was counted, what both programs have printed, and of how many requests"""
    server, client, requests = case(each)
    done = labtest.run("python3", RUNNER, json.dumps(server), json.dumps(client), counted)
    if done.returncode:
        raise AssertionError((done.stdout + done.stderr).decode())
    result = json.loads(done.stdout.decode().splitlines()[-1])
    return result["counts"], result["said"], requests


def total(counts):
    return (
        sum(sum(by_name.values()) for by_name in counts.values())
        if isinstance(counts, dict)
        else counts)


class Counted:
    """Runs of a case, with so many requests and with twice as many. Of each, the one with the least
    counts."""

    def __init__(self, case, each, counted):
        self.case, self.each, self.counted = case, each, counted
        self.least = {}

    def again(self):
        for times in (1, 2):
            one = run(self.case, times * self.each, self.counted)
            self.least[times] = min(
                self.least.get(times, one), one, key=lambda each: total(each[0]))
        (few, _, few_requests), (many, said, many_requests) = self.least[1], self.least[2]
        requests = many_requests - few_requests
        if self.counted != "calls":
            return {"instructions": (many - few) / requests}
        found = {}
        for side in ("server", "client"):
            by_name = {
                call: (count - few[side].get(call, 0)) / requests
                for call, count in many[side].items()}
            found[f"{side}: system calls"] = sum(by_name.values())
            found |= {f"{side}: {call}": count for call, count in by_name.items() if count > 0.002}
        for whose, counts in re.findall(
            r"^(sender|server): each message: (.*)$", said, re.MULTILINE
        ):
            side = "client" if whose == "sender" else whose
            found |= {
                f"{side}: --stats {what}": float(count)
                for count, what in re.findall(r"([\d.]+) (posts|completions|wakes|sleeps)", counts)}
        return found


def calls(name):
    case, each = CALLS[name]
    return Counted(case, each, "calls")


def instructions(name):
    counted, case, each = INSTRUCTIONS[name]
    return Counted(case, each, counted)


def is_asserted(what):
    """All system calls together are: one of them alone can be so rare that 5 % of it are
    nothing."""
    return "system calls" in what or "--stats" in what or what == "instructions"


# Between 0.033 and 0.040 in ten runs: the server's other thread is woken now and then.
NOT_STEADY = {("shared client, 1 x 1", "server: --stats wakes")}


def slack(what):
    return HALF_A_DIGIT if "--stats" in what else 0


class Counts(unittest.TestCase):
    def compare(self, name, case):
        was = json.loads(EXPECTED.read_text())[SYSTEM][name]
        for _ in range(TRIES):
            found = case.again()
            wrong = [
                what
                for what in was
                if is_asserted(what)
                and (name, what) not in NOT_STEADY
                and not self.least(what, was) <= found.get(what, 0) <= self.most(what, was)
            ]
            if not wrong:
                return
        self.fail(
            f"{name}: for a request, these have grown, or have become fewer and want to be recorded"
            f" (--record): {wrong}\nwas {json.dumps(was, indent=1)}\nis"
            f" {json.dumps(rounded(found), indent=1)}")

    def least(self, what, was):
        return was[what] * (1 - MOST_CHANGE) - slack(what)

    def most(self, what, was):
        return was[what] * (1 + MOST_CHANGE) + slack(what)

    def test_system_calls(self):
        for name in CALLS:
            with self.subTest(name):
                self.compare(name, calls(name))

    def test_instructions(self):
        for name in INSTRUCTIONS:
            with self.subTest(name):
                self.compare(name, instructions(name))


def rounded(found):
    return {what: round(count, 4) if count < 10 else round(count) for what, count in found.items()}


def counted(case, tries):
    return rounded([case.again() for _ in range(tries)][-1])


def record():
    expected = json.loads(EXPECTED.read_text()) if EXPECTED.exists() else {}
    expected[SYSTEM] = {name: counted(calls(name), TRIES) for name in CALLS} | {
        name: counted(instructions(name), 1) for name in INSTRUCTIONS}
    EXPECTED.write_text(json.dumps(expected, indent=2, sort_keys=True) + "\n")


if __name__ == "__main__":
    labtest.need_machine()
    if sys.argv[1:] == ["--record"]:
        record()
    elif SYSTEM not in json.loads(EXPECTED.read_text()) and not os.environ.get(
        "LAB_REQUIRE_DEVICE"
    ):
        print(f"skipped: {EXPECTED.name} has no counts of {SYSTEM}")
        sys.exit(77)
    else:
        unittest.main(verbosity=2)
