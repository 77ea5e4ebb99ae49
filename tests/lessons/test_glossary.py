# SPDX-License-Identifier: MIT
"""The glossary, and the links to it at the first use of each term."""
import re
import unittest

from lab import ladder
from lab.commands import sync
from lab.pages import glossary
from lab.paths import ROOT

LESSON = ROOT / "lessons/02_send_recv.md"
TERMS = glossary.read(
    "## Completion\n\n<!-- words: completion, completions -->\n\nX.\n\n"
    "## Completion queue\n\n<!-- words: completion queue, CQ -->\n\nX.\n\n"
    "## Slot\n\n<!-- words: slot; only: 18 operating -->\n\nX.\n")
CQ = "(glossary.md#completion-queue)"
ONE = "(glossary.md#completion)"


class Glossary(unittest.TestCase):
    def links(self, text, expected, path=LESSON):
        result = glossary.linked(text, path, TERMS)
        self.assertEqual(result, expected)
        self.assertEqual(
            glossary.linked(result, path, TERMS), expected, "linking twice changes nothing")

    def test_first_use_of_each_term(self):
        self.links(
            "The CQ, a CQ; completions, a completion.",
            f"The [CQ]{CQ}, a CQ; [completions]{ONE}, a completion.")
        self.links("- **Completion queue**: x\n", f"- **[Completion queue]{CQ}**: x\n")
        self.links(
            "CQs, precompletion, CQ-like, completion(3), cq",
            "CQs, precompletion, CQ-like, completion(3), cq")

    def test_what_is_no_running_text(self):
        for text in (
            "# CQ\n", "### A completion\n", "| CQ | completion |\n", "```cpp\nCQ\n\nCQ\n```\n",
            "`CQ`, `a\nCQ`\n", "[a CQ](x.md), ![a CQ](x.svg)\n",
            "<!-- output x -->\nCQ\n\nCQ\n<!-- end -->\n", "<!-- not-run: no CQ -->\n",
            "https://x/CQ\n"
        ):
            with self.subTest(text):
                self.links(text, text)
                self.links(text + "\nCQ\n", f"{text}\n[CQ]{CQ}\n")

    def test_a_wrong_link_goes(self):
        self.links("a queue [x](glossary.md#completion-queue), the CQ", f"a queue x, the [CQ]{CQ}")
        self.links(
            "[CQ](glossary.md#renamed) and [CQ](glossary.md#completion-queue)", f"[CQ]{CQ} and CQ")

    def test_a_term_over_the_end_of_a_line_comes_on_one(self):
        self.links("the completion\nqueue is full\n", f"the [completion queue]{CQ}\nis full\n")
        self.links("- x completion\n  queue, full\n", f"- x [completion queue]{CQ},\n  full\n")
        self.links("the completion\nqueue.\nNext\n", f"the [completion queue]{CQ}.\nNext\n")

    def test_a_word_that_means_something_else_elsewhere(self):
        self.links("a slot", "a slot")
        for page in ("18_memory_area", "operating"):
            self.links("a slot", "a [slot](glossary.md#slot)", ROOT / f"lessons/{page}.md")

    def test_pages_without(self):
        for name in glossary.WITHOUT:
            path = ROOT / f"lessons/{name}.md"
            self.assertTrue(path.exists())
            self.assertEqual(glossary.linked("a CQ", path, TERMS), "a CQ")
        self.assertEqual(glossary.linked("a CQ", ROOT / "README.md", TERMS), "a CQ")

    def test_a_heading_without_words_is_an_error(self):
        with self.assertRaisesRegex(ValueError, "Lost"):
            glossary.read("## Lost\n\nText.\n\n## Slot\n\n<!-- words: slot -->\n\nX.\n")

    def test_entries(self):
        terms = glossary.read()
        names = [term.name.lower() for term in terms]
        self.assertEqual(names, sorted(names))
        words = [word for term in terms for word in term.words]
        self.assertEqual(len(words), len(set(words)), "a word of two terms")
        places = {lesson.number for lesson in ladder.read()}.union(ladder.BESIDE)
        for term in terms:
            with self.subTest(term.name):
                self.assertLessEqual(set(term.only), places)
                self.assertRegex(
                    term.text, r"\[[Ll]esson \d\d\]\(\d\d_\w+\.md\)",
                    "names the lesson that teaches it")
                explained = re.sub(r"\[[^\]]*\]\([^)]*\)", "", term.text)
                self.assertGreater(len(explained.split()), 12)
                self.assertLess(len(explained.split()), 80)

    def test_every_term_is_used(self):
        text = "".join(glossary.linked(path.read_text(), path) for path in sync.files())
        self.assertEqual(
            [term.name for term in glossary.read() if f"glossary.md#{term.anchor})" not in text], []
        )


if __name__ == "__main__":
    unittest.main(verbosity=2)
