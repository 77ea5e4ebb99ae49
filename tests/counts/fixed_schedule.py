# SPDX-License-Identifier: MIT
"""Runs a server and a client where the device is, and counts their system calls and instructions.
Prints one line of JSON.

    python3 fixed_schedule.py SERVER CLIENT COUNTED   all JSON; COUNTED: calls, server or client

Ordinarily the scheduler chooses the order in which processes run, and the counts depend on it. Here
all of them run on one CPU, in the class SCHED_FIFO with the same priority: each runs until it
sleeps, and the next is the one that has been ready for the longest time. This program, which starts
them, stays on another CPU.

System calls are counted by the kernel (a "hist" trigger of its tracing), which sees all processes
and holds none of them up: strace stops a process at each call, and that would be another order.
Needs root.
"""
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path

LIMIT = 300  # seconds for a run that hangs
TRACING = Path("/sys/kernel/tracing")
ENTERED = TRACING / "events/raw_syscalls/sys_enter"
# The programs have these names here, by symbolic links: the filter goes by the process's name, and
# both may be one program.
COUNT = 'hist:keys=common_pid.execname,id.syscall:size=4096 if comm == "server" || comm == "client"'
LINE = re.compile(r"\{ common_pid: (\w+) .*, id: (?:sys_)?(\w+) .*\} hitcount: +(\d+)")
CALLGRIND = [
    "valgrind", "--tool=callgrind", "--trace-children=yes", "--callgrind-out-file=/dev/null"]


def fixed_schedule():
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))


@contextmanager
def counted_calls():
    """@return as it ends: {"server": {call: how often}, "client": …}"""
    if not ENTERED.exists():
        subprocess.run(["mount", "-t", "tracefs", "tracefs", TRACING], check=True)
    (ENTERED / "trigger").write_text(COUNT)
    calls = {"server": {}, "client": {}}
    try:
        yield calls
        for whose, call, count in LINE.findall((ENTERED / "hist").read_text()):
            calls[whose][call] = calls[whose].get(call, 0) + int(count)
    finally:
        (ENTERED / "trigger").write_text("!" + COUNT)


def start(folder, whose, argv, counted):
    program = folder / whose
    program.symlink_to(argv[0])
    under = [*CALLGRIND, f"--log-file={folder}/{whose}.%p.log"] if counted == whose else []
    mine = os.sched_getaffinity(0)
    os.sched_setaffinity(0, every_cpu)
    process = subprocess.Popen(
        [*under, program, *argv[1:]], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        preexec_fn=fixed_schedule)
    os.sched_setaffinity(0, mine)
    return process


def run(folder, server_argv, client_argv, counted):
    server = start(folder, "server", server_argv, counted)
    try:
        port = re.search(r"port (\d+)", server.stdout.readline())[1]
        client = start(
            folder, "client", [word.replace("PORT", port) for word in client_argv], counted)
        try:
            said = client.communicate(timeout=LIMIT)[0]
        finally:
            client.kill()
        if client.returncode:
            sys.exit(f"the client ended with {client.returncode}: {said}")
        if "--clients" in server_argv:  # slot_server, which serves until then
            server.send_signal(signal.SIGTERM)
        return server.communicate(timeout=LIMIT)[0] + said
    finally:
        server.kill()


def main():
    server, client, counted = json.loads(sys.argv[1]), json.loads(sys.argv[2]), sys.argv[3]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if counted == "calls":
            with counted_calls() as counts:
                said = run(folder, server, client, counted)
        else:
            said = run(folder, server, client, counted)
            logs = [log.read_text() for log in folder.glob("*.log")]
            counts = sum(int(re.search(r"Collected : (\d+)", log)[1]) for log in logs)
    print(json.dumps({"counts": counts, "said": said}))


# By default the kernel stops SCHED_FIFO for a twentieth of each second in which nothing else has
# run, and a slow host makes that likely.
throttle = Path("/proc/sys/kernel/sched_rt_runtime_us")
usual = throttle.read_text()
throttle.write_text("-1")
every_cpu = os.sched_getaffinity(0)
os.sched_setaffinity(0, {min(every_cpu)})
try:
    main()
finally:
    throttle.write_text(usual)
