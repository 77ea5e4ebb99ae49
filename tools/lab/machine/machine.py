# SPDX-License-Identifier: MIT
"""The client's side of the emulated machines: starts them where they are not running, runs commands
in them.

There is the machine that is alone, whose name is "", the same with another device, "siw", and there
are two hosts, "a" and "b", joined by an Ethernet. Hosts begin and end together.

./lab exec is such a client. It passes on its own input, both output streams, signals and window
size, and ends as the command ended: with its exit status, or by the same signal. A machine that
dies is not something that a command can do: that is exit status 125 and a message.
"""
from __future__ import annotations

import fcntl
import marshal
import os
import resource
import select
import selectors
import signal
import socket
import struct
import subprocess
import sys
import termios
import time
import tty
from contextlib import contextmanager
from typing import Callable, Iterator, Optional, Sequence

from lab import process
from lab.errors import LabError
from lab.machine.frames import (
    CHUNK, CRASH, CREDIT, EXIT, HELLO, NUMBER, REFUSED, RESIZE, SIGNAL, START, STATUS, STDERR,
    STDIN, STDOUT, STOP, WINDOW, Splitter, pack)
from lab.paths import ROOT, runtime_dir

# The machines of one daemon.
GROUPS = {"": ("",), "siw": ("siw",), "hosts": ("a", "b")}
HOSTS = GROUPS["hosts"]
NAMES = {"": "the emulated machine", "siw": "the emulated machine with soft iWARP"}
CRASHED = 125
TIMED_OUT = 124
GRACE = 5  # seconds between SIGTERM and SIGKILL
OUTPUT_LIMIT = 1  # seconds that an interrupted command's last output waits for its reader
FORWARDED = [
    signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2]
# Where the machine need not look for what has just changed: the project is shared in uncached, the
# rest is installed.
SETTLED = tuple(f"{path}/" for path in (ROOT, "/usr", "/bin", "/sbin", "/lib", sys.prefix))
HOST_ONLY = {
    "DISPLAY", "SSH_AUTH_SOCK", "XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS", "LD_PRELOAD"}


# ---- getting at the machine


def machine_name(host: str) -> str:
    """The name as messages have it."""
    return NAMES.get(host, f"host {host}")


def group_of(host: str) -> str:
    return "hosts" if host in HOSTS else host


@contextmanager
def _lock(group: str) -> Iterator[None]:
    with open(runtime_dir(group) / "lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _connect(host: str) -> Optional[socket.socket]:
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.connect(str(runtime_dir(group_of(host)) / f"socket{host}"))
        if connection.recv(len(pack(0, HELLO)), socket.MSG_WAITALL):
            return connection
    except (FileNotFoundError, ConnectionError):
        pass
    connection.close()
    return None


def _start_daemon(group: str) -> None:
    """Returns when the machines are ready. @raises LabError; interrupted, it takes the daemon
    along"""
    # This import takes longer than all the rest of a command in a machine that runs.
    from lab.machine import kernel as kernels

    # This happens here and not in the daemon, so that the user sees a download and can stop it.
    kernels.initramfs_of(group)
    what = NAMES.get(group, "two hosts, a and b")
    print(f"lab: starting {what}", file=sys.stderr, flush=True)
    report, report_write = os.pipe()
    log_file = runtime_dir(group) / "daemon.log"
    with open(log_file, "ab") as log, os.fdopen(report, "rb") as answer:
        # An interrupt after the fork and before `try` would leave the daemon behind. (It unblocks
        # them for itself.)
        signal.pthread_sigmask(signal.SIG_BLOCK, process.ENDING)
        daemon = subprocess.Popen(
            [sys.executable, "-m", "lab.machine.daemon", group, str(report_write)], cwd="/",
            env={**os.environ, "PYTHONPATH": str(ROOT / "tools")}, stdin=subprocess.DEVNULL,
            stdout=log, stderr=log, pass_fds=[report_write], start_new_session=True)
        os.close(report_write)
        try:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, process.ENDING)
            said = answer.read().decode()
        except BaseException:
            daemon.terminate()
            daemon.wait()
            raise
    if said != "ready":
        daemon.wait()
        raise LabError(said or f"the daemon of {what} died; see {log_file}")
    daemon.returncode = 0  # it lives on; this process has no more to do with it


def connect(host: str = "") -> socket.socket:
    """A connection to the machine, which is started if it is not running."""
    group = group_of(host)
    with _lock(group):
        connection = _connect(host)
        if connection is None:
            _start_daemon(group)
            connection = _connect(host)
    if connection is None:
        raise LabError(
            f"{machine_name(host)} went away; see {runtime_dir(group)}/console{host}.log")
    return connection


def start(host: str = "") -> None:
    """Sees to it that the machine runs. @raises LabError"""
    connect(host).close()


