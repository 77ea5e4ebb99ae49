# SPDX-License-Identifier: MIT
"""Runs in the emulated machine: loads a lesson's module, prints what it says, and unloads it again.

    guest_module.py MODULE.ko [--unload-at TEXT] NAME=VALUE…

All that a module says is in the kernel's log (/dev/kmsg), so waiting for it is reading that. Its
end is a line "done", or one that begins with "error: ", or with "ended " if its device was removed;
with --unload-at, it is unloaded as soon as a line has that text. The exit status is 0 if it was
done, or unloaded as wanted, or its device has gone; 1 if it failed, or if the kernel itself had
something to complain about, which is printed, too.
"""
import fcntl
import os
import re
import select
import subprocess
import sys
import time

# seconds; shorter than that of ./lab run
LIMIT = 0.75 * float(os.environ.get("LAB_TIME_LIMIT", "60"))
UNLOAD_LIMIT = 30
# How the kernel begins to say that something is wrong with it (lib/dump_stack.c, kernel/panic.c,
# kernel/locking/lockdep.c, …).
COMPLAINT = re.compile(
    r"BUG|WARNING: |Oops|general protection|INFO: task .* blocked|possible .*"
    r" detected|refcount_t:|list_(?:add|del) corruption"
    r"|unregister_netdevice: waiting|stack segment|Kernel panic|rxe_cleanup|DMA-API|UBSAN:|rcu:"
    r" INFO|divide error|invalid opcode"
    r"|double fault|cut here|Call [Tt]race:|Unable to handle kernel")
# What the kernel says in the module's name when it loads one that is not its own.
KERNELS_OWN = re.compile("loading out-of-tree module|module verification failed")
HOST = "/run/lab/host"  # the host's files without what the machine has cached of them


class Log:
    """The kernel's log, from now on."""

    def __init__(self, module):
        self.module = module
        self.complaints = []
        self.file = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK)
        os.lseek(self.file, 0, os.SEEK_END)

    def lines(self, deadline=None, loading=None):
        """The module's own lines until the deadline, or those that are there. Ends early if
        `loading` ends with a failure."""
        while True:
            try:
                record = os.read(self.file, 8192).decode(errors="replace")
            except BlockingIOError:
                left = deadline - time.monotonic() if deadline else 0
                waiting = [self.file] + ([loading.stderr] if loading else [])
                ready = select.select(waiting, [], [], left)[0] if left > 0 else []
                if loading and loading.stderr in ready:  # its end
                    if loading.wait():
                        return
                    loading = None
                elif not ready:
                    return
                continue
            except BrokenPipeError:
                self.complaints.append("the log was overwritten before it was read")
                continue
            text = record.split(";", 1)[1].split("\n")[0]
            if KERNELS_OWN.search(text):
                continue
            if text.startswith(self.module + ": "):
                yield text[len(self.module) + 2 :]
            elif COMPLAINT.search(text):
                self.complaints.append(text)
                if deadline:  # nothing good comes after it
                    return


def unload(name):
    """@return what rmmod has to say"""
    unloading = subprocess.Popen(
        ["rmmod", name], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        return unloading.communicate(timeout=UNLOAD_LIMIT)[0].strip()
    except subprocess.TimeoutExpired:  # it waits in the kernel, where nothing ends it
        print("error: the module does not unload; ./lab down ends the machine", flush=True)
        os._exit(1)


def run(path, parameters, unload_at):
    name = os.path.basename(path)[:-3].split(".")[0]
    if os.path.exists(f"/sys/module/{name}"):  # of a run that was ended from outside
        unload(name)
    log = Log(name)
    loading = subprocess.Popen(
        ["insmod", HOST + path if os.path.exists(HOST + path) else path, *parameters],
        stderr=subprocess.PIPE, text=True)
    ended = None
    for line in log.lines(time.monotonic() + LIMIT, loading):
        print(line, flush=True)
        if (
            line == "done"
            or line.startswith(("error: ", "ended "))
            or unload_at
            and unload_at in line
        ):
            ended = line
            break
    status = 0
    if loading.wait():
        print(loading.stderr.read().strip().replace(HOST, ""))
        status = 1
    elif ended is None and not log.complaints:
        print(f"error: the module has not ended within {LIMIT:g} s")
        status = 1
    elif ended and ended.startswith("error: "):
        status = 1
    show(log.complaints)  # before what may not come back
    told = len(log.complaints)
    if not loading.returncode:
        said = unload(name)
        if said:
            print(said)
            status = 1
    for line in log.lines():
        print(line)
    show(log.complaints[told:])
    return 1 if log.complaints else status


def show(complaints):
    for line in complaints:
        print("kernel:", line, flush=True)


def main(arguments):
    path, *rest = arguments
    unload_at = ""
    if rest[:1] == ["--unload-at"]:
        unload_at, rest = rest[1], rest[2:]
    if not os.path.isdir(HOST):
        sys.exit("a module of the lab's is loaded in the emulated machine only")
    with open("/run/lab/module.lock", "w") as lock:  # one at a time: they have the same name
        fcntl.flock(lock, fcntl.LOCK_EX)
        return run(path, rest, unload_at)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
