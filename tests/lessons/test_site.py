"""The Doxygen site builds without a warning, and no link in it leads nowhere."""
import os
import re
import tempfile
import unittest
from pathlib import Path

from lab import docs, ladder
from lab.errors import LabError


class Site(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temp = tempfile.TemporaryDirectory(prefix="lab docs ")  # with a space in its name
        cls.html = docs.make(Path(cls.temp.name) / "docs").parent

    @classmethod
    def tearDownClass(cls):
        cls.temp.cleanup()

    def test_links_and_pictures(self):
        missing = set()
        for page in self.html.glob("*.html"):
            for target in re.findall(r'(?:href|src)="([^"#:?]+)["#?]', page.read_text()):
                if not os.path.exists(self.html / target):
                    missing.add(f"{page.name}: {target}")
        self.assertEqual(missing, set())

    def test_lessons_have_pages_in_order(self):
        index = (self.html / "page_lessons_README.html").read_text()
        places = [index.find(f"page_lessons_{lesson.stem}") for lesson in ladder.read()]
        self.assertNotIn(-1, places)
        self.assertEqual(places, sorted(places))

    def test_code_is_coloured(self):
        for lesson in ladder.read():
            page = (self.html / f"page_lessons_{lesson.stem}.html").read_text()
            if lesson.kind != "lesson":
                self.assertIn('class="keyword', page, lesson.stem)

    def test_a_warning_is_an_error(self):
        original = docs.example_pages
        docs.example_pages = lambda: ["/** @example no/such/file.cpp */\n"]
        try:
            with tempfile.TemporaryDirectory() as temp, self.assertRaises(LabError):
                docs.make(Path(temp) / "docs")
        finally:
            docs.example_pages = original


if __name__ == "__main__":
    unittest.main(verbosity=2)
