"""Owns the emulated machine: starts QEMU, passes frames between clients and the agent inside, and ends
it when nobody has used it for a while. Runs as a process of its own, started by machine.py.

    client --unix socket--> keeper --virtio port--> agent --> command

A client's connection is one command. The keeper listens only once the machine is ready, so whoever can
connect has a machine. QEMU cannot outlive the keeper, and the machine does not outlive its port.
"""
from __future__ import annotations

import asyncio
import ctypes
import fcntl
import marshal
import os
import signal
import socket
import sys
import time
from pathlib import Path

from lab import kernel as kernels
from lab import process, qemu
from lab.errors import LabError
from lab.frames import (CHUNK, CRASH, EXIT, HELLO, KILL, PING, READY, REFUSED, START, STATUS, STOP, Splitter,
                        pack)
from lab.paths import ROOT, cache_dir, runtime_dir

KVM_LIMIT = 8      # seconds to the first word; KVM that only seems to work never gets there
BOOT_LIMIT = 60    # the same under emulation
SILENCE_LIMIT = 60  # an agent that does not answer for so long is taken for dead
IDLE_LIMIT = float(os.environ.get("LAB_IDLE", "180"))


def die_with_parent() -> None:
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


class Machine:
    """One run of QEMU and the stream to the agent in it."""

    def __init__(self, kernel: kernels.Kernel, accelerator: str):
        self.kernel, self.accelerator = kernel, accelerator
        self.console = runtime_dir() / "console.log"
        self.splitter = Splitter()

    async def start(self, limit: float) -> None:
        """@raises LabError if the agent does not speak within `limit` seconds"""
        began = time.monotonic()
        ours, theirs = socket.socketpair()
        argv = qemu.command(self.kernel, kernels.initramfs(self.kernel), self.accelerator, theirs.fileno(),
                            self.console)
        self.console.write_bytes(b"")
        with open(self.console, "ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                *argv, stdin=asyncio.subprocess.DEVNULL, stdout=log, stderr=log, pass_fds=[theirs.fileno()],
                preexec_fn=die_with_parent)
        theirs.close()
        self.reader, self.writer = await asyncio.open_connection(sock=ours)
        self.send(0, START, marshal.dumps({"root": str(ROOT), "modules": str(self.kernel.modules)}))
        try:
            while not any(kind == READY for _, kind, _ in await asyncio.wait_for(self.receive(), limit)):
                pass
        except asyncio.TimeoutError:
            await self.stop()
            raise LabError(f"the emulated machine said nothing for {limit:g} s{self.last_words()}") from None
        except EOFError:
            await self.stop()
            raise LabError(f"the emulated machine did not start{self.last_words()}") from None
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
        if self.process.returncode is None:
            self.process.kill()
        await self.process.wait()

    def last_words(self) -> str:
        lines = [line.strip() for line in self.console.read_text(errors="replace").splitlines() if line.strip()]
        panic = [line for line in lines[:-6] if "Kernel panic" in line]  # the call trace after it is long
        return "".join(f"\n  console: {line}" for line in panic[:1] + lines[-6:])


