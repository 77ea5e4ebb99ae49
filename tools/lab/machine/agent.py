# SPDX-License-Identifier: MIT
"""Runs inside the emulated machine, as its process 1: starts commands, carries their input and
output over the virtio port, and says how they ended. It imports little, since every import is slow
under emulation, and it ends the machine when the daemon at the other end of the port is gone.
"""
import errno
import fcntl
import marshal
import os
import select
import signal
import sys
import termios

sys.path.insert(0, "/run/lab")
from frames import (  # noqa: E402
    CHUNK,
    CREDIT,
    EXIT,
    KILL,
    NUMBER,
    PING,
    READY,
    REFUSED,
    RESIZE,
    SIGNAL,
    START,
    STDERR,
    STDIN,
    STDOUT,
    WINDOW,
    Splitter,
    pack,
)

HOST = "/run/lab/host"
# The machine has its own folders of these names. The host's are bound in where needed.
HIDDEN = ("/tmp/", "/run/", "/dev/")


class Job:
    """One command: its process group, and the pipes (or the terminal) that it talks through."""

    def __init__(self, number):
        self.number = number
        self.pid = 0
        self.status = None
        self.outputs = {}  # fd -> STDOUT or STDERR
        self.unacknowledged = 0  # bytes of output for which no credit has come back
        self.stdin = -1
        self.input = bytearray()
        self.input_ended = False
        self.terminal = False


