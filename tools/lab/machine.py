"""The client's side of the emulated machine: starts it where it is not running, runs commands in it.

./lab exec is such a client. It passes on its own input, both output streams, signals and window size, and
ends as the command ended: with its exit status, or by the same signal. A machine that dies is not
something that a command can do: that is exit status 125 and a message.
"""
from __future__ import annotations

import fcntl
import marshal
import os
import selectors
import signal
import socket
import subprocess
import sys
import termios
import time
import tty
from contextlib import contextmanager
from pathlib import Path
from typing import Iterator, Optional, Sequence

from lab import kernel as kernels
from lab.errors import LabError
from lab.frames import (CHUNK, CRASH, CREDIT, EXIT, HELLO, NUMBER, REFUSED, RESIZE, SIGNAL, START, STATUS, STDERR,
                        STDIN, STDOUT, STOP, WINDOW, Splitter, pack)
from lab.paths import ROOT, runtime_dir

CRASHED = 125
TIMED_OUT = 124
GRACE = 5  # seconds between SIGTERM and SIGKILL
FORWARDED = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2]
HOST_ONLY = {"DISPLAY", "SSH_AUTH_SOCK", "XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS", "LD_PRELOAD"}


# ---- getting at the machine

@contextmanager
def _lock() -> Iterator[None]:
    with open(runtime_dir() / "lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _connect() -> Optional[socket.socket]:
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.connect(str(runtime_dir() / "socket"))
        if connection.recv(len(pack(0, HELLO)), socket.MSG_WAITALL):
            return connection
    except (FileNotFoundError, ConnectionError):
        pass
    connection.close()
    return None


def _start_keeper() -> None:
    """Returns when the machine is ready. @raises LabError; interrupted, it takes the keeper along"""
    kernels.initramfs(kernels.get())  # here and not in the keeper, so that a download is seen and can be stopped
    print("lab: starting the emulated machine", file=sys.stderr, flush=True)
    report, report_write = os.pipe()
    with open(runtime_dir() / "keeper.log", "ab") as log, os.fdopen(report, "rb") as answer:
        keeper = subprocess.Popen([sys.executable, "-m", "lab.keeper", str(report_write)], cwd="/",
                                  env={**os.environ, "PYTHONPATH": str(ROOT / "tools")},
                                  stdin=subprocess.DEVNULL, stdout=log, stderr=log, pass_fds=[report_write],
                                  start_new_session=True)
        os.close(report_write)
        try:
            said = answer.read().decode()
        except BaseException:
            keeper.terminate()
            keeper.wait()
            raise
    if said != "ready":
        keeper.wait()
        raise LabError(said or f"the emulated machine's keeper died; see {runtime_dir() / 'keeper.log'}")
    keeper.returncode = 0  # it lives on; this process has no more to do with it


def connect() -> socket.socket:
    """A connection to the machine, which is started if it is not running."""
    with _lock():
        connection = _connect()
        if connection is None:
            _start_keeper()
            connection = _connect()
    if connection is None:
        raise LabError(f"the emulated machine went away; see {runtime_dir() / 'console.log'}")
    return connection


def start() -> None:
    """Sees to it that the machine runs. @raises LabError"""
    connect().close()


def status() -> Optional[dict]:
    """Of the running machine: process ids, accelerator, boot time. None if it is not running."""
    connection = _connect()
    if connection is None:
        return None
    with connection:
        connection.sendall(pack(0, STATUS))
        splitter = Splitter()
        while data := connection.recv(CHUNK):
            for _, _, frame in splitter.feed(data):
                return marshal.loads(frame)
    return None


def stop(only_if_alone: bool = False) -> bool:
    """Ends the machine and waits until it is gone. @return whether it was running"""
    connection = _connect()
    if connection is None:
        return False
    with connection:
        connection.sendall(pack(0, STOP, b"alone" if only_if_alone else b""))
        connection.shutdown(socket.SHUT_WR)
        try:
            while connection.recv(CHUNK):
                pass
        except ConnectionError:
            pass
    return True


# ---- running a command in it

class _Client:
    def __init__(self, argv: Sequence[str], timeout: Optional[float], terminal: bool):
        self.argv, self.timeout, self.terminal = list(argv), timeout, terminal
        self.interrupted = False
        self.timed_out = False
        self.input_credit = WINDOW
        self.result: Optional[int] = None

    def run(self) -> int:
        """@return the exit status, or -N for a command that signal N ended"""
        # From here on a signal is news for the command, not for this process.
        wakeup, wakeup_write = os.pipe()
        os.set_blocking(wakeup_write, False)
        self.connection = connect()
        signal.set_wakeup_fd(wakeup_write)
        for number in [*FORWARDED, signal.SIGWINCH]:
            if signal.getsignal(number) != signal.SIG_IGN:
                signal.signal(number, lambda *_: None)
        self.send(START, marshal.dumps(self.request()))
        self.selector = selectors.DefaultSelector()
        self.selector.register(self.connection, selectors.EVENT_READ, self.read_machine)
        self.selector.register(wakeup, selectors.EVENT_READ, lambda: self.forward(os.read(wakeup, 64)))
        self.watch_input(True)
        splitter = self.splitter = Splitter()
        deadline = time.monotonic() + self.timeout if self.timeout else None
        while self.result is None:
            wait = max(0.0, deadline - time.monotonic()) if deadline else None
            for key, _ in self.selector.select(wait):
                key.data()
            if deadline and time.monotonic() >= deadline and self.result is None:
                self.send(SIGNAL, NUMBER.pack(signal.SIGKILL if self.timed_out else signal.SIGTERM))
                self.timed_out = True
                deadline = time.monotonic() + GRACE
        del splitter
        self.connection.close()
        if self.timed_out:
            print(f"lab: stopped after the time limit of {self.timeout:g} s", file=sys.stderr)
            return TIMED_OUT
        return self.result

    def request(self) -> dict:
        cwd = os.getcwd()
        folders = [cwd] + [os.path.dirname(word) for word in self.argv if word.startswith("/") and os.path.exists(word)]
        environment = {key: value for key, value in os.environ.items() if key not in HOST_ONLY}
        return {"argv": self.argv, "cwd": cwd, "env": environment,
                "visible": [path for path in folders if not Path(path).is_relative_to(ROOT)],
                "terminal": window_size() if self.terminal else b""}

    def send(self, kind: int, data: bytes = b"") -> None:
        try:
            self.connection.sendall(pack(0, kind, data))
        except ConnectionError:
            pass  # read_machine() finds out why

    def watch_input(self, wanted: bool) -> None:
        try:
            if wanted:
                self.selector.register(0, selectors.EVENT_READ, self.read_input)
            else:
                self.selector.unregister(0)
        except (KeyError, ValueError):
            pass
        except PermissionError:  # a plain file is always ready, and epoll does not take it
            while wanted and self.input_credit > 0 and self.read_input():
                pass

    def read_input(self) -> bool:
        try:
            data = os.read(0, CHUNK)
        except OSError:
            data = b""
        self.send(STDIN, data)
        self.input_credit -= len(data)
        if not data or self.input_credit <= 0:
            self.watch_input(False)
        self.input_ended = not data
        return bool(data)

    input_ended = False

    def forward(self, numbers: bytes) -> None:
        for number in numbers:
            if number == signal.SIGWINCH:
                if self.terminal:
                    self.send(RESIZE, window_size())
            else:
                self.interrupted |= number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
                self.send(SIGNAL, NUMBER.pack(number))

    def read_machine(self) -> None:
        try:
            data = self.connection.recv(CHUNK)
        except ConnectionError:
            data = b""
        for _, kind, frame in self.splitter.feed(data):
            if kind in (STDOUT, STDERR):
                self.write(1 if kind == STDOUT else 2, frame)
                self.send(CREDIT, NUMBER.pack(len(frame)))
            elif kind == CREDIT:
                blocked = self.input_credit <= 0
                self.input_credit += NUMBER.unpack(frame)[0]
                if blocked and self.input_credit > 0 and not self.input_ended:
                    self.watch_input(True)
            elif kind == EXIT:
                self.result = NUMBER.unpack(frame)[0]
            elif kind == REFUSED:
                print(f"lab: {frame[4:].decode()}", file=sys.stderr)
                self.result = NUMBER.unpack(frame[:4])[0]
            elif kind == CRASH:
                print(f"lab: the emulated machine died: {frame.decode()}", file=sys.stderr)
                self.result = CRASHED
        if not data and self.result is None:
            print("lab: the emulated machine was stopped while the command ran", file=sys.stderr)
            self.result = CRASHED

    def write(self, fd: int, data: bytes) -> None:
        view = memoryview(data)
        try:
            while view:
                view = view[os.write(fd, view):]
        except BrokenPipeError:  # what a command that writes into such a pipe would get
            self.send(SIGNAL, NUMBER.pack(signal.SIGPIPE))


def window_size() -> bytes:
    for fd in (0, 1, 2):
        try:
            return fcntl.ioctl(fd, termios.TIOCGWINSZ, bytes(8))
        except OSError:
            continue
    return bytes([24, 0, 80, 0, 0, 0, 0, 0])


def execute(argv: Sequence[str], timeout: Optional[float] = None, terminal: bool = False) -> int:
    """Runs a command in the machine with this process's input and output.

    @return its exit status, -N for signal N, 124 over time, 125 if the machine died, 126 or 127 if the
            command could not be started"""
    client = _Client(argv, timeout, terminal)
    saved = termios.tcgetattr(0) if terminal else None
    try:
        if terminal:
            tty.setraw(0)
        result = client.run()
    finally:
        if saved:
            termios.tcsetattr(0, termios.TCSADRAIN, saved)
    if client.interrupted:
        stop(only_if_alone=True)  # Ctrl-C leaves no process behind
    return result


def end_like(result: int) -> int:
    """For main(): `result` as an exit status; a signal that ended the command ends this process too."""
    if result < 0:
        signal.signal(-result, signal.SIG_DFL)
        os.kill(os.getpid(), -result)
    return result if result >= 0 else 128 - result
