# SPDX-License-Identifier: MIT
"""./lab exec: runs any command where the device is, or on one of two hosts. place.wrap() runs this
file, too."""
from __future__ import annotations

import os
import signal
import subprocess
import sys

# as a program: python3 tools/lab/commands/execute.py HOST COMMAND…, in an emulated machine
if __name__ == "__main__":
    sys.path[0] = os.path.abspath(os.path.join(os.path.dirname(__file__), "../.."))

from lab import process
from lab.errors import UsageError
from lab.machine import machine
from lab.obstacles import guarded


def add_parser(subparsers) -> None:
    parser = subparsers.add_parser(
        "exec", help="run a command where the device is: ./lab exec -- ibv_devinfo",
        epilog="In the emulated machine, a command reads all files of the host. Files that it "
        "writes are kept only below this folder.")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--device", help="the RDMA device, where there are several")
    which.add_argument(
        "--on", choices=machine.HOSTS, default="", help="on one of the two hosts of ./lab hosts")
    parser.add_argument(
        "--timeout", type=float, metavar="SECONDS", help="end it after so long, exit status 124")
    parser.add_argument("command", nargs="...", metavar="-- COMMAND")
    parser.set_defaults(main=main)


def main(args) -> int:
    from lab import build, packages, place

    command = args.command[1:] if args.command[:1] == ["--"] else args.command
    if not command:
        raise UsageError("exec needs a command: ./lab exec -- ibv_devinfo")
    packages.ensure(*(["device", "machine"] if args.on else place.groups(args.device)))
    # The lessons name programs like this.
    if command[0].startswith("build/examples/") and not os.path.exists(command[0]):
        packages.ensure("build")
        build.build(command[0].removeprefix("build/"))
    where = place.find_host(args.on) if args.on else place.find_place(args.device)
    if where.kind == "machine":
        return machine.end_like(machine.execute(command, where.host, args.timeout))
    return machine.end_like(here(command, args.timeout))


def here(command: "list[str]", timeout: "float | None") -> int:
    """Runs `command` in this very machine, with the results that it has in the emulated one."""
    try:
        if timeout is None:
            os.execvp(command[0], command)
        running = subprocess.Popen(command)
    except OSError as error:
        print(f"lab: {command[0]}: {error.strerror}", file=sys.stderr)
        return 126 if isinstance(error, PermissionError) else 127
    for number in machine.FORWARDED:
        signal.signal(number, lambda number, _: running.send_signal(number))
    try:
        return running.wait(timeout)
    except subprocess.TimeoutExpired:
        running.terminate()
    try:
        running.wait(machine.GRACE)
    except subprocess.TimeoutExpired:
        running.kill()
        running.wait()
    print(f"lab: stopped after the time limit of {timeout:g} s", file=sys.stderr)
    return machine.TIMED_OUT


if __name__ == "__main__":
    process.prepare()
    sys.exit(
        guarded(
            lambda: machine.end_like(machine.execute(sys.argv[2:], sys.argv[1])),
            failed=machine.CRASHED))
