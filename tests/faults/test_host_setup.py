# SPDX-License-Identifier: MIT
"""What a host's set-up does to a right program, as troubleshooting.md says."""
import subprocess
import unittest

import needs_device
from lab import examples

PLACE = needs_device.PLACE
PROGRAM = needs_device.program("send_recv")
# mmap(2) of a file that is longer than its file system, and a write to each page.
EACH_PAGE = """
import mmap, os
file = os.open("/dev/shm/long", os.O_RDWR | os.O_CREAT)
os.ftruncate(file, 1 << 20)
memory = mmap.mmap(file, 1 << 20)
print("mapped", flush=True)
for at in range(0, 1 << 20, mmap.PAGESIZE):
    memory[at] = 1
"""


def on_host(script, *arguments):
    return subprocess.run(
        PLACE.wrap(["sh", "-c", script, *arguments]), stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=600)


@unittest.skipIf(PLACE.kind != "machine", "changes the host's network and mounts")
class HostSetup(unittest.TestCase):
    def test_two_softroce_devices_of_one_host(self):
        self.addCleanup(on_host, "rdma link delete rxe1; ip link delete second")
        made = on_host(
            "ip link add second type dummy && ip address add 10.78.0.1/24 dev second && "
            "ip link set second up && rdma link add rxe1 type rxe netdev second")
        self.assertEqual((made.returncode, made.stdout), (0, ""))
        for server, client in (("rxe0", "rxe1"), ("rxe1", "rxe0")):
            with self.subTest(server=server, client=client):
                outcome = examples.run_pair(
                    PLACE, [PROGRAM, "--device", server, "--timeout", "5"],
                    [PROGRAM, "--device", client, "--timeout", "5"])
                self.assertEqual(outcome.status, {"server": 1, "client": 1}, outcome.text())
                self.assertIn("status 12, transport retry counter exceeded", outcome.text())

    def test_softroce_takes_no_vlan(self):
        self.addCleanup(on_host, "ip link delete tagged")
        before = len(on_host("dmesg").stdout)
        made = on_host(
            "modprobe 8021q && ip link add link lab0 name tagged type vlan id 7 && "
            "ip link set tagged up && rdma link add rxe7 type rxe netdev tagged")
        self.assertEqual(made.returncode, 1, made.stdout)
        self.assertIn("error: Operation not permitted", made.stdout)
        self.assertIn(
            "rxe creation allowed on top of a real device only", on_host("dmesg").stdout[before:])

    def test_a_small_dev_shm_fails_at_the_first_use_of_a_page(self):
        ended = on_host(
            'mount -t tmpfs -o size=64k none /dev/shm && /usr/bin/python3 -c "$0"; status=$?; '
            "umount /dev/shm; exit $status", EACH_PAGE)
        self.assertEqual(ended.returncode, 128 + 7, ended.stdout)  # SIGBUS
        self.assertTrue(ended.stdout.startswith("mapped\n"), ended.stdout)


if __name__ == "__main__":
    needs_device.main()
