# SPDX-License-Identifier: MIT
"""The programs that are measured: found, started, waited for, and ended whatever they do."""
from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import threading
import time
from pathlib import Path
from typing import List, Set, Tuple

from bench.cases import OURS, Probe, Side
from lab.listening import LISTENING

START_LIMIT = 60  # seconds in which a server has to listen; under emulation a start takes its time
TERM_LIMIT = 5  # between SIGTERM and SIGKILL


_alive: Set["Program"] = set()


class Missing(Exception):
    """A program that is not installed: its name."""


class Failed(Exception):
    """A run that came to nothing: why, in one line."""


def resolve(argv: List[str], build: str) -> List[str]:
    """The command line with the program's whole path. @raises Missing"""
    name = argv[0]
    path = (
        Path(build) / OURS[name] / name
        if name in OURS
        else Path(shutil.which(name) or "/nonexistent"))
    if not path.exists():
        raise Missing(name)
    return [str(path), *argv[1:]]


def descendants(pid: int) -> List[int]:
    """The process and all that it has started, directly or not."""
    found = [pid]
    for process in found:  # grows as it goes
        threads: List[Path] = []
        with contextlib.suppress(OSError):  # the process has just ended
            threads = list(Path("/proc", str(process), "task").iterdir())
        for thread in threads:
            with contextlib.suppress(OSError):  # the thread has
                found += map(int, (thread / "children").read_text().split())
    return found


class Program:
    """One that runs, and what it has printed on both of its outputs."""

    def __init__(self, argv: List[str]):
        try:
            # In our own process group: a signal that ends the benchmark ends this with it.
            self.process = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                text=True, errors="replace")
        except OSError as error:
            raise Failed(f"{argv[0]}: {error.strerror}") from error
        _alive.add(self)
        self.lines: List[str] = []
        self.change = threading.Condition()
        self.ended = False
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self) -> None:
        for line in self.process.stdout:
            with self.change:
                self.lines.append(line.rstrip("\n"))
                self.change.notify_all()
        self.process.wait()
        _alive.discard(self)
        with self.change:
            self.ended = True
            self.change.notify_all()

    def text(self) -> str:
        return "".join(line + "\n" for line in self.lines)

    def last_line(self) -> str:
        said = [line.strip() for line in self.lines if line.strip(" -\t")]
        return said[-1][:200] if said else ""

    def why(self) -> str:
        """Of one that has failed."""
        return (
            self.last_line()
            or f"it ended with status {self.process.returncode} and printed nothing")

    def wait(self, limit: float) -> bool:
        """@return whether it has ended within so many seconds"""
        with self.change:
            return self.change.wait_for(lambda: self.ended, limit)

    def wait_for_line(self, limit: float) -> int:
        """The port that a server of ours says it listens on. @raises Failed"""

        def port():
            return next(
                (int(found[1]) for line in list(self.lines) if (found := LISTENING.search(line))),
                None)

        with self.change:
            self.change.wait_for(lambda: port() is not None or self.ended, limit)
        if port() is None:
            raise Failed(self.why() if self.ended else f"it does not listen within {limit:g} s")
        return port()

    def terminate(self) -> None:
        if not self.ended:
            self.process.terminate()
            if not self.wait(TERM_LIMIT):
                self.kill()

    def kill(self) -> None:
        if not self.ended:
            for pid in reversed(descendants(self.process.pid)):
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            self.wait(TERM_LIMIT)


def kill_all() -> None:
    """For the end of this process, however it comes about."""
    for program in list(_alive):
        program.kill()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("", 0))
        return probe.getsockname()[1]


def has_tcp_listener(port: int) -> bool:
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            lines = Path(table).read_text().splitlines()[1:]
        except OSError:
            continue
        if any(
            words[1].endswith(f":{port:04X}") and words[3] == "0A"
            for words in map(str.split, lines)
        ):
            return True
    return False


def has_cm_listener(port: int) -> bool:
    """@raises Missing without the tool that shows rdma_cm's ports"""
    tool = shutil.which("rdma")
    if not tool:
        raise Missing("rdma (of iproute2)")
    shown = subprocess.run(
        [tool, "-j", "resource", "show", "cm_id"], stdin=subprocess.DEVNULL, capture_output=True,
        text=True).stdout
    try:
        entries = json.loads(shown or "[]")
    except ValueError:
        entries = []
    return any(
        entry.get("state") == "LISTEN" and entry.get("src-addr", "").endswith(f":{port}")
        for entry in entries)


def start_server(probe: Probe, side: Side, build: str) -> Tuple[Program, int]:
    """Starts a probe's server and waits until it listens. @return it, and its port. @raises
    Missing, Failed"""
    port = 0 if probe.listens == "line" else free_port()
    filled = Side(side.device, side.gid_index, side.host, port)
    program = Program(resolve(filled.command(probe.server), build))
    try:
        if probe.listens == "line":
            return program, program.wait_for_line(START_LIMIT)
        listens = has_tcp_listener if probe.listens == "tcp" else has_cm_listener
        # The stock tools do not say when they listen, or not before a buffer is full, and no event
        # tells.
        deadline = time.monotonic() + START_LIMIT
        while not listens(port):
            if program.wait(0.02):
                raise Failed(program.why())
            if time.monotonic() > deadline:
                raise Failed(f"it does not listen within {START_LIMIT} s")
        return program, port
    except BaseException:
        program.kill()
        raise


def run_client(probe: Probe, side: Side, build: str, limit: float) -> str:
    """What a probe's client prints. @raises Missing, Failed"""
    program = Program(resolve(side.command(probe.client), build))
    try:
        if not program.wait(limit):
            program.kill()
            raise Failed(
                f"it hangs: no end within {limit:g} s; the last that it printed:"
                f" {program.last_line() or 'nothing'}")
    finally:
        program.kill()
    if program.process.returncode:
        raise Failed(program.why())
    return program.text()
