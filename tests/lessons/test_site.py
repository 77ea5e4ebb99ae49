# SPDX-License-Identifier: MIT
"""The Doxygen site builds without a warning, and no link in it leads nowhere."""
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from lab import ladder
from lab.commands import docs
from lab.errors import LabError
from lab.pages import book
from lab.paths import ROOT

sys.path.insert(0, str(ROOT / "tools/site"))
import filter as docs_filter  # noqa: E402


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

    def test_links_to_headings(self):
        """Doxygen says nothing if it prints a heading as text, with its label, and then nothing has
        the label."""
        pages = {page.name: page.read_text() for page in self.html.glob("page_*.html")}
        ids = {name: set(re.findall(r'id="([^"]+)"', text)) for name, text in pages.items()}
        missing = {
            f"{name}: {target}#{heading}"
            for name, text in pages.items()
            for target, heading in re.findall(r'href="(page_[^"#]*)#([^"]+)"', text)
            if heading not in ids[target]
        }
        self.assertEqual(missing, set())

    def test_each_snippet_leads_to_its_line(self):
        for lesson in ladder.read():
            links = re.findall(
                r'<small><a href="([^"#]*)#(l\d+)">([^<,]*), line (\d+)</a>',
                (self.html / f"page_lessons_{lesson.stem}.html").read_text())
            tags = re.findall(r"^<!-- snippet (\S+) (\S+) -->$", lesson.file.read_text(), re.M)
            self.assertEqual([file for _, _, file, _ in links], [file for file, _ in tags])
            for (page, anchor, file, number), (_, tag) in zip(links, tags):
                line = (ROOT / file).read_text().splitlines()[int(number) - 2]
                self.assertEqual(line.strip(), f"// [{tag}]")
                self.assertIn(f'id="{anchor}"', (self.html / page).read_text(), page)

    def test_a_solution_has_a_page_that_names_its_lesson(self):
        """Also if it lies in the folder of another lesson."""
        lesson = (self.html / "page_lessons_24_shared_server.html").read_text()
        page = re.search(r'href="([^"]*24_81_overtake_8patch-example.html)"', lesson)[1]
        text = (self.html / page).read_text()
        self.assertIn('href="page_lessons_24_shared_server.html"', text)
        self.assertIn("inline_services", text)

    def test_sources_of_the_libraries_are_linked(self):
        for lesson, page in (
            ("02_send_recv", "src_2exchange_8cpp"), ("23_shared_client", "src_2caller_area_8cpp"),
        ):
            text = (self.html / f"page_lessons_{lesson}.html").read_text()
            self.assertTrue(f'href="{page}-example.html' in text, page)

    def test_find_knows_every_section(self):
        """What tools/site/find.js shows; tests/thorough/test_browser.py types into the box."""
        text = (self.html / "find_data.js").read_text()
        sections = json.loads(text.removeprefix("const sections = ").removesuffix(";\n"))
        ids = {
            page.name: set(re.findall(r'id="([^"]+)"', page.read_text()))
            for page in self.html.glob("page_lessons_*.html")}
        for _, _, address, _ in sections:
            page, _, anchor = address.partition("#")
            self.assertIn(page, ids)
            if anchor:
                self.assertIn(anchor, ids[page])
        for word in ("RNR", "EINVAL", "ibv_post_send", "IBV_WC_RETRY_EXC_ERR"):
            self.assertTrue(any(word in section[3] for section in sections), word)
        for page in ("index.html", "page_lessons_README.html"):
            self.assertIn('<input id="find"', (self.html / page).read_text())

    def test_book_is_whole(self):
        text = book.whole(self.html)
        for lesson in ladder.read():
            self.assertIn(f'<section id="page_lessons_{lesson.stem}">', text)
        ids = set(re.findall(r'id="([^"]+)"', text))
        self.assertEqual(set(re.findall(r'href="#([^"]+)"', text)) - ids, set())
        self.assertNotIn("find_data.js", text)

    def test_emphasis_and_links(self):
        found = set()
        for page in self.html.glob("page_*.html"):
            prose = re.sub(r'<div class="line">.*', "", page.read_text())
            if re.search(r"\*<a |</a>\*|<a [^>]*>\*", prose):
                found.add(page.name)
        self.assertEqual(found, set())

    def test_lessons_have_pages_in_order(self):
        index = (self.html / "page_lessons_README.html").read_text()
        places = [index.find(f"page_lessons_{lesson.stem}") for lesson in ladder.read()]
        self.assertNotIn(-1, places)
        self.assertEqual(places, sorted(places))

    def test_pages_beside_the_ladder_are_in_the_tree(self):
        for path in (ROOT / "lessons").glob("[a-z]*.md"):
            self.assertIn(path.stem, ("what_is_rdma", *ladder.BESIDE))
            self.assertTrue((self.html / f"page_lessons_{path.stem}.html").exists(), path.stem)

    def test_code_is_coloured(self):
        for lesson in ladder.read():
            page = (self.html / f"page_lessons_{lesson.stem}.html").read_text()
            if lesson.has_program:
                self.assertIn('class="keyword', page, lesson.stem)

    def test_every_helper_is_linked_to_its_lesson(self):
        without, helpers = set(), 0
        for page in [
            *self.html.glob("*rdmacommon_1_1*.html"), *self.html.glob("*rdmashared_1_1*.html"),
            *self.html.glob("*_8hpp.html")
        ]:
            if page.stem.endswith("-members"):
                continue
            text = page.read_text()
            # A class is one helper, with its members; a header's page has one memitem for each
            # function.
            parts = (
                re.split(r'<div class="memitem">', text)[1:]
                if page.stem.endswith("_8hpp")
                else [text])
            helpers += len(parts)
            without |= {
                f"{page.name}: {part[:200]}" for part in parts if 'href="page_lessons_' not in part}
        self.assertEqual(without, set())
        self.assertGreater(helpers, 80)

    def test_a_header_names_the_lesson_of_each_helper(self):
        self.assertEqual(
            docs_filter.header(
                "/// @file\n/// Lesson 02_send_recv.\n\n/// One.\nint one();\n/// Two:"
                " 04_read_write.\nint two();\n"),
            (
                '/// @file\n/// Lesson @ref page_lessons_02_send_recv "02_send_recv".\n\n'
                '/// One. @see lesson @ref page_lessons_02_send_recv "02_send_recv"\nint one();\n'
                '/// Two: @ref page_lessons_04_read_write "04_read_write".\nint two();\n'))

    def test_ninja_makes_it_in_its_own_folder(self):
        """`ninja docs`, as people type it who know Meson, with a build folder of any name."""
        environment = {name: value for name, value in os.environ.items() if name != "LAB_BUILD"}
        with tempfile.TemporaryDirectory() as temp:
            for command in (["meson", "setup", temp, str(ROOT)], ["ninja", "-C", temp, "docs"]):
                result = subprocess.run(
                    command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                    text=True)
                self.assertEqual(result.returncode, 0, result.stdout)
            self.assertTrue((Path(temp) / "docs/html/index.html").exists(), result.stdout)

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