class Agent:
    def __init__(self):
        self.port = os.open(port_path(), os.O_RDWR)
        self.poll = select.poll()
        self.poll.register(self.port, select.POLLIN)
        self.splitter = Splitter()
        self.jobs = {}
        self.by_fd = {}
        self.wakeup, wakeup_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wakeup_write)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self.poll.register(self.wakeup, select.POLLIN)

    def send(self, job, kind, data=b""):
        view = memoryview(pack(job, kind, data))
        while view:
            view = view[os.write(self.port, view) :]

    def run(self):
        self.send(0, READY)
        while True:
            for fd, events in self.poll.poll():
                if fd == self.port:
                    self.read_port()
                elif fd == self.wakeup:
                    os.read(self.wakeup, 512)
                elif fd in self.by_fd:
                    job = self.by_fd[fd]
                    if fd in job.outputs and events & (select.POLLIN | select.POLLHUP):
                        self.read_output(job, fd)
                    if fd == job.stdin and events & (
                        select.POLLOUT | select.POLLERR | select.POLLHUP
                    ):
                        self.write_input(job)
            self.reap()

    def read_port(self):
        data = os.read(self.port, CHUNK)
        if not data:  # the daemon is gone
            power_off()
        for job, kind, frame in self.splitter.feed(data):
            self.take(job, kind, frame)

    def take(self, number, kind, data):
        if kind == PING:
            return self.send(0, PING)
        if kind == START:
            return self.start(number, marshal.loads(data))
        job = self.jobs.get(number)
        if job is None:  # it has ended meanwhile
            return None
        if kind == STDIN:
            job.input += data
            job.input_ended |= not data
            self.watch(job)
        elif kind == CREDIT:
            job.unacknowledged -= NUMBER.unpack(data)[0]
            self.watch(job)
        elif kind == SIGNAL:
            kill(job, NUMBER.unpack(data)[0])
        elif kind == RESIZE and job.terminal:
            fcntl.ioctl(job.stdin, termios.TIOCSWINSZ, data)
        elif kind == KILL:
            kill(job, signal.SIGKILL)
            self.close(job)
        return None

    # ---- starting

    def start(self, number, what, again=False):
        job = Job(number)
        job.terminal = bool(what["terminal"])
        if job.terminal:
            master, slave = os.openpty()
            fcntl.ioctl(master, termios.TIOCSWINSZ, what["terminal"])
            theirs, ours = (slave, slave, slave), {master: STDOUT}
            job.stdin = master
        else:
            (in_read, in_write), (out, out_write), (err, err_write) = (
                os.pipe2(os.O_CLOEXEC) for _ in range(3))
            theirs, ours = (in_read, out_write, err_write), {out: STDOUT, err: STDERR}
            if what["one_output"]:  # two pipes would lose the order
                theirs = (in_read, out_write, out_write)
                del ours[err]
                os.close(err)
                os.close(err_write)
            job.stdin = in_write
        if what["visible"] or again:
            forget_names()
        try:
            for path in what["visible"]:
                make_visible(path)
        except OSError as error:
            print("agent:", error, flush=True)
        failure = b""
        try:
            job.pid = spawn(theirs, job.terminal, what)
        except OSError as error:
            status = 126 if isinstance(error, PermissionError) else 127
            failure = NUMBER.pack(status) + f"{error.filename}: {error.strerror}".encode()
        for fd in set(theirs):
            os.close(fd)
        if failure:
            for fd in {*ours, job.stdin}:
                os.close(fd)
            return (
                self.send(number, REFUSED, failure)
                if again
                else self.start(number, what, again=True))
        self.jobs[number] = job
        job.outputs = ours
        for fd in {*ours, job.stdin}:
            os.set_blocking(fd, False)
            self.by_fd[fd] = job
        return self.watch(job)

    # ---- input and output

    def watch(self, job):
        """Tells poll() what this job waits for just now."""
        for fd in {*job.outputs, job.stdin} - {-1}:
            events = 0
            if fd in job.outputs and job.unacknowledged < WINDOW:
                events |= select.POLLIN
            if fd == job.stdin and (job.input or (job.input_ended and not job.terminal)):
                events |= select.POLLOUT
            if events:
                self.poll.register(fd, events)
            else:
                self.forget(fd)

    def forget(self, fd):
        try:
            self.poll.unregister(fd)
        except KeyError:
            pass

    def read_output(self, job, fd):
        try:
            data = os.read(fd, CHUNK)
        except BlockingIOError:
            return False
        except OSError as error:  # a terminal whose last user is gone says EIO
            if error.errno != errno.EIO:
                raise
            data = b""
        if data:
            job.unacknowledged += len(data)
            self.send(job.number, job.outputs[fd], data)
            self.watch(job)
            return True
        del job.outputs[fd]
        self.close_fd(fd, job)
        return False

    def write_input(self, job):
        try:
            written = os.write(job.stdin, job.input[:CHUNK]) if job.input else 0
        except BlockingIOError:
            return
        except OSError:  # nobody reads it any more: it goes nowhere, as it would in a pipe
            written = len(job.input)
        if written:
            del job.input[:written]
            self.send(job.number, CREDIT, NUMBER.pack(written))
        if job.input_ended and not job.input and not job.terminal:
            fd, job.stdin = job.stdin, -1
            self.close_fd(fd, job)
        self.watch(job)

    def close_fd(self, fd, job):
        self.forget(fd)
        if fd in job.outputs or fd == job.stdin:  # a terminal's one descriptor is both
            return
        self.by_fd.pop(fd, None)
        os.close(fd)

    # ---- ending

    def reap(self):
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if pid == 0:
                break
            for job in self.jobs.values():
                if job.pid == pid:
                    job.status = os.waitstatus_to_exitcode(status)
        for job in [job for job in self.jobs.values() if job.status is not None]:
            # What the command had printed is in the pipes, and is little enough to be sent without
            # credit; what a child it left behind will print is not waited for.
            limit = job.unacknowledged + WINDOW
            while job.unacknowledged < limit and any(
                [self.read_output(job, fd) for fd in list(job.outputs)]
            ):
                pass
            self.send(job.number, EXIT, NUMBER.pack(job.status))
            self.close(job)

    def close(self, job):
        self.jobs.pop(job.number, None)
        fds = {*job.outputs, job.stdin} - {-1}
        job.outputs, job.stdin = {}, -1
        for fd in fds:
            self.close_fd(fd, job)


