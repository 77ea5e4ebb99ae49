# SPDX-License-Identifier: MIT
"""For the tests of ./lab new and of the examples' READMEs: an installed library, and projects made
from examples."""
import os
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

from lab.paths import ROOT

FAST = ["-Doptimization=0", "-Ddebug=false"]


def run(argv, cwd, **environment):
    result = subprocess.run(
        argv, cwd=cwd, env={**os.environ, **environment}, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if result.returncode:
        raise AssertionError(f"{' '.join(map(str, argv))}:\n{result.stdout[-4000:]}")
    return result.stdout


class Copies(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        temp = tempfile.TemporaryDirectory(prefix="copy out ")
        cls.addClassCleanup(temp.cleanup)
        cls.top = Path(temp.name)
        # The device may be in the emulated machine, which sees the folder in which it is asked.
        cls.addClassCleanup(os.chdir, os.getcwd())
        os.chdir(cls.top)
        cls.installed = cls.install("installed")

    @classmethod
    def install(cls, name, *options):
        """Installs the libraries in one place, and moves them to another: no package may name the
        first. @return their folder"""
        run(
            [
                "meson", "setup", "library", ROOT, f"--prefix={cls.top / 'before'}", "--libdir=lib",
                "-Dexamples=false", "-Dpkgconfig.relocatable=true", *FAST, *options],
            cls.top,
        )
        run(["meson", "install", "-C", "library"], cls.top)
        shutil.rmtree(cls.top / "library")
        return (cls.top / "before").rename(cls.top / name)

    def new(self, *options, folder=None):
        """@return a project made with these options, in an empty folder of its own"""
        folder = folder or Path(tempfile.mkdtemp(dir=self.top)) / "mine"
        run([ROOT / "lab", "new", folder, *options], self.top)
        return folder
