# SPDX-License-Identifier: MIT
"""Owns the emulated machine, or the two hosts: starts QEMU, passes frames between clients and the
agents inside, and ends it all when nobody has used it for a while. A process of its own, started by
machine.py.

    client --unix socket--> daemon --virtio port--> agent --> command

Each machine has its socket, and a client's connection is one command. The daemon listens only once
all is ready, so a client that can connect has a machine. Two hosts begin and end together: if one
dies, the other goes too. QEMU cannot outlive the daemon, and the machine does not outlive its port.
"""
from __future__ import annotations

import asyncio
import ctypes
import fcntl
import functools
import itertools
import marshal
import os
import re
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Optional

from lab import process
from lab.errors import LabError
from lab.machine import kernel as kernels
from lab.machine import qemu
from lab.machine.frames import (
    CHUNK, CRASH, EXIT, HELLO, KILL, PING, READY, REFUSED, START, STATUS, STOP, Splitter, pack)
from lab.machine.machine import GROUPS, machine_name
from lab.paths import ROOT, cache_dir, runtime_dir

KVM_LIMIT = 8  # seconds to the first word; KVM that only seems to work never gets there
# The same under emulation. Beside busy processes, two machines took 10 to 35 s on one computer and
# more than 60 s on another.
BOOT_LIMIT = 300
SILENCE_LIMIT = 60  # an agent that does not answer for so long is taken for dead
IDLE_LIMIT = float(os.environ.get("LAB_IDLE", "180"))


def die_with_parent() -> None:
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


class Machine:
    """One run of QEMU and the stream to the agent in it."""

    def __init__(
        self, kernel: kernels.Kernel, initramfs: Path, accelerator: str, folder: Path, host: str,
        wire: Optional[socket.socket]
    ):
        self.kernel, self.initramfs, self.accelerator = kernel, initramfs, accelerator
        self.host, self.wire = host, wire
        self.process: Optional[asyncio.subprocess.Process] = None
        self.console = folder / f"console{host}.log"
        self.splitter = Splitter()

    def __str__(self) -> str:
        return machine_name(self.host)

    async def start(self, limit: float) -> None:
        """@raises LabError if the agent does not speak within `limit` seconds"""
        began = time.monotonic()
        ours, theirs = socket.socketpair()
        wire = self.wire.fileno() if self.wire else None
        argv = qemu.command(
            self.kernel, self.initramfs, self.accelerator, self.host,
            theirs.fileno(), wire, self.console)
        self.console.write_bytes(b"")
        with open(self.console, "ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                *argv, stdin=asyncio.subprocess.DEVNULL, stdout=log, stderr=log,
                pass_fds=[theirs.fileno(), *([wire] if self.wire else [])],
                preexec_fn=die_with_parent)
        theirs.close()
        self.reader, self.writer = await asyncio.open_connection(sock=ours)
        self.send(0, START, marshal.dumps({"root": str(ROOT), "modules": str(self.kernel.modules)}))
        try:
            while not any(
                kind == READY for _, kind, _ in await asyncio.wait_for(self.receive(), limit)
            ):
                pass
        except asyncio.TimeoutError:
            await self.stop()
            raise LabError(f"{self} said nothing for {limit:g} s{self.last_words()}") from None
        except EOFError:
            await self.stop()
            raise LabError(f"{self} did not start{self.last_words()}") from None
        except asyncio.CancelledError:
            await self.stop()
            raise
        self.boot_seconds = time.monotonic() - began

    def send(self, job: int, kind: int, data: bytes = b"") -> None:
        self.writer.write(pack(job, kind, data))

    async def receive(self) -> list[tuple[int, int, bytes]]:
        try:
            data = await self.reader.read(CHUNK)
        except ConnectionError:
            data = b""
        if not data:
            raise EOFError
        return list(self.splitter.feed(data))

    async def stop(self) -> None:
        if self.process is not None:
            if self.process.returncode is None:
                self.process.kill()
            await self.process.wait()

    def last_words(self) -> str:
        lines = [
            line.strip()
            for line in self.console.read_text(errors="replace").splitlines()
            if line.strip()
        ]
        # Without the call trace, which is long.
        why = [line for line in lines[:-6] if re.search(r"BUG: |Oops: |RIP: |Kernel panic", line)]
        return "".join(f"\n  console: {line}" for line in why[:4] + lines[-6:])


