# SPDX-License-Identifier: MIT
"""The texts, and the comments and the names in the sources, avoid the phrases of phrases.txt, each
of which has a plainer word beside it."""
import re
import unittest
from pathlib import Path

from lab.paths import ROOT

PHRASES = Path(__file__).parent / "phrases.txt"
# Generated blocks, code and commands are not prose.
BLOCK = re.compile(
    r"^<!-- (?!not-run|words)\w+[^>]*-->$.*?^<!-- end -->$|^<!-- [^>]*-->$|^```.*?^```$",
    re.M | re.S)
CODE = re.compile(r"`[^`\n]*`")
STRING = r'"(?:[^"\\\n]|\\.)*"|//.*|(?<!:)#.*'


def phrases():
    for line in PHRASES.read_text().splitlines():
        if line and not line.startswith("#"):
            phrase, better = line.rsplit(" | ", 1)
            yield re.compile(rf"(?<!\w)(?:{phrase})\b", re.I), better


def prose(text):
    """The text, with as many lines, and with what is not prose left empty."""
    blank = BLOCK.sub(lambda match: "\n" * match[0].count("\n"), text)
    return CODE.sub("x", blank)


def comments(text):
    """Of C++ or C, each on its line."""
    return "\n".join(
        match[1] if (match := re.search(r"(?://+|^ \*|/\*+) ?(.*)$", line)) else ""
        for line in text.split("\n"))


def names(text):
    """The identifiers of the source, each on its line as words in lower case: `lookWhether_x` is
    "look whether x". A mark stands between them, so that no phrase spans two."""
    def words(name):
        return " ".join(re.findall(r"[A-Z]?[a-z0-9]+|[A-Z]+", name)).lower()

    return "\n".join(
        "| " + " | ".join(
            words(name) for name in re.findall(r"[A-Za-z_]\w*", re.sub(STRING, "", line)))
        for line in text.split("\n"))


def found(text):
    """@return (line, words, better words)"""
    text = prose(text)
    return [
        (text.count("\n", 0, match.start()) + 1, match[0], better)
        for phrase, better in phrases()
        for match in phrase.finditer(text)
    ]


class Language(unittest.TestCase):
    maxDiff = None

    def test_texts(self):
        wrong = [
            f"{path.relative_to(ROOT)}:{line}: {words!r}: {better}"
            for path in (
                ROOT / "README.md", ROOT / "CONTRIBUTING.md",
                *sorted((ROOT / "lessons").glob("*.md")), *sorted((ROOT / "tools").glob("*/*.md")))
            for line, words, better in found(path.read_text())
        ]
        self.assertEqual("\n".join(wrong), "")

    def test_comments(self):
        sources = [
            path
            for folder in ("rdmacommon", "rdmashared", "examples")
            for ending in ("*.hpp", "*.cpp", "*.h", "*.c")
            for path in sorted((ROOT / folder).rglob(ending))
        ]
        self.assertGreater(len(sources), 100)
        wrong = [
            f"{path.relative_to(ROOT)}:{line}: {words!r}: {better}"
            for path in sources
            for line, words, better in found(comments(path.read_text()))
        ]
        self.assertEqual("\n".join(wrong), "")

    def test_names(self):
        sources = [
            path
            for folder in ("rdmacommon", "rdmashared", "examples", "tools", "tests")
            for ending in ("*.hpp", "*.cpp", "*.h", "*.c", "*.py")
            for path in sorted((ROOT / folder).rglob(ending))
        ]
        self.assertGreater(len(sources), 300)
        wrong = [
            f"{path.relative_to(ROOT)}:{line}: {words!r}: {better}"
            for path in sources
            if path != Path(__file__).resolve()
            for line, words, better in found(names(path.read_text()))
        ]
        self.assertEqual("\n".join(wrong), "")

    def test_finds_names(self):
        source = "int a;\nvoid look_whether_alive();\nint LooksWhetherUp, look, whether;\n"
        self.assertEqual([line for line, *_ in found(names(source))], [2, 3])

    def test_finds_them(self):
        self.assertEqual(
            [
                line
                for line, *_ in found(
                    comments("int whoever; // not a word\n\n/// Wait\n/// for whoever it is.\n"))],
            [4])
        self.assertEqual(
            [
                words
                for _, words, _ in found(
                    "It works for ever. Who waits, polls.\nTo poll costs time.")],
            ["for ever", "Who", "To poll costs"])
        self.assertEqual(
            found(
                "```text\nfor ever\n```\n<!-- snippet a b -->\nwhoever\n<!-- end -->\n`is to be`"),
            [])
        self.assertEqual(
            [
                line
                for line, *_ in found(
                    "<!-- not-run: why -->\nwhoever\n<!-- snippet a b -->\n<!-- end -->\n")],
            [2])


if __name__ == "__main__":
    unittest.main(verbosity=2)
