"""./lab bench --server through a real sshd, and as the tasks of a real mpirun. All of them are on this host, and use the one device that it
has. CI installs openssh-server and openmpi-bin for this; no other test needs them."""
import contextlib
import csv
import os
import shutil
import socket
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

import needs_device
from lab.paths import ROOT

LAB = str(ROOT / "lab")
BENCH = [LAB, "bench", "--quick", "--repeats", "1", "--only", "latency/write"]
LIMIT = 600  # seconds
NODES = 4
PROGRAMS = {"Ssh": ["/usr/sbin/sshd", "ssh", "ssh-keygen"], "OpenMpi": ["mpirun"]}


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


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
        process = subprocess.Popen(argv, env={**os.environ, **environment}, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

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
        run = subprocess.run([*map(str, argv), "--results", str(self.results)], env={**os.environ, **environment}, stdin=subprocess.DEVNULL,
                             capture_output=True, text=True, timeout=LIMIT, cwd=ROOT)
        self.assertEqual(run.returncode, 0, run.stdout + run.stderr + self.logs())
        with open(self.results / "results.csv", newline="") as file:
            rows = [row for row in csv.DictReader(file) if (row["arm"], row["metric"]) == ("write", "latency_us")]
        self.assertEqual(sorted(row["client"] for row in rows), [str(client) for client in range(1, clients + 1)])
        for row in rows:
            self.assertEqual(row["state"], "ok", row)
            self.assertGreater(float(row["median"]), 0, row)


class Ssh(Launcher):
    def test_server_behind_a_real_sshd(self):
        key, port = self.folder / "key", free_port()
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
        shutil.copy(f"{key}.pub", self.folder / "authorized")
        config = self.folder / "config"
        config.write_text(f"ListenAddress 127.0.0.1:{port}\nHostKey {key}\nAuthorizedKeysFile {self.folder}/authorized\nPidFile none\n"
                          "AcceptEnv LAB_*\nStrictModes no\nUsePAM no\nPasswordAuthentication no\nPermitRootLogin yes\n")
        if os.getuid() == 0:
            Path("/run/sshd").mkdir(exist_ok=True)
        self.start("/usr/sbin/sshd", "-D", "-e", "-f", str(config))
        known = self.folder / "known"
        ssh = ["ssh", "-p", str(port), "-i", str(key), "-o", "BatchMode=yes", "-o", "SendEnv=LAB_*", "-o", "ConnectTimeout=5", "-o", "StrictHostKeyChecking=accept-new", "-o", f"UserKnownHostsFile={known}"]
        self.wait_until(lambda: subprocess.run([*ssh, "127.0.0.1", "true"], capture_output=True, stdin=subprocess.DEVNULL, timeout=60).returncode == 0, "sshd")
        self.bench([*BENCH, "--server", "127.0.0.1"], 1, BENCH_SSH=" ".join(ssh))


class OpenMpi(Launcher):
    def test_tasks_of_mpirun(self):
        as_root = ["--allow-run-as-root"] if os.getuid() == 0 else []
        self.bench(["mpirun", *as_root, "--oversubscribe", "-n", str(NODES), *BENCH], NODES - 1)


if __name__ == "__main__":
    needs_device.main()
