# SPDX-License-Identifier: MIT
"""Programs on memory of the NIC's own, on InfiniBand, and with two devices: doubles behind the
interface of verbs."""
import os
import unittest

import needs_device
from lab import examples, normalise, variants

# By relative paths, since LD_PRELOAD takes a space for the end of one.
os.chdir(needs_device.BUILD / "tests/doubles")
MEMORY, INFINIBAND, TWO_DEVICES, OTHER_NIC = (
    "./libfake_device_memory.so", "./libfake_infiniband.so", "./libtwo_devices.so",
    "./libother_nic.so")
STAND_IN = "has no memory of its own: 65536 bytes of host memory stand in for it"
ON_CHIP = "has memory of its own: 65536 bytes of it are ours"
QUICK = ["--rounds", "8", "--no-deaths"]


def run(*arguments, doubles=(MEMORY,), program="device_memory", kind="pair", differences=""):
    under = [
        "env", "FAKE_CALLS=1", f"OTHER_NIC={differences}", f"LD_PRELOAD={':'.join(doubles)}",
    ] if doubles else []
    return examples.run(
        needs_device.PLACE, needs_device.BUILD, program, kind, arguments, under=under)


@unittest.skipIf(
    "sanitize" in needs_device.BUILD.name, "the sanitizers' library has to be the first one loaded")
@unittest.skipUnless(needs_device.PLACE.device.startswith("rxe"), "the doubles stand on SoftRoCE")
class Doubles(unittest.TestCase):
    def assertAsInTheLesson(self, outcome):
        self.assertFalse(outcome.failed, outcome.text())
        expected = variants.expected(
            examples.expected_file("30_device_memory"), needs_device.PLACE
        ).read_text()
        self.assertIn(STAND_IN, expected)
        roles = {
            role: [line for line in outcome.of(role) if not line.startswith("fake: ")]
            for role in outcome.status}
        found = normalise.differences(
            expected.replace(STAND_IN, ON_CHIP), roles, needs_device.PLACE.device)
        self.assertEqual(found, [], "\n".join(found))

    def test_on_the_chip_all_is_as_in_the_lesson(self):
        outcome = run("--require-device-memory")
        self.assertAsInTheLesson(outcome)
        calls = [line for line in outcome.of("server") if line.startswith("fake: ")]
        self.assertEqual(
            calls,
            [
                "fake: ibv_alloc_dm 65536 bytes, aligned to 2^3",
                "fake: ibv_reg_dm_mr 65536 bytes at 0",
                "fake: ibv_dereg_mr",
                "fake: ibv_free_dm with 0 regions",
            ])

    def test_all_of_the_chip(self):
        """Not only the 64 KiB that the program takes by itself."""
        outcome = run(*QUICK, "--size", "131072", "--require-device-memory")
        self.assertFalse(outcome.failed, outcome.text())
        self.assertIn("fake: ibv_reg_dm_mr 131072 bytes at 0", outcome.of("server"))

    def test_on_infiniband_by_lid(self):
        outcome = run(*QUICK, doubles=(MEMORY, INFINIBAND))
        self.assertFalse(outcome.failed, outcome.text())
        self.assertIn("the sum of 8 counters is 32", outcome.of("server"))
        # Each side of five connections, and the queue pair by which the server frees locks.
        for role, count in (("server", 6), ("client", 5)):
            calls = [line for line in outcome.of(role) if "LID" in line]
            self.assertEqual(calls, ["fake: connected to LID 7"] * count)

    def test_infiniband_takes_no_grh(self):
        """The double would not let it pass: RoCE's address with a GRH, and the other way round."""
        outcome = run(doubles=(INFINIBAND,), program="send_recv")
        self.assertFalse(outcome.failed, outcome.text())
        self.assertIn("fake: connected to LID 7", outcome.of("client"))

    def test_datagrams_on_infiniband_are_told_apart_by_lid(self):
        """Without a GRH the 40 bytes hold anything: who they are from is in the completion."""
        outcome = run(doubles=(INFINIBAND,), program="datagrams")
        self.assertFalse(outcome.failed, outcome.text())
        self.assertIn("12 different messages from 3 peers", outcome.of("server"))
        self.assertEqual(
            sum("69 bytes, no GRH, from LID 7" in line for line in outcome.of("server")), 3)

    def test_the_device_with_the_better_gid(self):
        """The first device in the list has only a link-local GID; the second has an IPv4 one, as in
        the lesson."""
        outcome = run(doubles=(TWO_DEVICES,), program="send_recv")
        self.assertFalse(outcome.failed, outcome.text())
        me = next(line for line in outcome.of("client") if line.startswith("me "))
        self.assertIn(":00000000000000000000ffff", me)

    def test_a_completion_queue_may_be_larger_than_it_says(self):
        """Nothing happens then, and the programs say so and continue. They wait for the event: 10 s
        and 20 s, so that a busy machine does not reach the limit elsewhere."""
        outcome = run(
            "--timeout", "20", doubles=(OTHER_NIC,), program="completions",
            differences="large_cq")
        self.assertFalse(outcome.failed, outcome.text())
        self.assertIn(
            "overrun:        asked for 4, room for 4, 5 SENDs; no event, so it has more room",
            outcome.of("server"))
        self.assertIn(
            "overrun:        5 completions polled, the queue pair is still in RTS",
            outcome.of("server"))
        outcome = run(
            "cq-overrun", "--timeout", "20", doubles=(OTHER_NIC,), program="when_it_breaks",
            differences="large_cq")
        self.assertFalse(outcome.failed, outcome.text())
        self.assertIn("no event, so it has more room; RTS", outcome.text())

    def test_completions_that_come_late_are_polled_in_place(self):
        outcome = run(
            "--measure", "1", doubles=(OTHER_NIC,), program="completion_costs", differences="late")
        self.assertFalse(outcome.failed, outcome.text())
        self.assertIn("in place:       message 4, ", outcome.text())

    def test_another_event_comes_before_the_awaited_one(self):
        outcome = run(
            "cq-overrun", doubles=(OTHER_NIC,), program="when_it_breaks",
            differences="early_event")
        self.assertFalse(outcome.failed, outcome.text())
        self.assertIn("event: CQ error; RTS", outcome.text())
        self.assertNotIn("GID", outcome.text())

    def test_hello_device_names_the_network(self):
        for difference, network, address in (
            ("", "Ethernet (RoCE)", "its GID; examples use GID index 1"),
            ("lid_1", "Ethernet (RoCE)", "its GID; examples use GID index 1"),
            ("iwarp", "Ethernet (iWARP)", "its IP address, with rdma_cm"),
            ("no_link_layer", "another network", "its GID"),
        ):
            with self.subTest(difference):
                outcome = run(
                    doubles=(OTHER_NIC,), program="hello_device", kind="device",
                    differences=difference)
                self.assertFalse(outcome.failed, outcome.text())
                self.assertIn(f"port 1: active, {network}, ", outcome.text())
                self.assertIn(f"    -> peers reach this port by {address}\n", outcome.text())
                self.assertNotIn("InfiniBand", outcome.text())

    def test_a_port_that_cannot_be_used(self):
        for difference, says, anchor in (
            ("no_device", "this machine has no RDMA device", "#no-device"),
            ("port_down", "none of these has an active port", "#port-down"),
            ("no_gid", "has no usable GID", "#no-gid"),
        ):
            with self.subTest(difference):
                outcome = run(
                    doubles=(OTHER_NIC,), program="send_recv", kind="device",
                    differences=difference)
                self.assertEqual(outcome.status, {"": 1}, outcome.text())
                self.assertIn(says, outcome.text())
                self.assertIn(anchor, outcome.text())

    def test_both_sides_need_atomics(self):
        """Each side alone: it ends before it waits for the other one."""
        for program in "atomics", "device_memory":
            for arguments in (), ("--host", "127.0.0.1"):
                with self.subTest(program, arguments=arguments):
                    outcome = run(
                        *arguments, doubles=(OTHER_NIC,), program=program, kind="device",
                        differences="no_atomics")
                    self.assertEqual(outcome.status[""], 77)
                    self.assertEqual(
                        outcome.lines[-1],
                        ("", "skipped: this device has no atomics (atomic_cap is IBV_ATOMIC_NONE)"))

    def test_a_lid_does_not_make_infiniband(self):
        outcome = run(doubles=(OTHER_NIC,), program="send_recv", differences="lid_1")
        self.assertFalse(outcome.failed, outcome.text())

    def test_what_is_refused(self):
        for doubles in ((MEMORY,), ()):
            outcome = run(doubles=doubles, program="../tests/doubles/chip_edges", kind="device")
            self.assertFalse(outcome.failed, outcome.text())
            self.assertNotIn("NOT", outcome.text())
            self.assertIn("ok: not a word", outcome.text())
            self.assertEqual(
                "ok: atomics need words that lie as such" in outcome.text(), bool(doubles))


