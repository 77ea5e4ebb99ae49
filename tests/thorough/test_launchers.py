# SPDX-License-Identifier: MIT
"""./lab bench --server through a real sshd, and as the tasks of a real mpirun and of a real srun.
All of them are on this host, and use the one device that it has. Then srun's tasks are on four
emulated hosts, each with a device of its own. CI installs openssh-server, openmpi-bin and Slurm for
this; no other test needs them."""
import contextlib
import csv
import json
import os
import shutil
import socket
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

import needs_device
from bench import arms
from lab import build
from lab.paths import ROOT

LAB = str(ROOT / "lab")
ONLY = "latency/write"
BENCH = [LAB, "bench", "--quick", "--repeats", "1", "--only", ONLY]
LIMIT = 600  # seconds
HOSTS = "abcd"
NODES = len(HOSTS)
PROGRAMS = {
    "Ssh": ["/usr/sbin/sshd", "ssh", "ssh-keygen"],
    "OpenMpi": ["mpirun"],
    "Slurm": [
        "/usr/sbin/munged", "/usr/sbin/slurmctld", "/usr/sbin/slurmd", "srun", "sinfo", "squeue",
        "scancel"],
}


def free_ports(count):
    with contextlib.ExitStack() as stack:  # all at once, or one may come twice
        listeners = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
        return [stack.enter_context(listener).getsockname()[1] for listener in listeners]


class Launcher(unittest.TestCase):
    def setUp(self):
        missing = [name for name in PROGRAMS[type(self).__name__] if not shutil.which(name)]
        if missing:
            why = f"this host has no {', '.join(missing)}"
            if os.environ.get("LAB_REQUIRE_DEVICE"):
                self.fail(why)
            self.skipTest(why)
        self.folder = Path(tempfile.mkdtemp(prefix="lab-launcher-"))
        self.addCleanup(shutil.rmtree, self.folder)
        self.results = self.folder / "results"

    def start(self, *argv, **environment):
        """A daemon, until the test ends."""
        log = open(self.folder / f"{Path(argv[0]).name}.log", "a")
        self.addCleanup(log.close)
        process = subprocess.Popen(
            argv, env={**os.environ, **environment}, stdin=subprocess.DEVNULL, stdout=log,
            stderr=log)

        def end():
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(20)
            process.kill()
            process.wait()

        self.addCleanup(end)
        return process

    def logs(self):
        return "".join(f"\n{log.name}:\n{log.read_text()}" for log in self.folder.glob("*.log"))

    def wait_until(self, is_so, what):
        """A daemon tells nobody that it is ready."""
        deadline = time.monotonic() + 60
        while not is_so():
            self.assertLess(time.monotonic(), deadline, f"no {what}{self.logs()}")
            time.sleep(0.1)

    def bench(self, argv, clients, **environment):
        run = subprocess.run(
            [*map(str, argv), "--results", str(self.results)], env={**os.environ, **environment},
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LIMIT, cwd=ROOT)
        self.assertEqual(run.returncode, 0, run.stdout + run.stderr + self.logs())
        with open(self.results / "results.csv", newline="") as file:
            rows = [
                row
                for row in csv.DictReader(file)
                if (row["arm"], row["metric"]) == ("write", "latency_us")
            ]
        self.assertEqual(
            sorted(row["client"] for row in rows), [str(client) for client in range(1, clients + 1)]
        )
        for row in rows:
            self.assertEqual(row["state"], "ok", row)
            self.assertGreater(float(row["median"]), 0, row)


class Ssh(Launcher):
    def test_server_behind_a_real_sshd(self):
        key, (port,) = self.folder / "key", free_ports(1)
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
        shutil.copy(f"{key}.pub", self.folder / "authorized")
        config = self.folder / "config"
        config.write_text(
            f"ListenAddress 127.0.0.1:{port}\nHostKey {key}\nAuthorizedKeysFile"
            f" {self.folder}/authorized\nPidFile none\nAcceptEnv LAB_*\nStrictModes no\nUsePAM"
            " no\nPasswordAuthentication no\nPermitRootLogin yes\n"
        )
        if os.getuid() == 0:
            Path("/run/sshd").mkdir(exist_ok=True)
        self.start("/usr/sbin/sshd", "-D", "-e", "-f", str(config))
        known = self.folder / "known"
        ssh = [
            "ssh", "-p", str(port), "-i", str(key), "-o", "BatchMode=yes", "-o", "SendEnv=LAB_*",
            "-o", "ConnectTimeout=5", "-o", "StrictHostKeyChecking=accept-new", "-o",
            f"UserKnownHostsFile={known}"]
        self.wait_until(
            lambda: subprocess.run(
                [*ssh, "127.0.0.1", "true"], capture_output=True, stdin=subprocess.DEVNULL,
                timeout=60).returncode
            == 0,
            "sshd",
        )
        self.bench([*BENCH, "--server", "127.0.0.1"], 1, BENCH_SSH=" ".join(ssh))


class OpenMpi(Launcher):
    def test_tasks_of_mpirun(self):
        as_root = ["--allow-run-as-root"] if os.getuid() == 0 else []
        self.bench(["mpirun", *as_root, "--oversubscribe", "-n", str(NODES), *BENCH], NODES - 1)


