# SPDX-License-Identifier: MIT
"""Records the RoCEv2 packets that pass a host's netdev, with tcpdump on that host.

lab0 is where a host ends and the wire begins (init.sh): what this host sends is seen there although
the wire may lose it, and what it receives has come through. Timestamps are the host's own.
"""
from __future__ import annotations

import re
import signal
import subprocess
import time
from pathlib import Path

from lab import packages
from lab.errors import LabError
from lab.machine import machine
from lab.place import NETDEV, Place

ROCE_PORT = 4791  # UDP; assigned to RoCEv2 by IANA
LARGEST = 9216  # bytes of a packet; with the default, 256 KiB, the buffer would hold a few dozen
BUFFER = 32768  # KiB, for what comes faster than tcpdump writes
CATCH_UP_LIMIT = 20  # seconds for tcpdump to catch up
COUNTS = re.compile(
    r"(\d+) packets? captured, (\d+) packets? received by filter, (\d+) packets? dropped")


class Tap:
    """`with Tap(host, file):` records from begin to end of the block."""

    def __init__(self, where: Place, file: Path):
        self.where, self.file = where, file
        self.inside = f"/tmp/{file.name}"

    def __enter__(self) -> "Tap":
        packages.need("wire")
        self.held = machine.connect(self.where.host)  # the hosts stay up while the tap is there
        self.tcpdump = subprocess.Popen(
            self.where.wrap(
                [
                    "/bin/sh", "-c", 'echo "$$" >&2; exec "$0" "$@"', "tcpdump", "-i", NETDEV,
                    "--immediate-mode", "--time-stamp-precision", "nano", "-s", str(LARGEST), "-B",
                    str(BUFFER), "-w", self.inside, "udp", "port", str(ROCE_PORT)]),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True)
        try:
            pid = self._read_until(str.strip).strip()  # inside the host
            self._read_until(lambda line: "listening on" in line)
            self._wait_until_it_sleeps(pid)
            # What came before tcpdump had its filter in place counts as seen, and is never
            # captured.
            self.stray = self._waiting()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, kind, *_) -> None:
        try:
            if kind is None:
                self._drain()
            self.tcpdump.terminate()  # not SIGINT, which a script's background commands ignore
            said = self.tcpdump.communicate(timeout=30)[1]
            if kind is None:
                self._fetch(said)
        finally:
            self._end()

    def _end(self) -> None:
        self.tcpdump.kill()
        self.tcpdump.wait()
        self.tcpdump.stderr.close()
        self.held.close()

    def _read_until(self, wanted) -> str:
        said = []
        for line in self.tcpdump.stderr:
            said.append(line)
            if wanted(line):
                return line
        raise LabError(
            f"tcpdump on {machine.machine_name(self.where.host)} ended: {''.join(said).strip()}")

    def _wait_until_it_sleeps(self, pid: str) -> None:
        """tcpdump's handler of SIGUSR1 prints. If the signal comes while tcpdump takes the lock of
        stderr, after "listening on", the handler waits forever. tcpdump sleeps only later."""
        wait = 'until grep -q "^State:.S" "/proc/$0/status" || [ ! -e "/proc/$0" ]; do :; done'
        subprocess.run(
            self.where.wrap(["sh", "-c", wait, pid]), stdin=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL)

    def _drain(self) -> None:
        """Waits until tcpdump has written all that came: on SIGUSR1 it says how much that is."""
        deadline = time.monotonic() + CATCH_UP_LIMIT
        while self._waiting() > self.stray:
            if time.monotonic() > deadline:
                raise LabError(f"tcpdump did not write all packets within {CATCH_UP_LIMIT} s")

    def _waiting(self) -> int:
        """How many packets the kernel has seen and tcpdump has not written."""
        self.tcpdump.send_signal(signal.SIGUSR1)
        captured, seen, dropped = (
            int(count) for count in COUNTS.search(self._read_until(COUNTS.search)).groups())
        if dropped:
            raise LabError(
                f"tcpdump was too slow, {dropped} packets are missing: make the transfer smaller")
        return seen - captured

    def _fetch(self, said: str) -> None:
        fetch = self.where.wrap(["sh", "-c", 'cat "$0"; rm -f "$0"', self.inside])
        fetched = subprocess.run(fetch, stdin=subprocess.DEVNULL, capture_output=True)
        if fetched.returncode or not fetched.stdout:
            raise LabError(
                f"no capture from {machine.machine_name(self.where.host)}:"
                f" {fetched.stderr.decode()}{said}")
        self.file.parent.mkdir(parents=True, exist_ok=True)
        self.file.write_bytes(fetched.stdout)
