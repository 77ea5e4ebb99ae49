"""What whole programs do for a request or a message, over the device: system calls of all their processes and threads, posts,
completions, wakes and sleeps, and instructions in user space.

With ordinary scheduling these counts are not the same twice: in three runs of 16 processes, the system calls of a request differed by
10 to 12 %, since it depends on the order of the processes how many requests go in a group, and who has to be woken. No test can
find a change of 5 % there. In one order (in_one_order.py) they hardly differ. So these are counts of that
order. They are good for finding what a change adds; they do not say how many groups are formed on a machine with more CPUs.

In detail:
- A start-up goes out of the difference of two runs, of which one has twice as many requests. --stats counts a whole run.
- Something can still disturb the order. With three times as many busy processes as CPUs, two of ten runs had the callers in two halves, one
  after the other, with exactly twice as many groups. So a count that differs is counted again, up to four times, and of each kind of
  run the one with the least counts decides. Disturbances only add; what a change adds is in each run.
- --stats prints three digits, so half of the last one is allowed beside the 5 %.
- Instructions: of a server, and of clients that are threads of one process. A worker that is a process needs pidfd_open, which
  Debian 12's valgrind does not know. Each start under valgrind takes many seconds in the emulated machine: hence few arms.
- rate has no place here: it polls, so its counts are of time and not of work. In one order it would also keep the CPU from all others.

whole_programs.json has the counts of the systems that CI uses: they depend on the compiler, and on the kernel and its libraries;
`PYTHONPATH=tools:tests python3 tests/counts/test_whole_programs.py --record` writes those of this one."""
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

PROGRAMS = Path(os.environ.get("LAB_BUILD", ROOT / "build")) / "examples"
RUNNER = str(Path(__file__).parent / "in_one_order.py")
EXPECTED = Path(__file__).parent / "whole_programs.json"
SYSTEM = f"{platform.freedesktop_os_release().get('VERSION_CODENAME')} {platform.machine()}"
MOST_CHANGE = 0.05
HALF_A_DIGIT = 0.0005  # of what --stats prints
TRIES = 4
TO_SERVER = ("--host", place.ADDRESS)


def shared(processes, threads, in_flight, requests):
    server = [str(PROGRAMS / "slot_server"), "--clients", "0", "--cm-port", "0", "--stats"]
    client = [str(PROGRAMS / "shared_client"), *TO_SERVER, "--cm-port", "PORT", "--stats", "--responses", "slots", "--timeout", "120",
              "--processes", str(processes), "--threads", str(threads), "--in-flight", str(in_flight), "--requests", str(requests)]
    return server, client, max(processes, 1) * threads * requests


def own(processes, in_flight, requests):
    server = [str(PROGRAMS / "own_connections"), "--cm-port", "0", "--connections", str(processes)]
    client = [str(PROGRAMS / "own_connections"), *TO_SERVER, "--cm-port", "PORT", "--processes", str(processes), "--in-flight",
              str(in_flight), "--requests", str(requests)]
    return server, client, processes * requests


def group(messages):
    """Without looking a thousand times before each sleep."""
    server = [str(PROGRAMS / "group_send"), "--tcp-port", "0", "--spin", "0"]
    client = [str(PROGRAMS / "group_send"), *TO_SERVER, "--tcp-port", "PORT", "--spin", "0", "--measure", "0", "--messages", str(messages)]
    return server, client, 4 * messages


# name -> the two command lines and the number of requests, or messages, for a run of so many of each process
CALLS = {
    "shared client, 16 x 1": (lambda each: shared(16, 1, 1, each), 200),
    "shared client, 16 x 16": (lambda each: shared(16, 1, 16, each), 400),
    "own connections, 16 x 1": (lambda each: own(16, 1, each), 60),
    "group_send": (group, 2000),
}
INSTRUCTIONS = {
    "slot_server, 16 x 1": ("server", lambda each: shared(16, 1, 1, each), 50),
    "shared_client, 16 threads": ("client", lambda each: shared(0, 16, 1, each), 50),
}


