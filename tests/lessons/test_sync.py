# SPDX-License-Identifier: MIT
"""The generated blocks of the lessons are what their sources say; and the tool notices each way to
be wrong."""
import contextlib
import io
import re
import tempfile
import unittest
from pathlib import Path

from lab import ladder
from lab.commands import sync
from lab.errors import LabError
from lab.pages import readmes
from lab.paths import ROOT

LESSON = ROOT / "lessons/02_send_recv.md"


class Sync(unittest.TestCase):
    def test_lessons_are_up_to_date(self):
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            stale = sync.renew(check=True)
        self.assertEqual(stale, 0, "run ./lab dev sync:\n" + output.getvalue())

    def test_the_version_of_the_protocol(self):
        """The tables of its messages are written by hand."""
        version = re.search(
            r"newest_version = (\d+);", (ROOT / "rdmashared/src/wire.hpp").read_text()
        )[1]
        rows = re.findall(
            r"^\| 4 \| 2 \| version \| (\d+) \|$",
            (ROOT / "lessons/protocol.md").read_text(), re.MULTILINE)
        self.assertEqual(rows, [version, version])

    def test_the_numbers_of_the_protocol(self):
        """Those of the kinds of messages, and of the rejections."""
        code = (ROOT / "rdmashared/src/wire.hpp").read_text()
        page = (ROOT / "lessons/protocol.md").read_text()

        def names(enum):
            body = re.search(rf"enum class {enum} : \w+ {{(.*?)}};", code, re.S)[1]
            return re.findall(r"^  (\w+)", re.sub(r"//.*", "", body), re.M)

        self.assertEqual(
            re.findall(r"^\| (\d+) ([a-z_]+) \|", page, re.M),
            [(str(number), name) for number, name in enumerate(names("Kind"), 1)])
        self.assertEqual(
            [("0", "none"), *re.findall(r"^\| (\d+) \| ([a-z_]+) \| \D", page, re.M)],
            [(str(number), name) for number, name in enumerate(names("Rejection"))])

    def test_renewing_twice_changes_nothing(self):
        for path in sync.files():
            once = sync.renewed(path.read_text(), path)
            self.assertEqual(sync.renewed(once, path), once, path)

    def test_every_page_is_filled(self):
        """None is forgotten by sync.renew(), which fills their lines."""
        pages = set(ROOT.glob("*.md"))
        folders = (
            "rdmacommon", "rdmashared", "examples", "lessons", "pictures", "tests", "tools")
        for folder in folders:
            pages.update((ROOT / folder).rglob("*.md"))
        known = {*sync.files(), *sync.others(), *(path for path, _ in readmes.all_files())}
        self.assertEqual(pages - known, set())

    def test_old_block_is_replaced(self):
        marker = "<!-- snippet examples/02_send_recv/send_recv.cpp to-rts -->"
        new = sync.renewed(f"a\n{marker}\nold text\n<!-- end -->\nb\n", LESSON)
        self.assertTrue(new.startswith(f"a\n{marker}\n```cpp\n// RTR -> RTS"), new)
        self.assertTrue(new.endswith("}\n```\n<!-- end -->\nb\n"), new)
        self.assertNotIn("old text", new)

    def test_each_tag_marks_a_snippet(self):
        shown = {
            pair
            for path in sync.files()
            for pair in re.findall(r"^<!-- snippet (\S+) (\S+) -->$", path.read_text(), re.M)}
        for folder in ("examples", "rdmacommon", "rdmashared"):
            for source in (ROOT / folder).rglob("*.[ch]*"):
                name = str(source.relative_to(ROOT))
                tags = re.findall(r"^\s*// \[([\w-]+)\]$", source.read_text(), re.M)
                self.assertEqual({(name, tag) for tag in tags} - shown, set())

    def test_output_of_a_changed_program(self):
        """Without the lines that the unchanged one prints as well, if they are not the point."""
        with tempfile.TemporaryDirectory() as folder:
            good = Path(folder, "expected.txt")
            good.write_text("[a] on TCP port 1\n[a] b\n[a] c\n[a] 1.000 us\n[a] d\n")
            changed = Path(folder, "break/y.txt")
            changed.parent.mkdir()
            changed.write_text("[a] on TCP port 2\n[a] b\n[a] c\n[a] 2.000 us\n[a] d\n[a] no\n")
            self.assertEqual(sync.news(changed), ["...", "[a] 2.000 us", "[a] d", "[a] no"])
            self.assertEqual(sync.news(good), good.read_text().splitlines())

    def test_errors_name_file_and_line(self):
        for text, says in {
            "x\n<!-- snippet examples/02_send_recv/send_recv.cpp no-such -->\n<!-- end -->\n": (
                ":2: "),
            "<!-- snippet no/such/file.cpp tag -->\n<!-- end -->\n": "No such file",
            "<!-- snippet onlyonething -->\n<!-- end -->\n": "missing",
            "<!-- snipet a b -->\n<!-- end -->\n": "no marker is called snipet",
            "<!-- nav -->\n": "no <!-- end -->",
            "<!-- nav -->\n<!-- nav -->\n<!-- end -->\n": "no <!-- end -->",
            "<!-- end -->\n": "an end without a beginning",
        }.items():
            with self.subTest(text):
                with self.assertRaises(LabError) as caught:
                    sync.renewed(text, LESSON)
                self.assertIn(says, str(caught.exception))

    def test_reading_time(self):
        text = (
            "<!-- not-run: this is not read -->\nword "
            + "word " * 1495
            + "\n| four words | a row |\n```cpp\n"
            + "code;\n\n" * 100
            + "```\n```text\n"
            + "output\n" * 100
            + "```\n")
        self.assertEqual(sync.reading_minutes(text), 25)  # 10, and 10 and 5 for the blocks
        self.assertEqual(sync.reading_minutes("a few words"), 5)

    def test_a_page_beside_the_lessons_has_its_reading_time(self):
        self.assertIn(
            "\n[← index](README.md) · 5 minutes to read\n",
            sync.renewed("<!-- nav -->\n<!-- end -->\n", ROOT / "lessons/operating.md"))

    def test_lessons_are_short(self):
        """lessons/README.md says so: half an hour each, and ten hours for the main path."""
        minutes = {
            lesson: sync.reading_minutes(lesson.file.read_text()) for lesson in ladder.read()}
        self.assertEqual(
            [lesson.stem for lesson, its in minutes.items() if its > 30], [])
        self.assertLess(
            sum(its for lesson, its in minutes.items() if lesson.on_main_path), 10 * 60)


if __name__ == "__main__":
    unittest.main(verbosity=2)