class Options(unittest.TestCase):
    def server(self, *arguments, doubles=()):
        """Alone: it is to end before it listens."""
        return run(*arguments, doubles=doubles, kind="device")

    @unittest.skipUnless(needs_device.PLACE.device.startswith("rxe"), "others may have it")
    def test_required(self):
        outcome = self.server("--require-device-memory")
        self.assertEqual(outcome.status[""], 77)
        self.assertEqual(len(outcome.lines), 1, outcome.text())
        self.assertIn("has no memory of its own (max_dm_size is 0)", outcome.text())

    @unittest.skipIf(
        "sanitize" in needs_device.BUILD.name,
        "the sanitizers' library has to be the first one loaded")
    def test_more_than_there_is(self):
        outcome = self.server("--size", "131080", doubles=(MEMORY,))
        self.assertEqual(outcome.status[""], 1)
        self.assertIn("--size 131080: rxe0 has 131072 bytes", outcome.text())

    def test_fewer_locks_than_counters(self):
        outcome = self.server("--size", "136")
        self.assertEqual(outcome.status[""], 1)
        self.assertIn("--counters: there are 1 locks for them", outcome.text())

    def test_many_processes_and_a_small_table(self):
        outcome = run(
            "--size", "192", "--counters", "2", "--processes", "8", "--rounds", "10", "--no-deaths",
            doubles=())
        self.assertFalse(outcome.failed, outcome.text())
        self.assertIn("8 locks, 0 of them taken", outcome.of("server"))
        self.assertIn("the sum of 2 counters is 80", outcome.of("server"))


if __name__ == "__main__":
    needs_device.main()
