# SPDX-License-Identifier: MIT
"""./lab dev sync fills the lines of Markdown, and leaves alone what is no running text."""
import unittest

from lab.pages import headings
from lab.pages.wrap import COLUMNS, filled
from lab.paths import ROOT

LONG = " ".join(["word"] * 40)


def lines(text):
    return filled(text).split("\n")


class Wrap(unittest.TestCase):
    maxDiff = None

    def stays(self, text):
        self.assertEqual(filled(text), text)

    def test_paragraph(self):
        first, second, *rest = lines(f"one\ntwo\n{LONG}\n\nend\n")
        self.assertTrue(first.startswith("one two word"), first)
        self.assertEqual((len(first), rest[1:]), (COLUMNS - 3, ["", "end", ""]))
        self.assertEqual(len(second), COLUMNS - 1)

    def test_a_line_of_100_columns_stays_whole(self):
        self.stays("x" * 49 + " " + "y" * 50)
        self.assertEqual(lines("x" * 50 + " " + "y" * 50), ["x" * 50, "y" * 50])

    def test_list_items_keep_their_indentation(self):
        text = f"- {LONG}\n  1. a\n  b {LONG}\n\n     {LONG}\n- c\n"
        got = lines(text)
        self.assertTrue(got[0].startswith("- word") and got[1].startswith("  word"), got)
        self.assertTrue(got[3].startswith("  1. a b word") and got[4].startswith("     word"), got)
        self.assertTrue(got[7].startswith("     word"), got)
        self.assertEqual(got[-2:], ["- c", ""])
        self.assertLessEqual(max(map(len, got)), COLUMNS)

    def test_block_quote(self):
        got = lines(f"> {LONG}\n>\n> - {LONG}\n")
        self.assertTrue(all(line.startswith(">") for line in got[:-1]), got)
        self.assertEqual(got.count(">"), 1)
        self.assertIn("> - word", got[4])
        self.assertTrue(got[5].startswith(">   word"), got)
        self.assertLessEqual(max(map(len, got)), COLUMNS)

    def test_no_running_text(self):
        for text in (
            f"```text\n{LONG}\n\n{LONG}\n```\n",
            f"- a\n\n  ```sh\n  {LONG}\n  ```\n",
            f"~~~\na\n{LONG}\n~~~\n",
            f"| {LONG} |\n|---|\n| a |\n",
            f"## {LONG}\n",
            f"{LONG}\na\n===\n",
            f"<!-- a: {LONG} -->\n",
            f"<!-- nav -->\n{LONG}\na\nb\n<!-- end -->\n",
            f"[a]: https://example.org {LONG}\n[b]: x\n",
            f"a\n\n    {LONG}\n",
            f"<p>{LONG}</p>\n",
            "a\n\n---\n\nb\n",
            f"- a\n\nb\n\n    {LONG}\n",
        ):
            self.stays(text)

    def test_hard_breaks_stay(self):
        self.stays("a  \nb\\\nc\n")
        self.stays(f"- {LONG}  \n  b\n")

    def test_no_line_begins_with_a_sign(self):
        for sign in (
            "-", "+", "*", "#", "###", "1.", "23)", ">", ">=", "|", "<!-- a -->", "<b>", "---",
            "===", "```x```", "[a]:"
        ):
            for count in range(80, 101):
                got = lines("x" * count + f" {sign} y " + LONG)
                self.assertFalse(
                    [line for line in got[1:] if line.startswith(sign)], (sign, count))
        self.assertEqual(lines("x" * 99 + " -1 y")[1], "-1 y")

    def test_code_and_links_stay_whole(self):
        for whole in (
            "`a  b c`", "``a ` b``", "[a b c](d.md#e)", "[`a] b`](c.md)", "![a b](c.svg)",
            "(`a b`,", "x<!-- a  b -->"
        ):
            for count in range(80, 101):
                self.assertIn(whole, filled("x" * count + f" {whole} y"))
        self.assertEqual(filled("[a\nb](c)"), "[a b](c)")

    def test_what_other_tools_look_for_stays_on_its_line(self):
        text = "1. [02.1_" + "x" * 50 + ".cpp](../examples/" + "x" * 20 + ".cpp) (★★): Three more"
        self.assertRegex(lines(text)[0], r"^1\. \[.*\]\(.*\) \(★★\): \S")
        for count in range(60, 100):
            page = (
                "## G\n\n### A\n\n**You see** `x`, or\n" + "y" * count
                + f" e. g. `z`, and\nmore.\nText.\n{LONG}\n")
            self.assertEqual(headings.symptom_rows(filled(page)), headings.symptom_rows(page))
            self.assertRegex(filled(page), r"and\smore\.\nText\. word")

    def test_twice_changes_nothing(self):
        for path in sorted((ROOT / "lessons").glob("*.md")):
            once = filled(path.read_text())
            self.assertEqual(filled(once), once, path.name)


if __name__ == "__main__":
    unittest.main(verbosity=2)
