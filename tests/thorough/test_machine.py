# SPDX-License-Identifier: MIT
"""The emulated machine's life: how it starts, is shared, dies, goes away, and what is left of
it."""
import os
import shutil
import signal
import subprocess
import time
import unittest
from pathlib import Path

import labtest
from lab.machine import daemon, kernel
from lab.paths import ROOT, cache_dir
from labtest import LAB, finish, lab, named, run, start, status, temporary_folder, wait_gone


def processes_with(text: str) -> "list[str]":
    """Command lines of this machine's processes that contain `text`, and environments that do."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if text.encode() in (path / "cmdline").read_bytes() + (path / "environ").read_bytes():
                found.append(
                    (path / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace"))
        except OSError:
            continue
    return found


class Life(unittest.TestCase):
    def machine(self, name):
        environment = named(name)
        self.addCleanup(lambda: finish(lab("down", env=environment)))
        return environment

    def test_its_time_is_the_hosts(self):
        """Each time limit in it depends on this. However late a line comes, the host's time between
        the two looks at the clock has a least and a greatest value."""
        environment = self.machine("time")
        self.assertEqual(run("true", env=environment).returncode, 0)
        began = time.monotonic()
        process = start(
            "sh", "-c", "cat /proc/uptime; read line; cat /proc/uptime", env=environment,
            stdin=subprocess.PIPE)
        first = float(process.stdout.readline().split()[0])
        first_known = time.monotonic()
        time.sleep(3)
        second_asked = time.monotonic()
        last = float(finish(process, b"\n").stdout.split()[0])
        ended = time.monotonic()
        self.assertGreater(last - first, 0.98 * (second_asked - first_known))
        self.assertLess(last - first, 1.02 * (ended - began))

    def test_crashes_are_errors_of_their_own(self):
        environment = self.machine("crash")
        first = start("sh", "-c", "echo ready; exec sleep 60", env=environment)
        self.assertEqual(first.stdout.readline(), b"ready\n")
        os.kill(status(environment)["qemu"], signal.SIGKILL)
        result = finish(first)
        self.assertEqual(result.returncode, 125)
        self.assertIn(b"lab: the emulated machine died: ", result.stderr)

        # The next command gets a new machine, whose kernel then panics.
        result = run("sh", "-c", "echo c > /proc/sysrq-trigger; sleep 60", env=environment)
        self.assertEqual(result.returncode, 125)
        self.assertRegex(
            result.stderr.decode(), r"the emulated machine died: .*(\n  console: .*)*panic")

    def test_goes_away_when_idle_and_takes_qemu_along(self):
        environment = {**self.machine("idle"), "LAB_IDLE": "1"}
        self.assertEqual(run("sleep", "2", env=environment).returncode, 0)  # in use is not idle
        pids = status(environment)
        self.assertTrue(wait_gone(pids["daemon"], 100))
        self.assertTrue(wait_gone(pids["qemu"], 60))

    def test_a_killed_daemon_takes_qemu_along_and_two_start_the_next(self):
        environment = self.machine("daemon")
        self.assertEqual(run("true", env=environment).returncode, 0)
        pids = status(environment)
        os.kill(pids["daemon"], signal.SIGKILL)
        self.assertTrue(wait_gone(pids["qemu"], 60))
        # What it has left behind is in nobody's way, be it two who start the next machine at once.
        both = [
            start("sh", "-c", "cat /proc/sys/kernel/random/boot_id; exec sleep 60", env=environment)
            for _ in range(2)]
        boots = {process.stdout.readline() for process in both}
        self.assertEqual(len(boots), 1)
        pids = status(environment)
        for process in both:
            process.send_signal(signal.SIGINT)
        for process in both:
            self.assertEqual(finish(process).returncode, -signal.SIGINT)
        # The last host to end has ended the daemon.
        self.assertTrue(wait_gone(pids["daemon"], 0) and wait_gone(pids["qemu"], 0))

    def test_interrupted_while_it_starts(self):
        for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
            environment = self.machine(f"interrupted-{number.value}")
            process = start("true", env=environment)
            for line in process.stderr:
                if b"starting the emulated machine" in line:
                    break
            process.send_signal(number)
            self.assertEqual(finish(process).returncode, code)
            self.assertIsNone(status(environment))
            self.assertEqual(processes_with(environment["LAB_MACHINE"]), [])


class Elsewhere(unittest.TestCase):
    """A clone in another place, by another user."""

    def clone(self):
        folder = temporary_folder(self) / "a clone, with comma"
        shutil.copytree(
            ROOT / "tools", folder / "tools", ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(ROOT / "lab", folder)
        return folder

    def cache(self, folder):
        """A cache with this kernel in it, for a user who cannot read the common one."""
        found = kernel.get()
        copy = folder / "cache/kernel/stable"
        source = cache_dir() / "kernel" / (os.environ.get("LAB_KERNEL") or "stable")
        shutil.copytree(source, copy, symlinks=True)
        stamp = copy / "complete"
        stamp.write_text(stamp.read_text().replace(str(source), str(copy)))
        self.assertTrue(found.image.stat().st_size)
        return folder / "cache"

    def test_an_unprivileged_user_in_a_path_with_a_space(self):
        folder = self.clone()
        environment = {
            "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
            "HOME": str(folder),
            "LAB_PLACE": "machine",
            "LAB_CACHE": str(self.cache(folder)),
            "LAB_IDLE": "20",
            "LAB_ACCEL": status_accelerator(),
        }
        other = []
        if os.getuid() == 0:
            other = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
            subprocess.run(["chown", "-R", "65534:65534", str(folder)], check=True)
            folder.parent.chmod(0o755)

        def command(*words):
            return subprocess.run(
                [*other, str(folder / "lab"), *words], env=environment, cwd=folder, timeout=600,
                stdin=subprocess.DEVNULL, capture_output=True, text=True)

        self.addCleanup(command, "down")
        result = command(
            "exec", "--", "sh", "-c", "id -u; pwd; cat lab | head -1; echo made > file; ibv_devices"
        )
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(result.stdout.splitlines()[:3], ["0", str(folder), "#!/bin/sh"])
        self.assertIn("rxe0", result.stdout)
        self.assertEqual((folder / "file").read_text(), "made\n")


def status_accelerator() -> str:
    """Does not have every new cache try KVM afresh."""
    return (
        "tcg" if daemon.kvm_verdict_file().exists() or not os.access("/dev/kvm", os.W_OK) else "kvm"
    )


class Places(unittest.TestCase):
    """A machine with RDMA of its own is what the emulated machine is from inside."""

    @classmethod
    def setUpClass(cls):
        cls.addClassCleanup(lambda: finish(lab("down")))

    def inside(self, script):
        """Runs a script in the machine; `lab` in it is ./lab, which finds itself in a machine with
        a device."""
        lines = f'lab() {{ "{LAB}" "$@"; }}; export LAB_CACHE=/tmp/cache; unset LAB_PLACE; {script}'
        result = finish(start("sh", "-c", lines))
        return result.returncode, result.stdout.decode(), result.stderr.decode()

    def test_a_device_that_is_there(self):
        code, out, err = self.inside("lab doctor; lab exec -- sh -c 'exit 5'")
        self.assertEqual(code, 5, err)
        self.assertRegex(out, r"(?m)^ok +place: using rxe0, an RDMA device of this machine$")
        self.assertRegex(out, r"(?m)^ok +port 1 GID 1: ::ffff:10\.77\.0\.1 \(RoCE v2\)$")

    def test_native_results_are_those_of_the_machine(self):
        code, out, err = self.inside(
            "lab exec -- nothing-here; echo $?; lab exec --timeout 0.3 -- sleep 20; echo $?; "
            "lab exec -- sh -c 'kill -9 $$'; echo $?")
        self.assertEqual(out.split(), ["127", "124", "137"])
        self.assertIn("lab: nothing-here: No such file or directory", err)

    def test_a_wrong_device(self):
        code, out, err = self.inside("LAB_DEVICE=mlx5_0 lab exec -- true")
        self.assertEqual((code, out), (1, ""))
        self.assertEqual(err, "lab: no device mlx5_0; there are rxe0\n")

    def test_soft_roce_made_and_removed(self):
        code, out, err = self.inside(
            """
            rdma link delete rxe0; ip link delete lab0
            LAB_DEVICE=mlx5_0 lab exec -- true; echo "wrong: $?"
            rdma link show
            LAB_PLACE=softroce lab exec -- ibv_devices | grep -c rxe0
            lab exec -- rdma link show
            lab down
            rdma link show; ip link show lab0
            # somebody's own
            ip link add lab0 type dummy; ip address add 10.77.0.1/24 dev lab0; ip link set lab0 up
            lab exec -- true; echo "made again: $?"
            lab down
            ip -brief link show lab0 | cut -d ' ' -f 1
            rdma link add rxe0 type rxe netdev lab0"""
        )
        self.assertEqual(code, 0, err)
        lines = out.splitlines()
        self.assertEqual(lines[:2], ["wrong: 1", "1"], err)
        self.assertIn("link rxe0/1 state ACTIVE", lines[2])
        self.assertEqual(
            lines[3:6],
            ["no emulated machine was running", "removed the SoftRoCE device", "made again: 0"])
        self.assertEqual(
            lines[6:], ["no emulated machine was running", "removed the SoftRoCE device", "lab0"])

    def test_no_place_at_all(self):
        code, out, err = self.inside(
            "rdma link delete rxe0; PATH=/nowhere:/bin; mount -t tmpfs none /lib/modules; "
            "lab exec -- true; code=$?; umount /lib/modules; "
            "rdma link add rxe0 type rxe netdev lab0; exit $code")
        self.assertEqual(code, 1)
        self.assertRegex(
            err, r"^lab: no RDMA device is available\. device: .+; softroce: .+; machine: .+\n$")


if __name__ == "__main__":
    labtest.need_machine()
    unittest.main(verbosity=2)