def spawn(fds, terminal, what):
    """Starts the command, in a session of its own. posix_spawn() copies no page of this process,
    and takes half the time of fork() and exec().

    @param fds what the command gets as its descriptors 0, 1 and 2
    @return its process id
    @raises OSError"""
    if terminal:
        # The first terminal that the leader of a session opens controls the session.
        actions = [(os.POSIX_SPAWN_OPEN, 0, os.ttyname(fds[0]), os.O_RDWR, 0)]
        actions += [(os.POSIX_SPAWN_DUP2, 0, target) for target in (1, 2)]
    else:
        actions = [(os.POSIX_SPAWN_DUP2, fd, target) for target, fd in enumerate(fds)]
    name, environment = what["argv"][0], what["env"]
    os.chdir(what["cwd"])
    try:
        return os.posix_spawn(
            name if "/" in name else find_program(name, environment), what["argv"], environment,
            file_actions=actions, setsid=True,
            setsigdef=[signal.SIGCHLD, signal.SIGPIPE, signal.SIGINT, signal.SIGXFSZ])
    except OSError as error:
        error.filename = name
        raise
    finally:
        os.chdir("/")


def find_program(name, environment):
    """The first file of that name in the folders of PATH that may be run, or else the first file.

    @raises FileNotFoundError if no folder has one"""
    found = [f"{folder}/{name}" for folder in os.get_exec_path(environment)]
    found = [path for path in found if os.path.isfile(path)]
    if not found:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
    return next((path for path in found if os.access(path, os.X_OK)), found[0])


def kill(job, number):
    try:
        os.killpg(job.pid, number)
    except ProcessLookupError:
        pass


def forget_names():
    """The overlay remembers which files were not there; the host may have made them meanwhile. It
    costs the next commands some 0.2 s, so it is for commands outside the project, and for those
    that were not found."""
    with open("/proc/sys/vm/drop_caches", "w") as file:
        file.write("2")


def make_visible(path):
    """Binds a folder of the host's over the machine's own where that would hide it."""
    source = HOST + path
    if not path.startswith(HIDDEN) or not os.path.isdir(source) or os.path.ismount(path):
        return
    with open("/proc/self/mounts") as mounts:
        points = [line.split()[1].encode().decode("unicode_escape") for line in mounts]
    if any(path.startswith(point + "/") for point in points if point.startswith(HIDDEN)):
        return  # a folder above it is bound in, or is a file system of its own
    os.makedirs(path, exist_ok=True)
    mount("--bind", source, path)


def mount(*arguments):
    status = os.spawnlp(os.P_WAIT, "mount", "mount", *arguments)
    if status:
        print("agent: mount", *arguments, "failed", flush=True)


def port_path():
    for name in os.listdir("/sys/class/virtio-ports"):
        with open(f"/sys/class/virtio-ports/{name}/name") as file:
            if file.read().strip() == "lab.agent":
                return "/dev/" + name
    raise RuntimeError("no virtio port lab.agent")


def power_off():
    with open("/proc/sysrq-trigger", "w") as trigger:
        trigger.write("b")  # with -no-reboot that ends QEMU
    signal.pause()


def set_up(what):
    """The project's own folder is writable, so that what a command makes there comes out."""
    root = what["root"]
    os.makedirs(root, exist_ok=True)
    mount(
        "-t", "9p", "-o", "trans=virtio,version=9p2000.L,msize=524288,cache=none", "project", root)
    # init.sh says why. The first 9p is the host's files.
    with open("/sys/class/bdi/9p-2/read_ahead_kb", "w") as read_ahead:
        read_ahead.write("512")
    modules = "/lib/modules/" + os.uname().release
    if not os.path.exists(modules):
        os.makedirs(modules)
        mount("--bind", HOST + what["modules"], modules)


def start_processors():
    """The kernel has come up on one (qemu.py)."""
    for number in range(1, os.sysconf("SC_NPROCESSORS_CONF")):
        with open(f"/sys/devices/system/cpu/cpu{number}/online", "w") as online:
            online.write("1")


def main():
    os.environ["PATH"] = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    agent = Agent()
    # The daemon's first words say where the project is.
    frames = []
    while not frames:
        frames = list(agent.splitter.feed(os.read(agent.port, CHUNK)))
    set_up(marshal.loads(frames[0][2]))
    _, status = os.waitpid(-1, 0)  # network.sh, which init.sh has started beside this
    if status:
        # The machine ends with its process 1.
        sys.exit("agent: the RDMA device could not be made")
    start_processors()
    open("/run/lab/machine", "w").close()
    agent.run()


if __name__ == "__main__":
    main()
