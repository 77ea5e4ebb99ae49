# SPDX-License-Identifier: MIT
"""The site in a real browser: every page, wide and on a phone, light and dark."""
import html
import json
import re
import shutil
import subprocess
import tempfile
import unittest
import urllib.parse
from pathlib import Path

from lab import ladder
from lab.commands import docs
from lab.pages import book
from site_server import SiteServer

HERE = Path(__file__).resolve().parent
PHONE, WIDE = 390, 1280
AT_ONCE = 40  # pages in one command line
LIMIT = 1200


class Browser(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temp = tempfile.TemporaryDirectory(prefix="lab site ")
        cls.html = docs.make(Path(cls.temp.name) / "docs").parent
        shutil.copy(HERE / "page_check.html", cls.html)
        cls.server = SiteServer(cls.html)
        # Listings of the sources and lists of members are Doxygen's own affair.
        cls.pages = sorted(
            path.name
            for path in cls.html.glob("*.html")
            if path.name != "page_check.html"
            and not re.search(
                r"_source\.html$|-members\.html$|^(globals|functions|namespacemembers|dir_)",
                path.name))
        cls.wide, cls.said = cls.look(WIDE)

    @classmethod
    def tearDownClass(cls):
        cls.server.close()
        cls.temp.cleanup()

    @classmethod
    def look(cls, width, *options, pages=None):
        """@return the findings of page_check.html on each page, and the messages of the console"""
        found, said = {}, ""
        pages = pages or cls.pages
        for begin in range(0, len(pages), AT_ONCE):
            wanted = urllib.parse.quote(
                json.dumps({"pages": pages[begin : begin + AT_ONCE], "width": width}))
            with tempfile.TemporaryDirectory() as profile:
                result = subprocess.run(
                    [
                        "chromium", "--headless", "--no-sandbox", "--disable-gpu",
                        "--disable-dev-shm-usage", f"--user-data-dir={profile}",
                        "--enable-logging=stderr", "--virtual-time-budget=600000",
                        f"--window-size={WIDE + 40},1000", *options, "--dump-dom",
                        f"{cls.server.url}/page_check.html#{wanted}"],
                    capture_output=True,
                    text=True,
                    timeout=LIMIT)
            body = re.search(r"<body>(\{.*\})</body>", result.stdout, re.S)
            if not body:
                raise AssertionError(
                    f"the browser did not finish:\n{result.stdout[-2000:]}\n{result.stderr[-2000:]}"
                )
            found.update(json.loads(html.unescape(body[1])))
            said += result.stderr
        return found, said

    def test_console_is_silent(self):
        self.assertEqual([line for line in self.said.splitlines() if "CONSOLE" in line], [])

    def test_pictures_are_there_and_have_words(self):
        self.assertEqual(
            {
                name: page["pictures"] + page["nameless"]
                for name, page in self.wide.items()
                if page["pictures"] + page["nameless"]
            },
            {})

    def test_links_lead_to_what_there_is(self):
        missing = set()
        for name, page in self.wide.items():
            for link in page["links"]:
                target = urllib.parse.urlsplit(link)
                if f"{target.scheme}://{target.netloc}" != self.server.url:
                    continue
                file = urllib.parse.unquote(target.path).lstrip("/") or "index.html"
                if not (self.html / file).exists():
                    missing.add(f"{name}: {file}")
                elif (
                    target.fragment
                    and file in self.wide
                    and urllib.parse.unquote(target.fragment) not in self.wide[file]["ids"]
                ):
                    missing.add(f"{name}: {file}#{target.fragment}")
        self.assertEqual(missing, set())

    def test_nothing_overflows(self):
        phone, _ = self.look(PHONE)
        for width, pages in ((WIDE, self.wide), (PHONE, phone)):
            self.assertEqual(
                {name: page["overflow"][:3] for name, page in pages.items() if page["overflow"]},
                {}, f"at {width} pixels")

    def test_code_is_coloured(self):
        for lesson in ladder.read():
            if lesson.has_program:
                self.assertGreater(
                    self.wide[f"page_lessons_{lesson.stem}.html"]["coloured"], 0, lesson.stem)

    def test_finds_words(self):
        for word, wanted in (("RNR", "rnr-retry"), ("EINVAL", "einval"), ("ibv_post_send", "post")):
            with tempfile.TemporaryDirectory() as profile:
                result = subprocess.run(
                    [
                        *("chromium", "--headless", "--no-sandbox", "--disable-gpu"),
                        *("--disable-dev-shm-usage", f"--user-data-dir={profile}"),
                        *("--virtual-time-budget=60000", "--dump-dom"),
                        f"{self.server.url}/page_lessons_README.html?find={word}"],
                    capture_output=True,
                    text=True,
                    timeout=LIMIT)
            found = re.search(r'<ul id="found">(.*?)</ul>', result.stdout, re.S)
            self.assertIsNotNone(found, result.stderr[-2000:])
            self.assertIn(wanted, found[1].lower())
            self.assertLessEqual(found[1].count("<li>"), 20)

    def test_book(self):
        printed = book.make(self.html).read_bytes()
        self.assertTrue(printed.startswith(b"%PDF"))
        self.assertGreater(len(re.findall(rb"/Type\s*/Page\b", printed)), 10 * len(ladder.read()))

    def test_follows_the_readers_theme(self):
        page = ["page_lessons_02_send_recv.html"]
        dark, _ = self.look(WIDE, "--blink-settings=preferredColorScheme=0", pages=page)
        light, _ = self.look(WIDE, "--blink-settings=preferredColorScheme=1", pages=page)
        self.assertEqual(
            [dark[page[0]]["background"], dark[page[0]]["ink"]],
            ["rgb(13, 17, 23)", "rgb(230, 237, 243)"])
        self.assertEqual(
            [light[page[0]]["background"], light[page[0]]["ink"]],
            ["rgb(255, 255, 255)", "rgb(31, 35, 40)"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
