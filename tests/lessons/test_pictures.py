# SPDX-License-Identifier: MIT
"""The pictures are what their sources draw, and say in words what they show."""
import re
import subprocess
import sys
import unittest

from lab.paths import ROOT
from lab.wire.timeline_svg import pixels


class Pictures(unittest.TestCase):
    def test_committed_pictures_are_current(self):
        result = subprocess.run(
            [sys.executable, str(ROOT / "pictures/draw.py"), "--check"], capture_output=True,
            text=True)
        self.assertEqual(
            result.returncode, 0, "run python3 pictures/draw.py: " + result.stdout + result.stderr)

    def test_widths_do_not_depend_on_python(self):
        """The sum of ten floats 6.3 is 63.0 since Python 3.12, and was 62.99999999999999."""
        self.assertEqual((pixels("x" * 10), pixels("XX#_"), pixels("")), (63, 32.4, 0))

    def test_each_has_title_description_and_both_themes(self):
        for path in (ROOT / "pictures").glob("*/*.svg"):
            text = path.read_text()
            for part in ("<title", "<desc", "prefers-color-scheme:dark"):
                self.assertIn(part, text, path.name)
            width = int(re.search(r'width="(\d+)"', text)[1])
            for x in re.findall(r'<text x="([\d.]+)"', text):
                self.assertLess(float(x), width, path.name)


if __name__ == "__main__":
    unittest.main(verbosity=2)
