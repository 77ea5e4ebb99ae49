"""For the tests of ./lab new and of the examples' READMEs: an installed library, and projects made from examples."""
import os
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

from lab.paths import ROOT

FAST = ["-Doptimization=0", "-Ddebug=false"]


def run(argv, cwd, **environment):
    result = subprocess.run(argv, cwd=cwd, env={**os.environ, **environment}, stdin=subprocess.DEVNULL,
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
        # Installed in one place, and moved to another: no package may name the first.
        run(["meson", "setup", "library", ROOT, f"--prefix={cls.top / 'before'}", "--libdir=lib", "-Dexamples=false",
             "-Dpkgconfig.relocatable=true", *FAST], cls.top)
        run(["meson", "install", "-C", "library"], cls.top)
        shutil.rmtree(cls.top / "library")
        cls.installed = (cls.top / "before").rename(cls.top / "installed")

    def new(self, *options, folder=None):
        """@return a project made with these options, in an empty folder of its own"""
        folder = folder or Path(tempfile.mkdtemp(dir=self.top)) / "mine"
        run([ROOT / "lab", "new", folder, *options], self.top)
        return folder
