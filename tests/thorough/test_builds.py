# SPDX-License-Identifier: MIT
"""Warning-free with g++ and clang++, and clean under the address and undefined-behaviour
sanitizers.

Each build has a folder of its own below the build folder, so that a second run has little to do.
"""
import os
import shutil
import subprocess
import unittest
from pathlib import Path

from lab.paths import ROOT

TOP = Path(os.environ.get("LAB_BUILD", ROOT / "build")) / "other"


def configure(name, compiler, *options):
    folder = TOP / name
    if not (folder / "build.ninja").exists():
        shutil.rmtree(folder, ignore_errors=True)
        run(
            [
                "meson", "setup", str(folder), str(ROOT), "-Dwerror=true", "-Dnested=true",
                "-Doptimization=0", "-Ddebug=false", *options],
            CXX=compiler,
        )
    return folder


def run(argv, **environment):
    result = subprocess.run(
        argv, env={**os.environ, **environment}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True)
    if result.returncode:
        raise AssertionError(f"{' '.join(argv)}:\n{result.stdout[-6000:]}")
    return result.stdout


@unittest.skipIf(os.environ.get("LAB_NESTED"), "a build within a build")
class Builds(unittest.TestCase):
    def test_clang(self):
        run(["ninja", "-C", str(configure("clang", "clang++"))])

    def test_gcc_with_sanitizers(self):
        folder = configure("sanitize", "g++", "-Db_sanitize=address,undefined")
        run(["ninja", "-C", str(folder)])
        # The address sanitizer looks for leaks at exit as well, in the emulated machine too.
        environment = {
            "LAB_NESTED": "1",
            "LAB_BUILD": str(folder),
            "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1",
        }
        output = run(
            [
                "meson", "test", "-C", str(folder), "--no-rebuild", "--print-errorlogs", "unit",
                "test_examples", "test_atomics", "test_failures", "test_exchange_peers",
                "test_fragments", "test_datagrams", "test_trace"],
            **environment,
        )
        self.assertIn("Fail:               0", output)


if __name__ == "__main__":
    unittest.main(verbosity=2)
