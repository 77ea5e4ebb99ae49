# SPDX-License-Identifier: MIT
"""What can go wrong with the module of lesson 31, in an emulated machine of its own.

Whatever happens: the module can be unloaded, the kernel has nothing to complain about, nothing of
the module's is left on the device, and it can be loaded again and works.
"""
import os
import subprocess
import unittest

import labtest
import skipping
from lab import build, examples, pair, place
from lab.machine import guest_module, kbuild
from lab.paths import ROOT

LESSON = examples.kernel_lesson("kernel_client")
GUEST = ["python3", "-I", "-S", str(ROOT / "tools/lab/machine/guest_module.py")]
ENDLESS = "rounds=4000000000"
NOBODY = "4"  # a port on which nobody listens
# The kernel overwrites memory that is freed, and checks it when it is allocated again. So it finds
# code that still uses it.
labtest.ENVIRONMENT["LAB_BOOT"] = os.environ["LAB_BOOT"] = "slub_debug=FZPU page_poison=1"
STEPS = ("ADDR_RESOLVED", "ROUTE_RESOLVED", "ESTABLISHED", "registered", "WRITE of", "READ of")

labtest.need_machine()
if why := kbuild.why_not():
    skipping.skip(why)


class KernelClient(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.build = build.directory()
        cls.where = place.find_machine()
        cls.server = [str(cls.build / "examples/page_server")]
        cls.liar = [str(cls.build / "tests/faults/lying_cm")]
        cls.module = str(kbuild.module(LESSON, "kernel_client", cls.build))
        cls.before = cls.resources()
        unittest.addModuleCleanup(lambda: labtest.finish(labtest.lab("down")))

    def tearDown(self):
        """After each fault."""
        self.assertNotIn("kernel_client", self.guest("cat", "/proc/modules"))
        self.assertEqual(self.resources(), self.before)
        self.assertEqual(
            [
                line
                for line in self.guest("dmesg").splitlines()
                if guest_module.COMPLAINT.search(line)
            ],
            [])

    def works(self):
        outcome = self.run_against(self.server)
        self.assertEqual(outcome.status, {"server": 0, "client": 0}, outcome.text())
        self.assertEqual(self.resources(), self.before)

    @classmethod
    def guest(cls, *argv):
        return subprocess.run(
            cls.where.wrap(argv), check=True, stdout=subprocess.PIPE, text=True, timeout=600
        ).stdout

    @classmethod
    def resources(cls):
        """By kind; the number in front is the device's, and a new device has a new one."""
        return cls.guest("rdma", "resource", "show").split(": ", 1)[1]

    def run_against(self, server, *words, at="", then=(), wait=40):
        """@param at, then: what is done in the machine when the client says this; once
        @param wait seconds in which the server wants to have a client"""
        done = []

        def watch(role, text):
            if at and role == "client" and at in text and not done:
                done.append(text)
                self.guest(*then)

        return pair.run(
            self.where,
            [*server, "--cm-port", "0", "--wait", str(wait)],
            pair.Client(
                examples.LISTENING,
                lambda line: [
                    *GUEST, self.module, *words, f"server={self.where.address}", f"port={line[1]}"],
            ),
            show=watch)

    def alone(self, *words):
        """Without a server. @return what it says, and how it ends"""
        result = subprocess.run(
            self.where.wrap([*GUEST, self.module, *words]), stdout=subprocess.PIPE, text=True,
            timeout=600)
        return result.stdout, result.returncode

    def assertFails(self, outcome, words):
        self.assertFalse(outcome.timed_out, outcome.text())
        self.assertIn("error: " + words, "\n".join(outcome.of("client")))
        self.assertEqual(outcome.status["client"], 1, outcome.text())
        self.assertNotIn("kernel: ", outcome.text())


class Midway(KernelClient):
    def tearDown(self):
        super().tearDown()
        self.works()

    def test_unloaded(self):
        for line in STEPS:
            with self.subTest(line):
                outcome = self.run_against(self.server, "--unload-at", line, ENDLESS)
                self.assertEqual(outcome.status.get("client"), 0, outcome.text())
                # Not always last: an event handler may run at the same time.
                self.assertIn(
                    "ended before the end: rxe0 or the module goes", outcome.of("client"),
                    outcome.text())

    def test_unloaded_when_it_has_ended(self):
        for line in ("took the registration back", "DISCONNECTED", "done"):
            with self.subTest(line):
                outcome = self.run_against(self.server, "--unload-at", line)
                self.assertEqual(outcome.status.get("client"), 0, outcome.text())

    def test_device_removed(self):
        for line in ("ROUTE_RESOLVED", "READ of"):
            with self.subTest(line):
                outcome = self.run_against(
                    self.server, ENDLESS, at=line, then=["rdma", "link", "delete", "rxe0"])
                self.guest("rdma", "link", "add", "rxe0", "type", "rxe", "netdev", "lab0")
                self.assertEqual(outcome.status["client"], 0, outcome.text())
                # Not always last: an event handler may run at the same time.
                self.assertIn(
                    "ended before the end: rxe0 or the module goes", outcome.of("client"),
                    outcome.text())

    def test_server_killed(self):
        for line in ("ROUTE_RESOLVED", "READ of"):
            with self.subTest(line):
                self.assertFails(
                    self.run_against(
                        self.server, ENDLESS, at=line, then=["pkill", "-9", "page_server"]),
                    "")

    def test_many_queues(self):
        """Up to as many as the module has, with more pages than queues, and with fewer."""
        for queues, pages in ((1, 1), (1, 9), (3, 20), (8, 3), (8, 256)):
            with self.subTest(queues=queues, pages=pages):
                outcome = self.run_against(
                    self.server, f"queues={queues}", f"pages={pages}", "rounds=3")
                self.assertEqual(outcome.status, {"server": 0, "client": 0}, outcome.text())
                said = outcome.of("client")
                for number in range(2 * queues):
                    what = "READs" if number < queues else "WRITEs"
                    self.assertIn(
                        f"ESTABLISHED      queue {number} of {2 * queues}, for {what}", said)
                for page in range(pages):
                    self.assertIn(f"WRITE of page {page} by queue {queues + page % queues}", said)
                    self.assertIn(
                        f"READ of page {page} by queue {page % queues}, and it is the same", said)
                # REG_MR with SEND, LOCAL_INV, and each page out and in three times
                self.assertIn(
                    (
                        f"took the registration back, after 3 rounds and {2 + 6 * pages} calls of"
                        " ib_post_send"),
                    said)

    def test_loaded_and_unloaded_at_once(self):
        """Whatever it is about to do."""
        script = 'for i in $(seq 10); do insmod "$0" "$@" && rmmod kernel_client || exit 1; done'
        for address in ("10.77.0.1", "10.77.0.99"):
            self.guest("sh", "-c", script, str(self.module), f"server={address}", f"port={NOBODY}")


class Never(KernelClient):
    def tearDown(self):
        super().tearDown()
        if self.id().endswith("lies"):
            self.works()

    def test_nobody_listens(self):
        said, status = self.alone(f"server={self.where.address}", f"port={NOBODY}")
        self.assertIn("error: the server rejects: invalid service ID (-ECONNREFUSED)\n", said)
        self.assertEqual(status, 1)

    def test_wrong_address(self):
        for words, wanted in (
            {
                "server=10.77.0.99 timeout=1": "error: ",
                "server=fe80::1 timeout=1": "error: ",
                "server=127.0.0.1": "error: rdma_resolve_route (-ENODEV)",
                "server=nobody": "error: server=nobody port=18515 (-EINVAL)",
                "server=10.77.0.1 port=x": "error: server=10.77.0.1 port=x (-EINVAL)",
            }
        ).items():
            with self.subTest(words):
                said, status = self.alone(*words.split())
                self.assertIn(wanted, said)
                self.assertEqual(status, 1)

    def test_wrong_parameters(self):
        for words in (
            "timeout=0", "timeout=61", "rounds=0", "rounds=x", "queues=0", "queues=9", "pages=0",
            "pages=257"
        ):
            with self.subTest(words):
                said, status = self.alone(words)
                self.assertIn("could not insert module", said)
                self.assertEqual(status, 1)

    def test_server_lies(self):
        for lie, words in {
            "other-version": "the server speaks another protocol (-EPROTO)",
            "no-reason": "the server rejects: consumer defined (-ECONNREFUSED)",
            "short": "the server's description: of another kind (-EPROTO)",
            "wraps": "the server's description: the pages do not fit into its memory (-EPROTO)",
            "less": "the server's description: the pages do not fit into its memory (-EPROTO)",
            "silence": "the server does not describe its memory (-ETIMEDOUT)",
            "no-answer": "no answer to the connection request (-ETIMEDOUT)",
        }.items():
            with self.subTest(lie):
                self.assertFails(
                    self.run_against([*self.liar, "--lie", lie], "timeout=1", wait=20), words)

    def test_server_takes_one_queue_only(self):
        """Lesson 12's server stops listening once it has a client."""
        outcome = self.run_against([str(self.build / "examples/cm_server")])
        self.assertFails(outcome, "the server rejects: invalid service ID (-ECONNREFUSED)")
        self.assertIn("ESTABLISHED      queue 0 of 4, for READs", outcome.of("client"))

    def test_server_writes_where_it_must_not(self):
        """Our NIC refuses it, and only the queue pair's event handler hears of that. SoftRoCE of
        6.1 and 6.12 calls none; then the wait has an end."""
        outcome = self.run_against([*self.liar, "--lie", "wild-write"], "timeout=1", wait=20)
        self.assertFails(outcome, "")
        self.assertRegex(
            outcome.text(),
            (
                r"error: (queue 0: QP access error \(-EIO\)|the server does not describe its memory"
                r" \(-ETIMEDOUT\))"))

    def test_server_refuses(self):
        outcome = self.run_against([*self.server, "--largest", "16383"])
        self.assertFails(
            outcome, "the server rejects: it has no room for this client (-ECONNREFUSED)")
        self.assertIn("it needs 16384 bytes, and may have 1 to 16383", outcome.text())

    def test_client_lies(self):
        """page_server against a client that says nothing of queues, nor a length that it could
        have."""
        for lie, words in {
            "other-version": "it speaks another version",
            "no-length": "it needs 0 bytes, and may have 1 to",
            "endless": "it needs 18446744073709551615 bytes, and may have 1 to",
            "too-long": "queue 0 of 0 comes after 0",
        }.items():
            with self.subTest(lie):
                outcome = pair.run(
                    self.where,
                    [*self.server, "--cm-port", "0", "--wait", "20"],
                    pair.Client(
                        examples.LISTENING,
                        lambda line: [
                            *self.liar, "--lie", lie, "--host", self.where.address, "--cm-port",
                            line[1]]))
                self.assertEqual(outcome.status["server"], 1, outcome.text())
                self.assertIn(
                    "error: the client's request: " + words, "\n".join(outcome.of("server")))


del KernelClient  # has no tests of its own

if __name__ == "__main__":
    unittest.main(verbosity=2)