class Keeper:
    def __init__(self, machine: Machine, lock: Path):
        self.machine, self.lock = machine, lock
        self.clients: dict[int, asyncio.StreamWriter] = {}
        self.leaving: set[int] = set()  # those of the clients that asked for the end
        self.next_job = 1
        self.last_used = self.last_heard = time.monotonic()
        self.ended = asyncio.Event()
        self.why = ""

    # ---- a client

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
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
                        writer.write(pack(0, STATUS, marshal.dumps(self.status())))
                    else:
                        started |= kind == START
                        self.machine.send(job, kind, frame)
                await self.machine.writer.drain()
        except ConnectionError:
            pass
        finally:
            self.leaving.discard(job)
            if self.clients.pop(job, None) and started:
                self.machine.send(job, KILL)
            self.last_used = time.monotonic()
            writer.close()

    def status(self) -> dict:
        return {"qemu": self.machine.process.pid, "keeper": os.getpid(), "clients": len(self.clients) - 1,
                "accelerator": self.machine.accelerator, "boot_seconds": self.machine.boot_seconds,
                "kernel": self.machine.kernel.version}

    # ---- the agent

    async def listen_to_agent(self) -> None:
        try:
            while True:
                for job, kind, frame in await self.machine.receive():
                    self.last_heard = time.monotonic()
                    writer = self.clients.get(job)
                    if writer:
                        writer.write(pack(0, kind, frame))
                        if kind in (EXIT, REFUSED):
                            self.clients.pop(job)
                            writer.close()
        except EOFError:
            self.crash("it ended by itself")

    async def watch_the_clock(self) -> None:
        while True:
            await asyncio.sleep(min(5, IDLE_LIMIT / 4))
            now = time.monotonic()
            if self.clients:
                self.machine.send(0, PING)
                self.last_used = now
                if now - self.last_heard > SILENCE_LIMIT:
                    self.crash(f"it has not answered for {SILENCE_LIMIT} s")
            else:
                self.last_heard = now
                if now - self.last_used > IDLE_LIMIT:
                    self.go_when_idle()

    def go_when_idle(self) -> None:
        """Clients connect under the lock, so whoever holds it knows that none is on the way."""
        self.lock_file = open(self.lock, "w")
        try:
            fcntl.flock(self.lock_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.lock_file.close()
        else:
            self.end("idle")

    def crash(self, why: str) -> None:
        if not self.ended.is_set():
            message = (why + self.machine.last_words()).encode()
            for writer in self.clients.values():
                writer.write(pack(0, CRASH, message))
            self.end(why)

    def end(self, why: str) -> None:
        self.why = self.why or why
        self.ended.set()

    async def run(self, path: Path, ready) -> None:
        path.unlink(missing_ok=True)
        server = await asyncio.start_unix_server(self.serve, path)
        tasks = [asyncio.create_task(self.listen_to_agent()), asyncio.create_task(self.watch_the_clock())]
        ready("")
        await self.ended.wait()
        print(f"keeper: going, {self.why}", flush=True)
        for task in tasks:
            task.cancel()
        path.unlink(missing_ok=True)
        server.close()
        # Gone means gone: whoever waits for this connection's end may count on it that QEMU has ended.
        await self.machine.stop()
        for writer in list(self.clients.values()):
            writer.close()
            try:
                await asyncio.wait_for(writer.wait_closed(), 1)
            except (OSError, asyncio.TimeoutError):
                pass


def kvm_verdict_file() -> Path:
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return cache_dir() / f"kvm-does-not-work-{boot}"


async def boot() -> Machine:
    """A running machine, by KVM where that works. @raises LabError"""
    kernel = kernels.get()
    forced = os.environ.get("LAB_ACCEL", "")
    if forced not in ("", "kvm", "tcg"):
        raise LabError(f"LAB_ACCEL={forced}: kvm or tcg")
    verdict = kvm_verdict_file()
    if forced == "kvm" or (not forced and os.access("/dev/kvm", os.R_OK | os.W_OK) and not verdict.exists()):
        machine = Machine(kernel, "kvm")
        try:
            await machine.start(KVM_LIMIT)
            return machine
        except LabError as error:
            if forced:
                raise
            verdict.write_text(f"{error}\n")
    machine = Machine(kernel, "tcg")
    await machine.start(BOOT_LIMIT)
    return machine


async def main(report: int) -> None:
    def ready(message: str) -> None:
        os.write(report, (message or "ready").encode())
        os.close(report)

    loop = asyncio.get_running_loop()
    starting = asyncio.current_task()
    for number in process.ENDING:
        loop.add_signal_handler(number, starting.cancel)
    try:
        machine = await boot()
    except LabError as error:
        return ready(str(error))
    folder = runtime_dir()
    keeper = Keeper(machine, folder / "lock")
    for number in process.ENDING:
        loop.add_signal_handler(number, keeper.end, "a signal")
    await keeper.run(folder / "socket", ready)


if __name__ == "__main__":
    signal.pthread_sigmask(signal.SIG_UNBLOCK, process.ENDING)
    try:
        asyncio.run(main(int(sys.argv[1])))
    except asyncio.CancelledError:
        sys.exit(1)