class Daemon:
    def __init__(self, machines: list[Machine], folder: Path):
        self.machines, self.folder = machines, folder
        self.clients: dict[int, asyncio.StreamWriter] = {}
        self.leaving: set[int] = set()  # those of the clients that asked for the end
        self.next_job = 1
        self.last_used = time.monotonic()
        self.last_heard = {machine: self.last_used for machine in machines}
        self.ended = asyncio.Event()
        self.why = ""

    # ---- a client

    async def serve(
        self, machine: Machine, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        if self.ended.is_set():  # no promise to who comes too late: it starts the next machine
            return writer.close()
        job, self.next_job = self.next_job, self.next_job + 1
        self.clients[job] = writer
        splitter = Splitter()
        started = False
        try:
            writer.write(pack(0, HELLO))
            while data := await reader.read(CHUNK):
                for _, kind, frame in splitter.feed(data):
                    if kind == STOP:
                        self.leaving.add(job)
                        agreed = not frame or self.clients.keys() <= self.leaving
                        writer.write(pack(0, STOP, b"yes" if agreed else b""))
                        if agreed:
                            self.end("asked to")
                    elif kind == STATUS:
                        writer.write(pack(0, STATUS, marshal.dumps(self.status(machine))))
                    else:
                        started |= kind == START
                        machine.send(job, kind, frame)
                await machine.writer.drain()
        except ConnectionError:
            pass
        finally:
            self.leaving.discard(job)
            if self.clients.pop(job, None) and started:
                machine.send(job, KILL)
            self.last_used = time.monotonic()
            writer.close()

    def status(self, machine: Machine) -> dict:
        return {
            "qemu": machine.process.pid,
            "daemon": os.getpid(),
            "clients": len(self.clients) - 1,
            "accelerator": machine.accelerator,
            "boot_seconds": machine.boot_seconds,
            "kernel": machine.kernel.version,
        }

    # ---- the agent

    async def listen_to_agent(self, machine: Machine) -> None:
        try:
            while True:
                for job, kind, frame in await machine.receive():
                    self.last_heard[machine] = time.monotonic()
                    writer = self.clients.get(job)
                    if writer:
                        writer.write(pack(0, kind, frame))
                        if kind in (EXIT, REFUSED):
                            self.clients.pop(job)
                            writer.close()
        except EOFError:
            self.crash(machine, "it ended by itself")

    async def watch_the_clock(self) -> None:
        while True:
            await asyncio.sleep(min(5, IDLE_LIMIT / 4))
            now = time.monotonic()
            if self.clients:
                self.last_used = now
                for machine, heard in self.last_heard.items():
                    machine.send(0, PING)
                    if now - heard > SILENCE_LIMIT:
                        self.crash(machine, f"it has not answered for {SILENCE_LIMIT} s")
            else:
                self.last_heard = dict.fromkeys(self.machines, now)
                if now - self.last_used > IDLE_LIMIT:
                    self.go_when_idle()

    def go_when_idle(self) -> None:
        """Clients connect under the lock, so a holder of it knows that none is on the way."""
        self.lock_file = open(self.folder / "lock", "w")
        try:
            fcntl.flock(self.lock_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.lock_file.close()
        else:
            self.end("idle")

    def crash(self, machine: Machine, why: str) -> None:
        if not self.ended.is_set():
            message = f"{machine} died: {why}{machine.last_words()}".encode()
            for writer in self.clients.values():
                writer.write(pack(0, CRASH, message))
            self.end(why)

    def end(self, why: str) -> None:
        self.why = self.why or why
        self.ended.set()

    async def run(self, ready) -> None:
        servers = {}
        for machine in self.machines:
            path = self.folder / f"socket{machine.host}"
            path.unlink(missing_ok=True)
            servers[path] = await asyncio.start_unix_server(
                functools.partial(self.serve, machine), path)
        tasks = [asyncio.create_task(self.listen_to_agent(machine)) for machine in self.machines]
        tasks.append(asyncio.create_task(self.watch_the_clock()))
        ready("")
        await self.ended.wait()
        print(f"daemon: going, {self.why}", flush=True)
        for task in tasks:
            task.cancel()
        for path, server in servers.items():
            path.unlink(missing_ok=True)
            server.close()
        # Gone means gone: when this connection has ended, QEMU has ended, too.
        for machine in self.machines:
            await machine.stop()
        for writer in list(self.clients.values()):
            writer.close()
            try:
                await asyncio.wait_for(writer.wait_closed(), 1)
            except (OSError, asyncio.TimeoutError):
                pass


def kvm_verdict_file() -> Path:
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return cache_dir() / f"kvm-does-not-work-{boot}"


async def start_all(accelerator: str, group: str, limit: float) -> list[Machine]:
    """The machines of `group`, booting at the same time. @raises LabError if one of them does not
    start"""
    folder = runtime_dir(group)
    kernel, initramfs = kernels.initramfs_of(group)
    # An Ethernet that goes nowhere else.
    ends = socket.socketpair() if len(GROUPS[group]) == 2 else ()
    machines = [
        Machine(kernel, initramfs, accelerator, folder, host, end)
        for host, end in itertools.zip_longest(GROUPS[group], ends)]
    starts = [asyncio.create_task(machine.start(limit)) for machine in machines]
    try:
        await asyncio.gather(*starts)
    except BaseException:
        for start in starts:
            start.cancel()
        await asyncio.gather(*starts, return_exceptions=True)
        for machine in machines:
            await machine.stop()
        raise
    finally:
        for end in ends:
            end.close()
    return machines


async def boot(group: str) -> list[Machine]:
    """Running machines, by KVM where that works. @raises LabError"""
    forced = os.environ.get("LAB_ACCEL", "")
    if forced not in ("", "kvm", "tcg"):
        raise LabError(f"LAB_ACCEL={forced}: kvm or tcg")
    verdict = kvm_verdict_file()
    if forced == "kvm" or (
        not forced and os.access("/dev/kvm", os.R_OK | os.W_OK) and not verdict.exists()
    ):
        try:
            return await start_all("kvm", group, KVM_LIMIT)
        except LabError as error:
            if forced:
                raise
            verdict.write_text(f"{error}\n")
    return await start_all("tcg", group, BOOT_LIMIT)


async def main(group: str, report: int) -> None:
    def ready(message: str) -> None:
        os.write(report, (message or "ready").encode())
        os.close(report)

    loop = asyncio.get_running_loop()
    starting = asyncio.current_task()
    for number in process.ENDING:
        loop.add_signal_handler(number, starting.cancel)
    try:
        machines = await boot(group)
    except LabError as error:
        return ready(str(error))
    daemon = Daemon(machines, runtime_dir(group))
    for number in process.ENDING:
        loop.add_signal_handler(number, daemon.end, "a signal")
    await daemon.run(ready)


if __name__ == "__main__":
    signal.pthread_sigmask(signal.SIG_UNBLOCK, process.ENDING)
    try:
        asyncio.run(main(sys.argv[1], int(sys.argv[2])))
    except asyncio.CancelledError:
        sys.exit(1)
