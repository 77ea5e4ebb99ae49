"""./lab new makes a project that builds outside the tree, against an installed rdmacommon and as a subproject."""
import os
import re
import subprocess
import tempfile
import unittest
from pathlib import Path

import needs_device
from lab import examples
from lab.paths import ROOT


def run(argv, cwd, **environment):
    result = subprocess.run(argv, cwd=cwd, env={**os.environ, **environment}, stdin=subprocess.DEVNULL,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if result.returncode:
        raise AssertionError(f"{' '.join(map(str, argv))}:\n{result.stdout[-4000:]}")
    return result.stdout


class New(unittest.TestCase):
    def setUp(self):
        temp = tempfile.TemporaryDirectory(prefix="copy out ")
        self.addCleanup(temp.cleanup)
        self.top = Path(temp.name)
        self.project = self.top / "mine"
        run([ROOT / "lab", "new", str(self.project), "--from", "02_send_recv"], self.top)

    def runs(self, build, *prefix):
        """Both sides, where the device is; the folder outside the tree has to be visible there."""
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(self.project)
        argv = [*prefix, str(build / "send_recv")]
        outcome = examples.run_pair(needs_device.PLACE, argv, argv)
        self.assertEqual(outcome.status, {"server": 0, "client": 0}, outcome.text())
        self.assertIn('received "hello from the server"', outcome.of("client"))

    def test_against_installed_library(self):
        installed = self.project / "installed"  # so that it is seen where the device is
        run(["meson", "setup", "build", ROOT, f"--prefix={installed}", "--libdir=lib", "-Dexamples=false"], self.top)
        run(["meson", "install", "-C", "build"], self.top)
        run(["meson", "setup", "build"], self.project, PKG_CONFIG_PATH=str(installed / "lib/pkgconfig"))
        run(["ninja", "-C", "build"], self.project)
        self.assertFalse((self.project / "subprojects").exists())
        self.runs(self.project / "build", "env", f"LD_LIBRARY_PATH={installed}/lib")

    def test_as_subproject(self):
        (self.project / "subprojects").mkdir()
        (self.project / "subprojects/rdma-by-example").symlink_to(ROOT)
        run(["meson", "setup", "build"], self.project)
        run(["ninja", "-C", "build"], self.project)
        self.runs(self.project / "build")

    def test_meson_build_is_a_dozen_lines(self):
        self.assertLessEqual(len((self.project / "meson.build").read_text().splitlines()), 12)
        self.assertIn("meson setup build", (self.project / "README.md").read_text())

    def test_what_the_programs_share_is_no_program(self):
        run([ROOT / "lab", "new", self.top / "shared", "--from", "19"], self.top)
        meson = (self.top / "shared/meson.build").read_text()
        self.assertEqual(re.findall(r"^executable\('(\w+)'", meson, re.M), ["slot_server", "shared_client", "word_count", "own_connections", "tcp_requests"])
        self.assertRegex(meson, r"(?m)^parts = static_library\('parts', .*'caller.cpp'")
        self.assertIn("build/slot_server", (self.top / "shared/README.md").read_text())

    def test_does_not_overwrite(self):
        result = subprocess.run([ROOT / "lab", "new", self.project, "--from", "02"], capture_output=True, text=True)
        self.assertEqual(result.returncode, 1)
        self.assertIn("not empty", result.stderr)


if __name__ == "__main__":
    needs_device.main()
