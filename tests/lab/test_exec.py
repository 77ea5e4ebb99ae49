# SPDX-License-Identifier: MIT
"""./lab exec in the emulated machine is faithful: what goes in, what comes out, how it ends."""
import fcntl
import os
import pty
import random
import signal
import struct
import subprocess
import tempfile
import termios
import time
import unittest
import uuid
from pathlib import Path

import labtest
from lab.machine import machine
from lab.paths import ROOT, cache_dir
from labtest import LAB, ENVIRONMENT, finish, run, start

# Says that it is ready, then what reaches it.
# A handler and pause() would not do: a signal right before pause() does not end it.
LISTENER = """
import os, signal
signals = {signal.SIGINT, signal.SIGTERM, signal.SIGUSR1}
signal.pthread_sigmask(signal.SIG_BLOCK, signals)
os.write(1, b"ready\\n")
os.write(1, b"%d\\n" % signal.sigwait(signals))
os._exit(7)
"""


def tearDownModule():
    finish(labtest.lab("down"))


class Exec(unittest.TestCase):
    def test_exit_status(self):
        for status in (0, 3, 255):
            self.assertEqual(run("sh", "-c", f"exit {status}").returncode, status)

    def test_death_by_signal(self):
        for number in (signal.SIGTERM, signal.SIGSEGV, signal.SIGKILL):
            result = run("sh", "-c", f"kill -{number.value} $$")
            self.assertEqual((result.returncode, result.stderr), (-number, b""))

    def test_streams_are_separate(self):
        result = run("sh", "-c", "echo out; echo err >&2")
        self.assertEqual((result.stdout, result.stderr), (b"out\n", b"err\n"))

    def test_one_stream_for_both_keeps_the_order(self):
        script = "for i in $(seq 200); do echo out $i; echo err $i >&2; done"
        result = subprocess.run(
            [LAB, "exec", "--", "sh", "-c", script], env=ENVIRONMENT, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True)
        self.assertEqual(
            result.stdout.splitlines(),
            [f"{name} {i}" for i in range(1, 201) for name in ("out", "err")])

    def test_a_command_that_cannot_start(self):
        for name, status in (("no-such-command", 127), ("/etc/passwd", 126)):
            result = run(name)
            self.assertEqual(result.returncode, status)
            self.assertRegex(result.stderr.decode(), rf"^lab: {name}: .+\n$")

    def test_arguments_and_environment(self):
        words = ["a b", "", "ü", "*", "$HOME", os.fsdecode(b"\xff\xfe")]
        result = run(
            "sh", "-c", 'printf "%s|" "$@" "$MARK"', "sh", *words,
            env={**ENVIRONMENT, "MARK": "x y"})
        self.assertEqual(
            result.stdout, b"".join(os.fsencode(word) + b"|" for word in [*words, "x y"]))

    def test_five_megabytes_both_ways(self):
        data = random.Random(1).randbytes(5 << 20)
        result = run("cat", input=data)
        self.assertEqual(result.returncode, 0)
        self.assertTrue(result.stdout == data, "what came back differs")

    def test_input_from_a_file(self):
        with tempfile.TemporaryFile() as file:
            data = random.Random(2).randbytes(3 << 20)
            file.write(data)
            file.seek(0)
            result = finish(start("md5sum", stdin=file))
            here = subprocess.run(["md5sum"], input=data, capture_output=True)
        self.assertEqual(result.stdout, here.stdout)

    def test_end_of_input(self):
        self.assertEqual(run("wc", "-c", input=b"12345").stdout.strip(), b"5")

    def test_input_that_nobody_reads(self):
        self.assertEqual(run("true", input=bytes(4 << 20)).returncode, 0)

    def test_closed_standard_files(self):
        # Without what may stand before the system's own python3 in the path: pyenv's script does
        # not survive this.
        environment = {**ENVIRONMENT, "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}
        for closed in ("0<&-", "1>&-", "2>&-", "0<&- 1>&- 2>&-"):
            process = subprocess.run(
                ["sh", "-c", f'"$0" exec -- sh -c "cat; echo out; echo err >&2" {closed}', LAB],
                env=environment, stdin=subprocess.DEVNULL, capture_output=True, timeout=600)
            self.assertEqual(
                (process.returncode, b"err\n" in process.stderr), (0, "2>" not in closed), closed)
            self.assertNotIn(b"Traceback", process.stderr)

    def test_output_pipe_that_closes(self):
        process = start("yes")
        process.stdout.read(1)
        process.stdout.close()
        process.stdout = None
        self.assertEqual(finish(process).returncode, -signal.SIGPIPE)

    def test_time_limit(self):
        began = time.monotonic()
        result = finish(
            labtest.lab("exec", "--timeout", "3", "--", "sh", "-c", "echo before; exec sleep 60"))
        self.assertEqual((result.returncode, result.stdout), (124, b"before\n"))
        self.assertEqual(result.stderr, b"lab: stopped after the time limit of 3 s\n")
        self.assertLess(time.monotonic() - began, 60)  # which the command would have taken

    def test_time_limit_of_a_stubborn_command_that_nobody_reads(self):
        process = labtest.lab(
            "exec", "--timeout", "0.5", "--", "sh", "-c", "trap '' TERM; exec yes")
        self.assertEqual(process.wait(timeout=600), 124)
        finish(process)

    def test_signals_reach_the_command(self):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
            # Another client is there, so that an interrupt ends the command only and not the
            # machine.
            other = start("cat", stdin=subprocess.PIPE)
            process = start("/usr/bin/python3", "-c", LISTENER)
            self.assertEqual(process.stdout.readline(), b"ready\n")
            process.send_signal(number)
            result = finish(process)
            self.assertEqual((result.returncode, result.stdout), (7, b"%d\n" % number))
            self.assertEqual(finish(other, b"still there").stdout, b"still there")

    def test_a_client_that_is_killed_takes_its_command_along(self):
        mark = str(uuid.uuid4())
        process = start("sh", "-c", f"echo ready; sleep 60 & : {mark}; sleep 60; :")
        self.assertEqual(process.stdout.readline(), b"ready\n")
        self.assertIn(mark.encode(), run("ps", "-eo", "args").stdout)
        process.kill()
        finish(process)
        listing = run(
            "sh", "-c", f"ps -eo args | grep -v grep | grep -e {mark} -e '^sleep 60'; true"
        ).stdout
        self.assertEqual(listing, b"")

    def test_side_by_side(self):
        first, second = start("cat", stdin=subprocess.PIPE), start("cat", stdin=subprocess.PIPE)
        # Each command waits for its input, so both run at the same time.
        for process, text in ((second, b"two"), (first, b"one")):
            self.assertEqual(finish(process, text).stdout, text)

    def test_a_slow_reader_holds_up_its_own_command_and_nobody_else(self):
        mark = f"/tmp/{uuid.uuid4()}"
        slow = start("sh", "-c", f"echo ready; head -c 20000000 /dev/zero; touch {mark}")
        self.assertEqual(slow.stdout.readline(), b"ready\n")
        self.assertEqual(run("seq", "300000").stdout.count(b"\n"), 300000)
        # The command waits, and nobody keeps 20 MB for it.
        self.assertEqual(run("test", "-e", mark).returncode, 1)
        self.assertEqual(len(finish(slow).stdout), 20000000)
        self.assertEqual(run("test", "-e", mark).returncode, 0)


class Packages(unittest.TestCase):
    def test_installing_stops_no_machine_in_use(self):
        used = start("sh", "-c", "echo here; exec cat", stdin=subprocess.PIPE)
        self.assertEqual(used.stdout.readline(), b"here\n")
        before = machine.status()
        machine.files_changed()
        self.assertEqual(machine.status()["qemu"], before["qemu"])
        self.assertEqual(finish(used, b"still there").stdout, b"still there")
        machine.files_changed()
        self.assertIsNone(machine.status())


class Terminal(unittest.TestCase):
    def test_a_prompt_with_size_and_status(self):
        pid, terminal = pty.fork()
        if pid == 0:
            os.execve(
                LAB, [LAB, "shell"],
                {**ENVIRONMENT, "PS1": "", "HOME": "/nonexistent", "LAB_CACHE": str(cache_dir())})
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("4H", 33, 77, 0, 0))

        def read_until(text):
            seen = b""
            while text not in seen:
                seen += os.read(terminal, 4096)

        os.write(terminal, b"tty -s && echo rea''dy\n")
        read_until(b"ready")
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("4H", 44, 88, 0, 0))
        # The new size arrives by a signal: look until it is there.
        os.write(
            terminal, b"until [ \"$(stty size)\" = '44 88' ]; do :; done; echo re''sized; exit 9\n")
        read_until(b"resized")
        try:
            while os.read(terminal, 4096):
                pass
        except OSError:
            pass
        os.close(terminal)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), 9)