def status(host: str = "") -> Optional[dict]:
    """Of the running machine: process ids, accelerator, boot time. None if it is not running."""
    connection = _connect(host)
    if connection is None:
        return None
    with connection:
        connection.sendall(pack(0, STATUS))
        splitter = Splitter()
        while data := connection.recv(CHUNK):
            for _, _, frame in splitter.feed(data):
                return marshal.loads(frame)
    return None


def stop(host: str = "", only_if_alone: bool = False) -> bool:
    """Ends the machine, with the other host if it is one of two, and waits until it is gone.

    @return whether it was running"""
    connection = _connect(host)
    if connection is None:
        return False
    with connection:
        peer = struct.unpack(
            "3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        )[0]
        try:
            daemon = os.pidfd_open(peer)
            connection.sendall(pack(0, STOP, b"alone" if only_if_alone else b""))
            refused = connection.recv(CHUNK) == pack(0, STOP)
        except (ConnectionError, ProcessLookupError):  # it is going already
            return True
        if not refused:
            waiting = select.poll()
            waiting.register(daemon, select.POLLIN)
            waiting.poll()
        os.close(daemon)
    return not refused


def files_changed() -> None:
    """Packages were installed on the host. A machine in use keeps running, and looks for files
    afresh; an idle one is ended, which frees what it has cached of the old ones."""
    for group in GROUPS.values():
        if status(group[0]) and not stop(group[0], only_if_alone=True):
            for host in group:
                forget = [
                    sys.executable, str(ROOT / "tools/lab/commands/execute.py"), host, "sh", "-c",
                    "echo 2 >/proc/sys/vm/drop_caches"]
                subprocess.run(forget, stdin=subprocess.DEVNULL, capture_output=True)


# ---- running a command in it


class _Client:
    def __init__(self, argv: Sequence[str], host: str, timeout: Optional[float], terminal: bool):
        self.argv, self.host, self.timeout, self.terminal = list(argv), host, timeout, terminal
        self.interrupted = False
        self.timed_out = False
        self.input_credit = WINDOW
        self.input_ended = False
        self.output = {1: bytearray(), 2: bytearray()}  # what is still to be written
        self.splitter = Splitter()
        self.result: Optional[int] = None
        self.last_words = ""  # of lab itself, after all that the command printed

    def run(self) -> int:
        """@return the exit status, or -N for a command that signal N ended"""
        # From here on a signal is news for the command, not for this process.
        wakeup, wakeup_write = os.pipe()
        os.set_blocking(wakeup_write, False)
        self.connection = connect(self.host)
        signal.set_wakeup_fd(wakeup_write)
        for number in [*FORWARDED, signal.SIGWINCH]:
            if signal.getsignal(number) != signal.SIG_IGN:
                signal.signal(number, lambda *_: None)
        self.send(START, marshal.dumps(self.request()))
        self.selector = selectors.PollSelector()  # unlike epoll it takes plain files
        self.selector.register(self.connection, selectors.EVENT_READ, self.read_machine)
        self.selector.register(
            wakeup, selectors.EVENT_READ, lambda: self.forward(os.read(wakeup, 64)))
        self.watch(0, True, selectors.EVENT_READ, self.read_input)
        deadline = time.monotonic() + self.timeout if self.timeout is not None else None
        while self.result is None or any(self.output.values()):
            wait = None if deadline is None else max(0.0, deadline - time.monotonic())
            for key, _ in self.selector.select(wait):
                key.data()
            if self.result is not None and self.interrupted and deadline is None:
                deadline = time.monotonic() + OUTPUT_LIMIT
            if deadline is not None and time.monotonic() >= deadline and not self.end_early():
                self.send(SIGNAL, NUMBER.pack(signal.SIGKILL if self.timed_out else signal.SIGTERM))
                self.timed_out = True
                deadline = time.monotonic() + GRACE
        self.connection.close()
        if self.timed_out:
            print(f"lab: stopped after the time limit of {self.timeout:g} s", file=sys.stderr)
            return TIMED_OUT
        print(self.last_words, end="", file=sys.stderr)
        return self.result

    def request(self) -> dict:
        cwd = os.getcwd()
        folders = [cwd] + [
            os.path.dirname(word)
            for word in self.argv
            if word.startswith("/") and os.path.exists(word)
        ]
        environment = {key: value for key, value in os.environ.items() if key not in HOST_ONLY}
        return {
            "argv": self.argv,
            "cwd": cwd,
            "env": environment,
            "visible": [path for path in folders if not f"{path}/".startswith(SETTLED)],
            "terminal": window_size() if self.terminal else b"",
            "one_output": os.path.sameopenfile(1, 2),
        }

    def send(self, kind: int, data: bytes = b"") -> None:
        try:
            self.connection.sendall(pack(0, kind, data))
        except ConnectionError:
            pass  # read_machine() finds out why

    def watch(self, fd: int, wanted: bool, event: int, handler: Callable[[], None]) -> None:
        if not wanted and fd in self.selector.get_map():
            self.selector.unregister(fd)
        elif wanted and fd not in self.selector.get_map():
            self.selector.register(fd, event, handler)

    def read_input(self) -> None:
        try:
            data = os.read(0, CHUNK)
        except OSError:
            data = b""
        self.send(STDIN, data)
        self.input_credit -= len(data)
        self.input_ended = not data
        self.watch(
            0, not self.input_ended and self.input_credit > 0, selectors.EVENT_READ, self.read_input
        )

    def forward(self, numbers: bytes) -> None:
        for number in numbers:
            if number == signal.SIGWINCH:
                if self.terminal:
                    self.send(RESIZE, window_size())
            else:
                self.interrupted |= number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
                if not self.end_early(-number):
                    self.send(SIGNAL, NUMBER.pack(number))

    def end_early(self, result: Optional[int] = None) -> bool:
        """Drops what nobody reads of the output of a command that has ended. Had it run here, it
        would still be there, waiting for its reader, and a signal or the time limit would end it
        now.

        @return whether the command has ended"""
        if self.result is None:
            return False
        if any(self.output.values()):
            self.timed_out |= not self.interrupted and result is None
            self.result = self.result if result is None else result
            for data in self.output.values():
                data.clear()
        return True

    def read_machine(self) -> None:
        try:
            data = self.connection.recv(CHUNK)
        except ConnectionError:
            data = b""
        for _, kind, frame in self.splitter.feed(data):
            if kind in (STDOUT, STDERR):
                self.output[1 if kind == STDOUT else 2] += frame
            elif kind == CREDIT:
                self.input_credit += NUMBER.unpack(frame)[0]
                self.watch(
                    0, not self.input_ended and self.input_credit > 0, selectors.EVENT_READ,
                    self.read_input)
            elif kind == EXIT:
                self.result = NUMBER.unpack(frame)[0]
            elif kind == REFUSED:
                self.last_words = f"lab: {frame[4:].decode()}\n"
                self.result = NUMBER.unpack(frame[:4])[0]
            elif kind == CRASH:
                self.last_words = f"lab: {frame.decode()}\n"
                self.result = CRASHED
        if not data:
            self.selector.unregister(self.connection)
            if self.result is None:
                self.last_words = (
                    f"lab: {machine_name(self.host)} was stopped while the command ran\n")
                self.result = CRASHED
        for fd in self.output:
            self.watch_output(fd)

    def watch_output(self, fd: int) -> None:
        self.watch(fd, bool(self.output[fd]), selectors.EVENT_WRITE, lambda: self.write(fd))

    def write(self, fd: int) -> None:
        """A pipe that poll() calls writable takes PIPE_BUF bytes without making this process wait,
        which has to stay awake for signals and the time limit."""
        pending = self.output[fd]
        try:
            written = os.write(fd, pending[: select.PIPE_BUF])
        # Nobody reads the output any more. The command gets the signal that a closed pipe gives.
        except OSError as error:
            if isinstance(error, BrokenPipeError):
                self.send(SIGNAL, NUMBER.pack(signal.SIGPIPE))
            written = len(pending)
        del pending[:written]
        self.send(CREDIT, NUMBER.pack(written))
        self.watch_output(fd)


def window_size() -> bytes:
    for fd in (0, 1, 2):
        try:
            return fcntl.ioctl(fd, termios.TIOCGWINSZ, bytes(8))
        except OSError:
            continue
    return bytes([24, 0, 80, 0, 0, 0, 0, 0])


def execute(
    argv: Sequence[str], host: str = "", timeout: Optional[float] = None, terminal: bool = False
) -> int:
    """Runs a command in a machine with this process's input and output.

    @param host "a" or "b"; "" is the machine that is alone
    @return its exit status, -N for signal N, 124 over time, 125 if the machine died, 126 or 127 if
    the
            command could not be started"""
    client = _Client(argv, host, timeout, terminal)
    saved = termios.tcgetattr(0) if terminal else None
    try:
        if terminal:
            tty.setraw(0, termios.TCSADRAIN)  # what has been typed already is for the command
        result = client.run()
    finally:
        if saved:
            termios.tcsetattr(0, termios.TCSADRAIN, saved)
    if client.interrupted:
        stop(host, only_if_alone=True)  # Ctrl-C leaves no process behind
    return result


def end_like(result: int) -> int:
    """For main(): `result` as an exit status; a signal that ended the command ends this process
    too."""
    if result < 0:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # this process has no bug to look for
        if -result != signal.SIGKILL:  # which takes no handler
            signal.signal(-result, signal.SIG_DFL)
        os.kill(os.getpid(), -result)
    return result if result >= 0 else 128 - result