class Slurm(Launcher):
    """A cluster of one machine: each of its nodes is a slurmd with a port and a folder of its
    own."""

    def setUp(self):
        super().setUp()
        self.start_cluster()

    def start_cluster(self):
        self.folder.chmod(0o711)  # munged wants everybody to get at its socket
        key, munge = self.folder / "munge.key", self.folder / "munge.socket"
        config = self.folder / "slurm.conf"
        (self.folder / "state").mkdir()
        key.touch(mode=0o600)
        key.write_bytes(os.urandom(128))
        here, (port, *ports) = socket.gethostname().split(".")[0], free_ports(1 + NODES)
        # Without cgroups, which a container cannot make: processes are found in /proc, and nothing
        # limits or counts what they use.
        config.write_text(
            "\n".join(
                [
                    "ClusterName=lab",
                    f"SlurmctldHost={here}(127.0.0.1)",
                    f"SlurmctldPort={port}",
                    f"SlurmUser={os.getuid()}",
                    f"SlurmdUser={os.getuid()}",
                    f"AuthInfo=socket={munge}",
                    f"StateSaveLocation={self.folder}/state",
                    f"SlurmdSpoolDir={self.folder}/%n",
                    f"SlurmctldPidFile={self.folder}/slurmctld.pid",
                    f"SlurmdPidFile={self.folder}/%n.pid",
                    "ProctrackType=proctrack/linuxproc",
                    "JobAcctGatherType=jobacct_gather/none",
                    "TaskPlugin=task/none",
                    "MpiDefault=none",
                    *(
                        f"NodeName={name} NodeHostname={here} NodeAddr=127.0.0.1 Port={port}"
                        for name, port in zip(HOSTS, ports)
                    ),
                    "PartitionName=all Nodes=ALL Default=YES\n",
                ]
            )
        )
        # The plugin for version 1 looks at cgroups only when somebody wants one. By default slurmd
        # looks for their version when it starts, and then ends: "No filesystem mounted on
        # /sys/fs/cgroup".
        (self.folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
        self.environment = {**os.environ, "SLURM_CONF": str(config)}
        self.start(
            "/usr/sbin/munged", "--foreground", "--key-file", str(key), "--socket", str(munge),
            "--pid-file", f"{munge}.pid", "--log-file", f"{munge}.log", "--seed-file",
            f"{munge}.seed")
        self.wait_until(munge.exists, "munged")
        self.start("/usr/sbin/slurmctld", "-D", "-f", str(config))
        for name in HOSTS:
            self.start("/usr/sbin/slurmd", "-D", "-N", name, "-f", str(config))
        idle = ["sinfo", "--noheader", "--states=idle", "--Format=nodes"]
        self.wait_until(lambda: self.ask(*idle).strip() == str(NODES), "nodes")
        self.addCleanup(self.end_jobs)

    def ask(self, *argv):
        return subprocess.run(
            argv, env=self.environment, stdin=subprocess.DEVNULL, capture_output=True, text=True,
            timeout=60).stdout

    def end_jobs(self):
        """What srun has left behind, if its time limit has ended it."""
        if self.ask("squeue", "--noheader"):
            self.ask("scancel", "--state=RUNNING")
            self.wait_until(lambda: not self.ask("squeue", "--noheader"), "end of the job")

    def srun(self, *argv, **environment):
        self.bench(
            ["srun", f"--nodes={NODES}", f"--ntasks={NODES}", *argv], NODES - 1,
            SLURM_CONF=self.environment["SLURM_CONF"], **environment)

    def test_tasks_of_srun(self):
        self.srun(*BENCH)

    def test_each_task_on_an_emulated_host_of_its_own(self):
        """A node has the name of its host. The hosts share only the project's folder."""
        programs = arms.programs(arms.probes(True, (ONLY,)))
        build.build(*(f"examples/{name}" for name in programs))  # there it would take long
        (ROOT / "results").mkdir(exist_ok=True)
        self.results = Path(tempfile.mkdtemp(prefix="test-", dir=ROOT / "results"))
        self.addCleanup(shutil.rmtree, self.results)
        hosts = {"LAB_HOSTS": "4", "LAB_MACHINE": f"test-{os.getpid()}", "LAB_PLACE": ""}

        def lab(*words):
            return subprocess.run(
                [LAB, *words], env={**os.environ, **hosts}, timeout=LIMIT, stdin=subprocess.DEVNULL,
                capture_output=True, text=True)

        self.addCleanup(lab, "down")
        # Not by a task: what that starts ends with it.
        started = lab("exec", "--on", HOSTS[-1], "--", "true")
        self.assertEqual(started.returncode, 0, started.stderr)
        on_its_host = 'exec "$0" exec --on "$SLURMD_NODENAME" -- "$@"'
        self.srun("sh", "-c", on_its_host, LAB, *BENCH, **hosts)
        said = json.loads((self.results / "machine.json").read_text())
        clients = [said["clients"][str(client)]["host"] for client in range(1, NODES)]
        self.assertEqual([said["server"]["host"], *clients], list(HOSTS))


if __name__ == "__main__":
    needs_device.main()