class Files(unittest.TestCase):
    """What is new on the host is new in a machine that runs already."""

    def check(self, folder):
        file, program = folder / "new file", folder / "program"
        program.write_text("#!/bin/sh\necho one\n")
        program.chmod(0o755)
        self.assertNotEqual(run("cat", str(file), cwd=folder).returncode, 0)
        self.assertEqual(run(str(program), cwd=folder).stdout, b"one\n")
        file.write_text("there now")
        self.assertEqual(run("cat", str(file), cwd=folder).stdout, b"there now")
        program.write_text("#!/bin/sh\necho rewritten\n")
        self.assertEqual(run(str(program), cwd=folder).stdout, b"rewritten\n")
        other = folder / "other"
        other.write_text("#!/bin/sh\necho replaced\n")
        other.chmod(0o755)
        other.rename(program)
        self.assertEqual(run(str(program), cwd=folder).stdout, b"replaced\n")
        program.unlink()
        self.assertEqual(run(str(program), cwd=folder).returncode, 127)

    def folder(self, parent):
        folder = tempfile.TemporaryDirectory(dir=parent, prefix="lab test ")
        self.addCleanup(folder.cleanup)
        return Path(folder.name)

    def test_in_the_project(self):
        folder = self.folder(ROOT)
        self.check(folder)
        self.assertEqual(run("sh", "-c", "echo out > made", cwd=folder).returncode, 0)
        self.assertEqual((folder / "made").read_text(), "out\n")

    def test_elsewhere(self):
        if not os.access(Path.home(), os.W_OK):
            self.skipTest("no home folder that may be written to")
        self.check(self.folder(Path.home()))

    def test_in_tmp(self):
        self.check(self.folder("/tmp"))

    def test_the_host_is_read_only_elsewhere(self):
        # This writes into the machine's memory, and not into the host's file.
        self.assertEqual(run("sh", "-c", "echo broken > /etc/lab-test").returncode, 0)
        self.assertFalse(Path("/etc/lab-test").exists())

    def test_tmp_is_the_machines_own(self):
        name = f"/tmp/{uuid.uuid4()}"
        self.assertEqual(run("touch", name).returncode, 0)
        self.assertFalse(Path(name).exists())


if __name__ == "__main__":
    labtest.need_machine()
    unittest.main(verbosity=2)
