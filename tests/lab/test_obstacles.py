# SPDX-License-Identifier: MIT
"""What the machine refuses: ./lab says in one line what is wrong and which command changes it, exit
status 1, and no traceback.

The refusals are real ones. Making them takes root, mounts and users, all of which the emulated
machine has.
"""
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import labtest
from lab import build, obstacles
from lab.errors import LabError
from lab.paths import ROOT

# A clone that another user can read. Without the mark of the emulated machine ./lab takes it for an
# ordinary one.
CLONE = f"""set -e
mkdir /tmp/clone && cd {shlex.quote(str(ROOT))} && cp -r lab tools lessons examples /tmp/clone/
rm /run/lab/machine
"""
BEGIN = """set -e
cd /tmp/clone
chown nobody .
export HOME=/tmp/home LAB_BUILD= LAB_CACHE=; unset LAB_BUILD LAB_CACHE LAB_PLACE LAB_MACHINE
mkdir -p /tmp/home && chown nobody /tmp/home
nobody() { setpriv --reuid=65534 --regid=65534 --clear-groups "$@"; }
"""
RUN = "nobody ./lab run 02_send_recv"
IN_MACHINE = "LAB_PLACE=machine nobody ./lab exec -- true"
# The name of an obstacle -> how to make it, the command to run, and all that the command prints.
REFUSALS = {
    "a build folder that root's ./lab has made": (
        "mkdir build",
        RUN,
        "lab: /tmp/clone/build belongs to root: sudo chown -R nobody /tmp/clone/build",
    ),
    "a clone that only root may change": (
        "chown root .",
        RUN,
        (
            "lab: /tmp/clone/build: permission denied; LAB_BUILD=FOLDER names another folder to"
            " build in")),
    "a build folder without the right to write": (
        "mkdir -m 500 build; chown nobody build",
        RUN,
        "lab: /tmp/clone/build/.lab-lock: permission denied: chmod -R u+rwX /tmp/clone/build",
    ),
    "a read-only build folder": (
        "mkdir build; mount -t tmpfs -o ro tmpfs build",
        RUN,
        (
            "lab: /tmp/clone/build/.lab-lock: its file system is read-only; LAB_BUILD=FOLDER names"
            " another folder to build in")),
    "a full disk": (
        "mkdir build; mount -t tmpfs -o nr_inodes=1,mode=777 tmpfs build",
        RUN,
        (
            "lab: no space left on the disk of /tmp/clone/build/.lab-lock: free some, or choose"
            " another disk; LAB_BUILD=FOLDER names another folder to build in")),
    "files that root's build has left": (
        (
            "mkdir -p build/examples; printf 'rule w\\n command = touch $out\\nbuild"
            " examples/send_recv: w\\n' >build/build.ninja; chown nobody build build/build.ninja"),
        RUN + " 2>&1 | tail -n 1 >&2; false",
        "lab: /tmp/clone/build/examples belongs to root: sudo chown -R nobody /tmp/clone/build"),
    "a cache that root's ./lab has made": (
        "mkdir -p /tmp/home/.cache/rdma-by-example",
        IN_MACHINE,
        (
            "lab: /tmp/home/.cache/rdma-by-example belongs to root: sudo chown -R nobody"
            " /tmp/home/.cache/rdma-by-example")),
    "a cache folder that cannot be made": (
        "export LAB_CACHE=/dev/null/cache",
        IN_MACHINE,
        (
            "lab: /dev/null/cache: Not a directory; LAB_CACHE=FOLDER names another folder for"
            " downloads")),
    "a /tmp that only root may write to": (
        "chmod 755 /tmp",
        IN_MACHINE,
        (
            "lab: /tmp/rdma-by-example-65534: permission denied; /tmp must be a folder that every"
            " user can write to: as root, chmod 1777 /tmp")),
    "a folder in /tmp that another user has taken": (
        "mkdir /tmp/rdma-by-example-65534",
        IN_MACHINE,
        (
            "lab: /tmp/rdma-by-example-65534 belongs to another user or is open to others: as root,"
            " rm -r /tmp/rdma-by-example-65534")),
    "no home folder": (
        "unset HOME",
        IN_MACHINE.replace("65534", "54321").replace(
            "nobody ", "setpriv --reuid=54321 --clear-groups "),
        (
            "lab: HOME is not set, and this user has no home folder: set HOME, or LAB_CACHE to a"
            " folder for downloads")),
}
UNDO = """
status=$?
cd /tmp; chmod 1777 .; umount -q clone/build 2>/dev/null
rm -rf clone/build home rdma-by-example-65534
exit $status
"""


