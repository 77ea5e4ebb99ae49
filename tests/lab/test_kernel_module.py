# SPDX-License-Identifier: MIT
"""How ./lab builds a lesson's kernel module, as far as that takes no compiler and no machine."""
import tempfile
import unittest
from pathlib import Path
from unittest import mock

from lab import examples
from lab.commands import trace
from lab.errors import LabError, UsageError
from lab.machine import guest_module, headers, kbuild, kernel

LESSON = examples.find("kernel_client")


class Sources(unittest.TestCase):
    def test_a_change_and_an_exercise_replace_one_file(self):
        whole = kbuild.sources(LESSON, "kernel_client")
        self.assertLessEqual({"Kbuild", "kernel_client.h", "kernel_main.c"}, whole.keys())
        programs = [f"kernel_client.{name}" for name in examples.breaks(LESSON)]
        for name, lesson in examples.exercises().items():
            programs += [name + ".solution"] if lesson == LESSON else []
        self.assertGreaterEqual(len(programs), 5)
        for program in programs:
            found = kbuild.sources(LESSON, program)
            self.assertEqual(found.keys(), whole.keys())
            self.assertEqual(sum(found[name] != whole[name] for name in whole), 1, program)
            self.assertEqual(examples.kernel_lesson(program), LESSON)
            self.assertEqual(examples.targets(program), ["examples/page_server"])

    def test_the_readers_copy_replaces_the_same_file(self):
        whole = kbuild.sources(LESSON, "kernel_client")
        with tempfile.TemporaryDirectory() as folder, mock.patch.object(
            examples, "WORK", Path(folder)
        ), mock.patch.object(kbuild, "WORK", Path(folder)):
            for name, lesson in examples.exercises().items():
                if lesson == LESSON:
                    made = examples.start_exercise(name)
                    self.assertEqual(made, Path(folder) / f"{name}.c")
                    made.write_text(made.read_text() + "// the reader's\n")
                    self.assertIsNone(examples.start_exercise(name))
                    found = kbuild.sources(LESSON, name)
                    changed = examples.exercise_source(name).name
                    self.assertEqual(found.pop(changed), made.read_text())
                    self.assertLessEqual(found.items(), whole.items())

    def test_other_programs_are_no_modules(self):
        self.assertIsNone(examples.kernel_lesson("cm_server"))
        self.assertEqual(examples.sides("cm_server"), ("cm_server", "cm_client"))

    def test_not_traced(self):
        with self.assertRaisesRegex(UsageError, "no calls of libibverbs"):
            trace.of_example("kernel", "kernel_client")


class Headers(unittest.TestCase):
    def test_gone_from_the_archive(self):
        """The message says what to remove."""
        with tempfile.TemporaryDirectory() as folder:
            old = kernel.Kernel(
                "1.0-none", Path(folder) / "vmlinuz", Path(folder) / "lib/modules/1.0-none")
            with mock.patch.object(
                kernel, "output_of", return_value="linux-headers-9.9-some\n"
            ), mock.patch("subprocess.run"), self.assertRaisesRegex(
                LabError, f"newer kernel by now. Then remove {folder}"
            ):
                headers.get(old)
            self.assertEqual([path.name for path in Path(folder).iterdir()], ["headers.lock"])

    def test_no_space_in_the_path(self):
        with tempfile.TemporaryDirectory(prefix="lab test ") as folder, mock.patch.object(
            kernel, "get"
        ), mock.patch.object(headers, "get", return_value=Path(folder)), self.assertRaisesRegex(
            LabError, "space or a colon"
        ):
            kbuild.module(LESSON, "kernel_client", Path(folder))


class Log(unittest.TestCase):
    def test_what_counts_as_a_complaint(self):
        for line in (
            "BUG: kernel NULL pointer dereference, address: 0000000000000008",
            "Oops: 0000 [#1] PREEMPT SMP NOPTI",
            (
                "WARNING: CPU: 0 PID: 48 at drivers/infiniband/sw/rxe/rxe_pool.c:255"
                " __rxe_cleanup+0x118/0x160 [rdma_rxe]"),
            "INFO: task rmmod:123 blocked for more than 120 seconds.",
            "rcu: INFO: rcu_preempt self-detected stall on CPU",
            "divide error: 0000 [#1] PREEMPT SMP NOPTI",
            "------------[ cut here ]------------",
            "UBSAN: array-index-out-of-bounds",
            "WARNING: possible circular locking dependency detected",
        ):
            self.assertTrue(guest_module.COMPLAINT.search(line), line)
        for line in (
            "lab0 speed is unknown, defaulting to 1000",
            "infiniband rxe0: added lab0",
            "kernel_client: done",
        ):
            self.assertFalse(guest_module.COMPLAINT.search(line), line)

    def test_not_outside_of_the_machine(self):
        with mock.patch.object(guest_module, "HOST", "/no/such/folder"), self.assertRaisesRegex(
            SystemExit, "emulated machine only"
        ):
            guest_module.main(["kernel_client.ko"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
