"""Runs an example where the device is: one program, or a server and its client.

Nothing here waits by the clock: the server says on which TCP port it listens, and that line starts
the client. Every run has a time limit, after which whatever still runs is ended and the run failed.
"""
from __future__ import annotations

import queue
import re
import subprocess
import threading
import time
from dataclasses import dataclass, field
from typing import Callable, Optional, Sequence

from lab.place import Place

LISTENING = re.compile(r"listening on TCP port (\d+)")


@dataclass
class Outcome:
    """What the programs printed, in the order in which it arrived, and how they ended."""
    lines: list[tuple[str, str]] = field(default_factory=list)  # (role, text); stdout and stderr
    status: dict[str, int] = field(default_factory=dict)        # role -> exit status, -N: by signal N
    timed_out: bool = False

    def of(self, role: str) -> list[str]:
        return [text for who, text in self.lines if who == role]

    def text(self) -> str:
        """The output as the lessons show it. A role with no name is a program that is alone."""
        return "".join(f"[{role}] {text}\n" if role else f"{text}\n" for role, text in self.lines)


class _Run:
    def __init__(self, place: Place, show: Callable[[str, str], None]):
        self.place, self.show = place, show
        self.outcome = Outcome()
        self.processes: dict[str, subprocess.Popen] = {}
        self.events: queue.Queue = queue.Queue()

    def start(self, role: str, argv: Sequence[str]) -> None:
        process = subprocess.Popen(self.place.wrap(list(argv)), stdin=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                   errors="replace")
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
                continue
            self.outcome.lines.append((role, what))
            self.show(role, what)
            on_line(role, what)

    def end(self) -> None:
        """Ends what still runs: after a time limit, Ctrl-C or an error."""
        for process in self.processes.values():
            if process.poll() is None:
                process.terminate()
        for role, process in self.processes.items():
            try:
                process.wait(timeout=5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            self.outcome.status.setdefault(role, process.returncode)


def run(place: Place, server: Sequence[str], client: Optional[Sequence[str]] = None, *,
        time_limit: float = 60, show: Callable[[str, str], None] = lambda role, text: None) -> Outcome:
    """Runs `server` alone, or, with a `client`, both. The client gets `--host` and `--tcp-port` added
    once the server listens; a server that ends before that leaves the client unstarted."""
    run = _Run(place, show)

    def on_line(role: str, text: str) -> None:
        listening = LISTENING.match(text)
        if client and role == "server" and listening and "client" not in run.processes:
            run.start("client", [*client, "--host", place.address, "--tcp-port", listening[1]])

    try:
        if client:
            run.start("server", [*server, "--tcp-port", "0"])
        else:
            run.start("", server)
        run.loop(time.monotonic() + time_limit, on_line)
    finally:
        run.end()
    return run.outcome
