"""clang-format has nothing to change, and flake8 finds nothing in the Python files (setup.cfg has its rules)."""
import shutil
import subprocess
import unittest

from lab.paths import ROOT


class Format(unittest.TestCase):
    def test_cpp(self):
        files = [str(path) for folder in ("common", "shared", "examples", "tests", "tools") for path in (ROOT / folder).rglob("*.?pp")]
        if not shutil.which("clang-format"):
            self.fail("clang-format is missing: ./lab doctor")
        result = subprocess.run(["clang-format", "--dry-run", "-Werror", *files], cwd=ROOT, capture_output=True, text=True)
        self.assertEqual(result.returncode, 0, result.stderr)

    def test_python(self):
        if not shutil.which("flake8"):
            self.fail("flake8 is missing: ./lab doctor")
        result = subprocess.run(["flake8", "tools", "tests", "picture", "docs"], cwd=ROOT, capture_output=True, text=True)
        self.assertEqual((result.stdout, result.stderr), ("", ""))


if __name__ == "__main__":
    unittest.main(verbosity=2)