def run(arm, each, counted):
    """@return what was counted, what both programs have printed, and of how many requests"""
    server, client, requests = arm(each)
    done = labtest.run("python3", RUNNER, json.dumps(server), json.dumps(client), counted)
    if done.returncode:
        raise AssertionError((done.stdout + done.stderr).decode())
    result = json.loads(done.stdout.decode().splitlines()[-1])
    return result["counts"], result["said"], requests


def total(counts):
    return sum(sum(by_name.values()) for by_name in counts.values()) if isinstance(counts, dict) else counts


class Counted:
    """Runs of an arm, with so many requests and with twice as many. Of each, the one with the least counts."""

    def __init__(self, arm, each, counted):
        self.arm, self.each, self.counted = arm, each, counted
        self.least = {}

    def again(self):
        for times in (1, 2):
            one = run(self.arm, times * self.each, self.counted)
            self.least[times] = min(self.least.get(times, one), one, key=lambda each: total(each[0]))
        (few, _, few_requests), (many, said, many_requests) = self.least[1], self.least[2]
        requests = many_requests - few_requests
        if self.counted != "calls":
            return {"instructions": (many - few) / requests}
        found = {}
        for side in ("server", "client"):
            by_name = {call: (count - few[side].get(call, 0)) / requests for call, count in many[side].items()}
            found[f"{side}: system calls"] = sum(by_name.values())
            found |= {f"{side}: {call}": count for call, count in by_name.items() if count > 0.002}
        for whose, counts in re.findall(r"^(sender|server): each message: (.*)$", said, re.MULTILINE):
            side = "client" if whose == "sender" else whose
            found |= {f"{side}: --stats {what}": float(count)
                      for count, what in re.findall(r"([\d.]+) (posts|completions|wakes|sleeps)", counts)}
        return found


def calls(name):
    arm, each = CALLS[name]
    return Counted(arm, each, "calls")


def instructions(name):
    counted, arm, each = INSTRUCTIONS[name]
    return Counted(arm, each, counted)


def is_asserted(what):
    """All system calls together are: one of them alone can be so rare that 5 % of it are nothing."""
    return "system calls" in what or "--stats" in what or what == "instructions"


# In one order, too, it was 1.249 once and 1.3125 once: one wake more for all 16. That is recorded, and not asserted.
NOT_STEADY = {("own connections, 16 x 1", "server: system calls")}


def slack(what):
    return HALF_A_DIGIT if "--stats" in what else 0


class Counts(unittest.TestCase):
    def compare(self, name, arm):
        was = json.loads(EXPECTED.read_text())[SYSTEM][name]
        for _ in range(TRIES):
            found = arm.again()
            wrong = [what for what in was if is_asserted(what) and (name, what) not in NOT_STEADY and
                     not self.least(what, was) <= found.get(what, 0) <= self.most(what, was)]
            if not wrong:
                return
        self.fail(f"{name}: for a request, these have grown, or have become fewer and want to be recorded (--record): {wrong}\n"
                  f"was {json.dumps(was, indent=1)}\nis {json.dumps(rounded(found), indent=1)}")

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


def counted(arm, tries):
    return rounded([arm.again() for _ in range(tries)][-1])


def record():
    expected = json.loads(EXPECTED.read_text()) if EXPECTED.exists() else {}
    expected[SYSTEM] = {name: counted(calls(name), TRIES) for name in CALLS} | {name: counted(instructions(name), 1) for name in INSTRUCTIONS}
    EXPECTED.write_text(json.dumps(expected, indent=2, sort_keys=True) + "\n")


if __name__ == "__main__":
    labtest.need_machine()
    if sys.argv[1:] == ["--record"]:
        record()
    elif SYSTEM not in json.loads(EXPECTED.read_text()) and not os.environ.get("LAB_REQUIRE_DEVICE"):
        print(f"skipped: {EXPECTED.name} has no counts of {SYSTEM}")
        sys.exit(77)
    else:
        unittest.main(verbosity=2)
