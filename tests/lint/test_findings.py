# SPDX-License-Identifier: MIT
"""The examples and their "Break it" changes have the findings that findings.json lists, and no
other. Notes do not count. An example that is not listed has none. `./lab dev record --findings`
writes what is found now; look at the difference."""
import platform
import shlex
import unittest

import needs_device
from lab import ladder, pair
from lab.commands import lint, trace
from lab.pages import findings

PLACE = needs_device.PLACE


# Programs of others: the findings above a note that they may have, with the reasons. Each has a
# port of its own where it can choose, since other tests run beside.
#
# -F: without it, a *_bw program that loses its processor while it measures the frequency ends with
# "Can't produce a report", and destroys nothing.
PERFTEST = "-x {gid} -n 100 -F -p {port}"
STOCK = {
    "ibv_rc_pingpong -g {gid} -n 50 -p {port}": {},
    "ibv_rc_pingpong -e -g {gid} -n 50 -p {port}": {},
    "ibv_uc_pingpong -g {gid} -n 50 -p {port}": {},
    "ibv_ud_pingpong -g {gid} -n 50 -p {port}": {},
    "ibv_srq_pingpong -g {gid} -n 50 -p {port}": {},
    f"ib_write_lat {PERFTEST}": {},
    f"ib_read_lat {PERFTEST}": {},
    f"ib_write_bw {PERFTEST}": {},
    f"ib_read_bw {PERFTEST}": {},
    f"ib_atomic_bw {PERFTEST}": {},
    f"ib_send_lat {PERFTEST}": {},
    f"ib_send_lat -e {PERFTEST}": {
        "no-poll-after-arm": "it arms a CQ, and waits without a poll",
        "cq-not-polled": "one channel for two CQs: it polls one, whichever the event was for",
    },
    f"ib_send_bw {PERFTEST}": {
        "destroy-order": "it closes the device before it destroys the second CQ",
        "leak": "the same",
    },
    f"ib_write_bw -R {PERFTEST}": {"leak": "it does not destroy what it made with rdma_cm"},
    "ucx_perftest -t am_lat -x rc_verbs -d {device}:1 -p {port} -n 50 -w 5": {
        "freed-registered": "UCX frees its test's buffer before it deregisters it"},
    "fi_pingpong -p verbs -e msg -I 20": {},
}
# The main thread destroys the event channel as soon as the other thread has handled the last event.
# That one calls rdma_get_cm_event again: before the channel is gone, or after that.
END_OF_THE_CHANNEL = {
    "destroyed-in-use": "its event thread is inside the channel that it destroys",
    "use-after-destroy": "its event thread comes back to the channel that it has destroyed",
}
# With other words for the client.
STOCK_PAIRS = {
    ("rping -s -a {host} -p {port} -C 5", "rping -c -a {host} -p {port} -C 5"): {
        "destroy-order": "the server destroys the id before its QP",
        **END_OF_THE_CHANNEL,
    },
    ("cmtime -b {host} -p {port} -c 5", "cmtime -b {host} -s {host} -p {port} -c 5"): {
        "destroy-order": "all its queue pairs use the CQs that rdma_create_qp made for the first",
        **END_OF_THE_CHANNEL,
    },
    ("udaddy -b {host} -C 5", "udaddy -s {host} -C 5"): {},
    ("ucmatose -b {host} -p {port} -C 5", "ucmatose -s {host} -p {port} -C 5"): {},
    ("rdma_server -p {port}", "rdma_client -s {host} -p {port}"): {},
    ("rstream -b {host} -p {port} -S 64 -C 50", "rstream -s {host} -p {port} -S 64 -C 50"): {},
}
# The order of a program's calls decides these: on Debian 12, which has the versions in the table of
# tools/lint/README.md, each run that works has them. The others depend on the moment.
CERTAIN = {"destroy-order", "leak", "freed-registered"}


def is_debian_12():
    try:
        release = platform.freedesktop_os_release()
    except OSError:
        return False
    return (release["ID"], release.get("VERSION_ID")) == ("debian", "12")


def stock():
    """(server, client, what it may have)"""
    for command, allowed in STOCK.items():
        yield command, command + " {host}", allowed
    for (server, client), allowed in STOCK_PAIRS.items():
        yield server, client, allowed


class Findings(unittest.TestCase):
    def test_all(self):
        for job, (rules, outcome) in findings.each(PLACE, needs_device.BUILD, ladder.read()):
            program, _, broken = job
            with self.subTest(program):
                known = findings.of_program(program)
                wanted = known - findings.not_reported(PLACE)
                self.assertLessEqual(wanted, rules, outcome.text())
                if not broken:  # one that is broken fails in one way or another
                    self.assertEqual(rules - known, set(), outcome.text())
                    self.assertFalse(outcome.failed, outcome.text())


class Stock(unittest.TestCase):
    """A false alarm is a bug, and so is a CERTAIN row of README.md's table that is not found."""

    def test_other_programs(self):
        libraries = (lint.LIBRARY, trace.LIBRARY)  # the tracer says when a server listens
        start = lint.under(PLACE, needs_device.BUILD, libraries=libraries)
        hello = [needs_device.program("hello_device"), "--device", PLACE.device]
        text = pair.run(PLACE, hello).text()
        gid = text.split("examples use GID index ")[1].split()[0]
        for number, (server, client, allowed) in enumerate(stock()):
            with self.subTest(server):
                words = dict(gid=gid, port=29500 + number, device=PLACE.device, host=PLACE.address)
                collector = lint.Collector(lambda role, text: None, lambda finding: None)
                commands = [server.format(**words).split(), client.format(**words).split()]
                # A server that waits for clients forever is ended when its client fails.
                serves_on = server.startswith("cmtime")
                if serves_on:
                    commands[1] = ["sh", "-c", f"{shlex.join(commands[1])} && echo worked; exit 1"]
                outcome = lint.run_command(
                    (PLACE, PLACE), start, [*commands[0], "--", *commands[1]], collector,
                    stop_server=serves_on)
                collector.end(outcome)
                self.assertIn("client", outcome.status, outcome.text())
                self.assertFalse(outcome.timed_out, outcome.text())
                found = {f.rule.name for f in collector.findings if f.rule.severity != "note"}
                explained = "\n".join(finding.text() for finding in collector.findings)
                explained += f"\n{outcome.status}\n{outcome.text()}"
                self.assertLessEqual(found, set(allowed), explained)
                worked = "worked" in outcome.of("client") if serves_on else not outcome.failed
                if is_debian_12() and worked:
                    self.assertLessEqual(CERTAIN & set(allowed), found, explained)


if __name__ == "__main__":
    needs_device.main()