class Refusals(unittest.TestCase):
    def test_each_is_one_line_with_what_to_do(self):
        made = labtest.run("sh", "-c", CLONE)
        self.assertEqual(made.returncode, 0, made.stderr.decode())
        for name, (done, command, says) in REFUSALS.items():
            with self.subTest(name):
                result = labtest.run("sh", "-c", f"{BEGIN}{done}\nset +e\n({command}){UNDO}")
                self.assertEqual(
                    (result.returncode, result.stderr.decode().strip()), (1, says), result.stdout)

    def test_shared_memory_takes_no_dev_shm(self):
        program = build.directory() / "examples/memory_area"
        result = labtest.run(
            "sh",
            "-c",
            (
                'umount /dev/shm && "$0"; status=$?; mount -t tmpfs -o mode=1777 tmpfs /dev/shm;'
                ' exit $status'),
            str(program))
        self.assertEqual(result.returncode, 0, result.stderr.decode())


class Download(unittest.TestCase):
    """A kernel that is downloaded by an apt-get of ours."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="lab download ")
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        (self.folder / "bin").mkdir()

    def lab(self, apt):
        program = self.folder / "bin/apt-get"
        program.write_text(f"#!/bin/sh\n{apt}\n")
        program.chmod(0o755)
        return labtest.lab(
            "exec",
            "--",
            "true",
            start_new_session=True,
            env={
                **labtest.named("download"),
                "LAB_CACHE": str(self.folder / "cache"),
                "PATH": f"{self.folder}/bin:{os.environ['PATH']}",
            })

    def partial(self):
        return list((self.folder / "cache/kernel").glob(".partial-*"))

    def test_what_a_killed_one_has_left_goes_with_the_next(self):
        killed = self.lab(f'echo come > "{self.folder}/come"; exec sleep 600')
        os.mkfifo(self.folder / "come")
        (self.folder / "come").read_text()  # returns when apt-get has begun
        os.killpg(killed.pid, signal.SIGKILL)
        labtest.finish(killed)
        self.assertEqual(len(self.partial()), 1)
        result = labtest.finish(self.lab("exit 100"))
        self.assertEqual(result.returncode, 1)
        said = result.stderr.decode().splitlines()
        self.assertRegex(said[-1], "^lab: .*kernel")
        self.assertEqual([line for line in said if not line.startswith("lab: ")], [])
        self.assertEqual(self.partial(), [])


class Messages(unittest.TestCase):
    def test_a_traceback_is_for_a_bug_and_says_so(self):
        result = subprocess.run(
            [
                sys.executable, "-c",
                "from lab.obstacles import guarded; raise SystemExit(guarded(lambda: {}['no']))"],
            env={**os.environ, "PYTHONPATH": str(ROOT / "tools")},
            capture_output=True,
            text=True)
        self.assertEqual(result.returncode, 1)
        self.assertIn("Traceback", result.stderr)
        self.assertEqual(
            result.stderr.splitlines()[-1],
            "lab: this is a bug in ./lab: please report it with the lines above")

    def test_a_disk_that_is_full_while_it_compiles(self):
        """The compiler's own message is long, and may not say it at all."""
        usage = shutil.disk_usage("/")
        with mock.patch.object(
            shutil, "disk_usage", return_value=usage._replace(free=4096)
        ), self.assertRaises(LabError) as caught:
            build._run(["false"], quiet=False)
        self.assertEqual(
            str(caught.exception),
            (
                f"no space left on the disk of {build.directory()}: free some, or choose another"
                " disk; LAB_BUILD=FOLDER names another folder to build in"))

    def test_other_errors_are_bugs(self):
        self.assertIsNone(
            obstacles.explain(FileNotFoundError(2, "No such file or directory", "/no/such")))


if __name__ == "__main__":
    labtest.need_machine()
    unittest.main(verbosity=2)
