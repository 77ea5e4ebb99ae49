# SPDX-License-Identifier: MIT
"""Runs programs where the device is: one alone, or a server and its client, on one host or on two.

Nothing here waits by the clock: the server says that it listens, and that line starts the client.
Every run has a time limit, after which whatever still runs is ended and the run failed.
"""
from __future__ import annotations

import os
import queue
import re
import subprocess
import threading
import time
from dataclasses import dataclass, field
from typing import Callable, Optional, Sequence

from lab.machine import machine
from lab.place import Place

# Seconds that a run may take. The tests set it higher, for a busy machine.
TIME_LIMIT = float(os.environ.get("LAB_TIME_LIMIT", "60"))
SKIPPED = 77  # the exit status of a program whose device, or host, lacks something


@dataclass
class Outcome:
    """What the programs printed, in the order in which it arrived, and how they ended."""

    lines: list[tuple[str, str]] = field(default_factory=list)  # (role, text); stdout and stderr
    # role -> exit status, -N: by signal N
    status: dict[str, int] = field(default_factory=dict)
    timed_out: bool = False

    @property
    def failed(self) -> bool:
        return self.timed_out or any(self.status.values())

    def of(self, role: str) -> list[str]:
        return [text for who, text in self.lines if who == role]

    def text(self) -> str:
        """The output as the lessons show it. A role with no name is a program that is alone."""
        return "".join(f"[{role}] {text}\n" if role else f"{text}\n" for role, text in self.lines)


class _Run:
    def __init__(self, show: Callable[[str, str], None], stop_server: bool):
        self.show = show
        self.stop_server = stop_server
        self.next_client: list[str] = []  # the command
        self.next: Optional[subprocess.Popen] = None
        self.outcome = Outcome()
        self.processes: dict[str, subprocess.Popen] = {}
        self.events: queue.Queue = queue.Queue()

    def start(self, role: str, place: Place, argv: Sequence[str]) -> None:
        process = subprocess.Popen(
            place.wrap(list(argv)), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, errors="replace")
        self.processes[role] = process
        threading.Thread(target=self._read, args=(role, process), daemon=True).start()

    def _read(self, role: str, process: subprocess.Popen) -> None:
        with process.stdout:
            for line in process.stdout:
                self.events.put((role, line.rstrip("\n")))
        self.events.put((role, process.wait()))

    def loop(self, deadline: float, on_line: Callable[[str, str], None]) -> None:
        while len(self.outcome.status) < len(self.processes):
            try:
                role, what = self.events.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                self.outcome.timed_out = True
                return
            if isinstance(what, int):
                self.outcome.status[role] = what
                if what == machine.CRASHED:  # with its host: there is nothing left to wait for
                    return
                if what and role == "client":
                    self._client_failed(what)
                continue
            self.outcome.lines.append((role, what))
            self.show(role, what)
            on_line(role, what)

    def _client_failed(self, status: int) -> None:
        if self.stop_server or status == SKIPPED:
            self.processes["server"].terminate()
        elif self.next_client:
            self.next = subprocess.Popen(
                self.next_client, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL)

    def end(self) -> None:
        """Ends what still runs: the next client, and after a time limit, Ctrl-C or an error the
        others."""
        for process in [*self.processes.values(), *([self.next] if self.next else [])]:
            if process.poll() is None:
                process.terminate()
        if self.next:
            self.next.wait()
        for role, process in self.processes.items():
            try:
                process.wait(timeout=5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            self.outcome.status.setdefault(role, process.returncode)


@dataclass(frozen=True)
class Client:
    """Who is started once the server has printed a line that `ready` matches. A server that ends
    before that leaves the client unstarted."""

    ready: re.Pattern
    argv: Callable[[re.Match], Sequence[str]]
    place: Optional[Place] = None  # if not where the server is
    # The command of a client that is started if the first one has failed, and whose output nobody
    # sees: a server that still waits for a client goes on, and ends.
    next_argv: Optional[Callable[[re.Match], Sequence[str]]] = None


def run(
    place: Place, program: Sequence[str], client: Optional[Client] = None, *,
    time_limit: float = TIME_LIMIT, show: Callable[[str, str], None] = lambda role, text: None,
    stop_server: bool = False
) -> Outcome:
    """Runs `program` alone, or as the server of `client`.

    @param stop_server a server that waits for clients forever gets SIGTERM when its client has
    failed"""
    run = _Run(show, stop_server)

    def on_line(role: str, text: str) -> None:
        ready = (
            client
            and role == "server"
            and "client" not in run.processes
            and client.ready.match(text))
        if ready:
            where = client.place or place
            if client.next_argv:
                run.next_client = where.wrap(list(client.next_argv(ready)))
            run.start("client", where, client.argv(ready))

    try:
        run.start("server" if client else "", place, program)
        run.loop(time.monotonic() + time_limit, on_line)
    finally:
        run.end()
    return run.outcome
