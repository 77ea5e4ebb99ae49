# SPDX-License-Identifier: MIT
"""Each documentation comment of the public headers begins with a noun, or with a verb in the third
person: a reader sees what it is about without the code. Each type has one, and so has each internal
type of the libraries. No other comment begins with a word that leaves out what the comment is
about."""
import re
import unittest

from lab.paths import ROOT

FOLDERS = ("rdmacommon/include", "rdmashared/include")
# A comment that begins with one of these has no subject.
HEADLESS = {
    "how", "of", "that", "to", "what", "where", "whether", "which", "who", "whose", "why"
}
FORBIDDEN = HEADLESS | {
    "after", "as", "at", "before", "by", "first", "for", "from", "if", "in", "on", "up", "when",
    "with"
}
STRING = re.compile(r'"(?:[^"\\\n]|\\.)*"')
# A line with nothing else in it separates two comments.
SEPARATOR = re.compile(r"SPDX-.*|@file|\[[\w-]+\]")
COMMENT = re.compile(r"(///?<?|/\*+) ?(.*)$")
HIDDEN = re.compile(r"^/// @cond.*?^/// @endcond", re.M | re.S)
TYPE = re.compile(r"^(?:template <.*> )?(?:class|struct|enum class|concept|using) (\w+)\b.*[{=]")


def comments(text):
    """@return (line, how it begins, the first line of the comment). A line whose comment stands
    below another one goes on with it."""
    column = None  # where the comment on the line before begins
    for number, line in enumerate(text.splitlines(), start=1):
        found = COMMENT.search(STRING.sub(lambda string: "x" * len(string[0]), line))
        if not found or SEPARATOR.fullmatch(found[2]):
            column = None
            continue
        goes_on = found.start() == column and not line[:column].strip()
        if not goes_on and not found[2].startswith("@"):
            yield number, found[1], found[2]
        column = found.start()


def first_word(words):
    return re.split(r"\W", words, maxsplit=1)[0].lower()


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
            for line, mark, words in comments(path.read_text())
            if mark.startswith("///")
            and (first_word(words) in FORBIDDEN or words.startswith("The same "))
        ]
        self.assertEqual("\n".join(wrong), "")

    def test_comments_have_a_subject(self):
        sources = [
            path
            for folder in ("rdmacommon", "rdmashared", "examples", "tools", "tests")
            for ending in ("*.hpp", "*.cpp", "*.h", "*.c")
            for path in sorted((ROOT / folder).rglob(ending))
        ]
        self.assertGreater(len(sources), 300)
        wrong = [
            f"{path.relative_to(ROOT)}:{line}: {words}"
            for path in sources
            for line, _, words in comments(path.read_text())
            if first_word(words) in HEADLESS
        ]
        self.assertEqual("\n".join(wrong), "")

    def test_types(self):
        wrong = [
            f"{path.relative_to(ROOT)}:{line}: {name}"
            for path in headers()
            for line, name in undocumented(path.read_text())
        ]
        self.assertEqual(wrong, [])

    def test_internal_types(self):
        """Their comments begin with two slashes."""
        wrong = [
            f"{path.relative_to(ROOT)}:{line}: {name}"
            for folder in ("rdmacommon/src", "rdmashared/src")
            for path in sorted((ROOT / folder).glob("*.hpp"))
            for line, name in undocumented(
                re.sub(r"^// (?!\[)", "/// ", path.read_text(), flags=re.M))
        ]
        self.assertEqual(wrong, [])

    def test_finds_them(self):
        text = (
            "// SPDX-License-Identifier: MIT\n/// @file\n/// Whether it is so.\n/// of two lines\n"
            'bool is("// not");\nint a; ///< Of all.\n       ///< where it goes on\n'
            "int b; // [tag]\n       // the number\n// [tag]\n// How\n/// @return how many\n")
        self.assertEqual(
            list(comments(text)),
            [(3, "///", "Whether it is so."), (6, "///<", "Of all."), (9, "//", "the number"),
             (11, "//", "How")])
        text = (
            "\nclass Known;\n/// A thing.\ntemplate <typename T>\nclass Thing {\n};\n"
            "struct Other {};\nusing File = int;\n/// @cond\nstruct Hidden {};\n/// @endcond\n")
        self.assertEqual(list(undocumented(text)), [(7, "Other"), (8, "File")])


if __name__ == "__main__":
    unittest.main(verbosity=2)
