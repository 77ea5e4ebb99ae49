# SPDX-License-Identifier: MIT
"""For the tests of ./lab new, of the examples' READMEs and of the headers: the installed libraries,
and projects made from examples."""
import fcntl
import os
import subprocess
import tempfile
import unittest
from pathlib import Path

from lab.paths import ROOT

FAST = ["-Doptimization=0", "-Ddebug=false"]
# Builds of the libraries alone, which all these tests share.
BUILDS = Path(os.environ.get("LAB_BUILD", ROOT / "build")) / "other"


def run(argv, cwd, **environment):
    result = subprocess.run(
        argv, cwd=cwd, env={**os.environ, **environment}, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if result.returncode:
        raise AssertionError(f"{' '.join(map(str, argv))}:\n{result.stdout[-4000:]}")
    return result.stdout


def install(to, kind="shared"):
    """Builds the libraries, if no test has done so before, and installs a copy of them.

    @param kind as Meson's default_library
    @return the folder that the copy is in. The libraries were configured for another one, which
    does not exist: no package may name it."""
    build = BUILDS / kind
    build.mkdir(parents=True, exist_ok=True)
    with open(BUILDS / f"{kind}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (build / "build.ninja").exists():
            run(
                [
                    "meson", "setup", build, ROOT, "--prefix=/nowhere", "--libdir=lib",
                    "-Dexamples=false", "-Dpkgconfig.relocatable=true",
                    f"-Ddefault_library={kind}", "--unity=on", *FAST],
                BUILDS)
        run(["meson", "install", "-C", build, "--destdir", to], BUILDS)
    return to / "nowhere"


class Copies(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        temp = tempfile.TemporaryDirectory(prefix="copy out ")
        cls.addClassCleanup(temp.cleanup)
        cls.top = Path(temp.name)
        # The device may be in the emulated machine, which sees the folder in which it is asked.
        cls.addClassCleanup(os.chdir, os.getcwd())
        os.chdir(cls.top)
        cls.installed = install(cls.top / "installed")

    def new(self, *options, folder=None):
        """@return a project made with these options, in an empty folder of its own"""
        folder = folder or Path(tempfile.mkdtemp(dir=self.top)) / "mine"
        run([ROOT / "lab", "new", folder, *options], self.top)
        return folder
