# SPDX-License-Identifier: MIT
"""Warning-free with g++ and clang++, and clean under the address and undefined-behaviour
sanitizers.

Each build has a folder of its own below the build folder, so that a second run has little to do.
"""
import concurrent.futures
import json
import os
import shlex
import shutil
import subprocess
import unittest
from pathlib import Path

from lab import build
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
            CXX=compiler)
    return folder


def run(argv, **environment):
    result = subprocess.run(
        argv, env={**os.environ, **environment}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True)
    if result.returncode:
        raise AssertionError(f"{' '.join(argv)}:\n{result.stdout[-6000:]}")
    return result.stdout


def check_syntax(command):
    """Compiles a source for its warnings alone, which takes half the time."""
    argv = shlex.split(command["command"])
    del argv[argv.index("-o") : argv.index("-o") + 2]
    return subprocess.run(
        [*argv, "-fsyntax-only"], cwd=command["directory"], stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


# These run with the sanitizers. Other tests find what the rest would find, at less cost: test_fuzz
# runs the exchange's code with a peer's bytes under the same sanitizers, and test_examples makes
# each failure of lesson 11.
SANITIZED = [
    "unit", "test_examples", "test_atomics", "test_fragments", "test_datagrams", "test_trace"]
# The folders with their programs, and programs of other folders.
FOLDERS = ["rdmacommon", "rdmashared", "examples", "tools/trace", "tests/unit"]
PROGRAMS = ["tests/trace/traced", "tests/faults/lying_writer", "tests/faults/lying_datagrams"]


@unittest.skipIf(os.environ.get("LAB_NESTED"), "a build within a build")
class Builds(unittest.TestCase):
    def test_clang(self):
        """It builds what is installed. Of the examples and the tests it reads the sources."""
        folder = configure("clang", "clang++")
        installed = build.default_targets(folder, "rdmacommon", "rdmashared", "tools")
        run(["ninja", "-C", str(folder), *installed])
        commands = json.loads((folder / "compile_commands.json").read_text())
        examples = build.default_targets(folder, "examples")
        sources = [
            command for command in commands
            if command["output"].startswith("tests/")
            or command["output"].partition(".p/")[0] in examples]
        self.assertGreater(len(sources), 100)
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            for command, result in zip(sources, pool.map(check_syntax, sources)):
                with self.subTest(command["file"]):
                    self.assertEqual((result.returncode, result.stdout), (0, ""))

    def test_gcc_with_sanitizers(self):
        folder = configure("sanitize", "g++", "-Db_sanitize=address,undefined")
        run(["ninja", "-C", str(folder), *build.default_targets(folder, *FOLDERS), *PROGRAMS])
        # The address sanitizer looks for leaks at exit as well, in the emulated machine too.
        environment = {
            "LAB_NESTED": "1",
            "LAB_BUILD": str(folder),
            "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1",
        }
        output = run(
            [
                "meson", "test", "-C", str(folder), "--no-rebuild", "--print-errorlogs",
                *SANITIZED],
            **environment)
        self.assertIn("Fail:               0", output)


if __name__ == "__main__":
    unittest.main(verbosity=2)
