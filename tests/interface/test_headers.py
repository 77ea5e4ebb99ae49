# SPDX-License-Identifier: MIT
"""Each header of the libraries compiles by itself, with nothing of the tree but what is
installed."""
import concurrent.futures
import re
import subprocess
import tempfile
import unittest
from pathlib import Path

import copies
from lab.paths import ROOT

LIBRARIES = ("rdmacommon", "rdmashared")


def run(*argv, **options):
    return subprocess.run(
        argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options)


class Headers(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        temp = tempfile.TemporaryDirectory()
        cls.addClassCleanup(temp.cleanup)
        cls.include = copies.install(Path(temp.name)) / "include"
        cls.headers = sorted(
            path.relative_to(cls.include).as_posix() for path in cls.include.rglob("*"))
        cls.headers = [name for name in cls.headers if name.endswith(".hpp")]

    def compiles(self, header):
        verbs = run("pkg-config", "--cflags", "libibverbs", "librdmacm").stdout.split()
        return run(
            "c++", "-std=c++20", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-I", self.include,
            *verbs, "-x", "c++", "-", input=f"#include <{header}>\n", cwd=self.include)

    def test_each_compiles_by_itself(self):
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            for header, result in zip(self.headers, pool.map(self.compiles, self.headers)):
                with self.subTest(header):
                    self.assertEqual(result.returncode, 0, result.stdout)

    def test_all_are_installed(self):
        there = {
            f"{name}/{path.name}"
            for name in LIBRARIES
            for path in (ROOT / name / "include" / name).iterdir()
        }
        self.assertEqual(set(self.headers), there)
        self.assertGreater(len(there), 20)

    def test_none_includes_what_is_behind_it(self):
        for header in self.headers:
            for name in re.findall(
                r'^\s*#\s*include\s*[<"](.+?)[>"]', (self.include / header).read_text(), re.M
            ):
                if name.endswith(".hpp"):
                    self.assertIn(name, self.headers, header)


if __name__ == "__main__":
    unittest.main(verbosity=2)
