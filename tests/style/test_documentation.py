# SPDX-License-Identifier: MIT
"""Each documentation comment of the public headers begins with a noun, or with a verb in the third
person: a reader sees what it is about without the code. Each type has one."""
import re
import unittest

from lab.paths import ROOT

FOLDERS = ("rdmacommon/include", "rdmashared/include")
# A comment that begins with one of these has no subject.
FORBIDDEN = {
    "after", "as", "at", "before", "by", "first", "for", "from", "how", "if", "in", "of", "on",
    "that", "to", "up", "what", "when", "where", "whether", "which", "who", "whose", "why", "with"
}
COMMENT = re.compile(r"///(<?) ?(.*)$")
HIDDEN = re.compile(r"^/// @cond.*?^/// @endcond", re.M | re.S)
TYPE = re.compile(r"^(?:template <.*> )?(?:class|struct|enum class|concept|using) (\w+)\b.*[{=]")


def comments(text):
    """@return (line, the first line of the comment)"""
    before = None  # the kind of the comment on the line before: "", "<", or None
    for number, line in enumerate(text.splitlines(), start=1):
        found = COMMENT.search(line)
        if not found:
            before = None
            continue
        kind, words = found.groups()
        goes_on = line.lstrip().startswith("///") and before == kind
        if not goes_on and not words.startswith("@"):
            yield number, words
        before = kind


def undocumented(text):
    """@return (line, name) of each type at namespace scope without a comment before it"""
    lines = HIDDEN.sub(lambda match: "\n" * match[0].count("\n"), text).splitlines()
    for number, line in enumerate(lines, start=1):
        if found := TYPE.match(line):
            above = number - 2
            while re.match(r"template <|// ", lines[above]):
                above -= 1
            if not lines[above].startswith("///"):
                yield number, found[1]


def headers():
    return [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.hpp"))]


class Documentation(unittest.TestCase):
    maxDiff = None

    def test_first_words(self):
        self.assertGreater(len(headers()), 20)
        wrong = [
            f"{path.relative_to(ROOT)}:{line}: {words}"
            for path in headers()
            for line, words in comments(path.read_text())
            if re.split(r"\W", words, maxsplit=1)[0].lower() in FORBIDDEN
        ]
        self.assertEqual("\n".join(wrong), "")

    def test_types(self):
        wrong = [
            f"{path.relative_to(ROOT)}:{line}: {name}"
            for path in headers()
            for line, name in undocumented(path.read_text())
        ]
        self.assertEqual(wrong, [])

    def test_finds_them(self):
        text = (
            "/// Whether it is so.\n/// of two lines\nbool is();\nint a; ///< Of all.\n"
            "      ///< where it goes on\nint b; ///< The number.\n/// @return how many\n")
        self.assertEqual(
            list(comments(text)), [(1, "Whether it is so."), (4, "Of all."), (6, "The number.")])
        text = (
            "\nclass Known;\n/// A thing.\ntemplate <typename T>\nclass Thing {\n};\n"
            "struct Other {};\nusing File = int;\n/// @cond\nstruct Hidden {};\n/// @endcond\n")
        self.assertEqual(list(undocumented(text)), [(7, "Other"), (8, "File")])


if __name__ == "__main__":
    unittest.main(verbosity=2)
