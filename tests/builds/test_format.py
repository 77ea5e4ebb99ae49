"""clang-format has nothing to change, and the Python files compile."""
import compileall
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
        for folder in ("tools", "tests", "picture", "docs"):
            self.assertTrue(compileall.compile_dir(ROOT / folder, quiet=1, force=False), folder)


if __name__ == "__main__":
    unittest.main(verbosity=2)
