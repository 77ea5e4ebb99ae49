# SPDX-License-Identifier: MIT
"""clang-format has nothing to change, sources have at most 100 columns, flake8 finds nothing in the
Python files (.flake8 has its rules), and each source names its licence."""
import shutil
import subprocess
import unittest

from lab.paths import ROOT


COLUMNS = 100  # flake8 counts those of Python, test_wrap those of Markdown
FOLDERS = ("rdmacommon", "rdmashared", "examples", "tests", "tools", "pictures")
SOURCES = {".cpp", ".hpp", ".c", ".h", ".py", ".sh", ".css"}
WITHOUT_SUFFIX = {"lab", "bare", "Doxyfile", "run", "meson.build", "meson_options.txt"}


class Format(unittest.TestCase):
    def test_cpp(self):
        files = [
            str(path)
            for folder in ("rdmacommon", "rdmashared", "examples", "tests", "tools")
            for path in (ROOT / folder).rglob("*.?pp")
        ]
        if not shutil.which("clang-format"):
            self.fail("clang-format is missing: ./lab doctor")
        result = subprocess.run(
            ["clang-format", "--dry-run", "-Werror", *files], cwd=ROOT, capture_output=True,
            text=True)
        self.assertEqual(result.returncode, 0, result.stderr)

    def test_columns(self):
        """Also of comments, which clang-format leaves alone."""
        files = [
            path
            for path in [*ROOT.glob("*"), ROOT / ".ci/run"]
            + [path for folder in FOLDERS for path in (ROOT / folder).rglob("*")]
            if path.is_file()
            and (path.suffix in SOURCES | {".def", ".html"} or path.name in WITHOUT_SUFFIX)
        ]
        self.assertGreater(len(files), 300)
        long = [
            f"{path.relative_to(ROOT)}:{number}"
            for path in files
            for number, line in enumerate(path.read_text().splitlines(), start=1)
            if len(line) > COLUMNS
        ]
        self.assertEqual(long, [])

    def test_python(self):
        if not shutil.which("flake8"):
            self.fail("flake8 is missing: ./lab doctor")
        result = subprocess.run(
            ["flake8", "tools", "tests", "pictures"], cwd=ROOT, capture_output=True,
            text=True)
        self.assertEqual((result.stdout, result.stderr), ("", ""))

    def test_each_source_names_its_licence(self):
        sources = [ROOT / "lab", ROOT / "meson.build"]
        for folder in FOLDERS:
            sources += [
                path
                for path in (ROOT / folder).rglob("*")
                if path.suffix in SOURCES or path.name == "meson.build"
            ]
        self.assertGreater(len(sources), 500)
        without = [
            str(path.relative_to(ROOT))
            for path in sources
            if "SPDX-License-Identifier: MIT" not in path.read_text()[:200]
        ]
        self.assertEqual(without, [])


if __name__ == "__main__":
    unittest.main(verbosity=2)
