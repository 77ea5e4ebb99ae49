# SPDX-License-Identifier: MIT
"""The error messages of the library, the examples and ./lab, as a user sees them: plain words, and
no riddle. This command prints all of them:

    PYTHONPATH=tools:tests/support python3 tests/style/test_messages.py --list
"""
import ast
import re
import sys
import unittest

from lab.paths import ROOT
from test_language import phrases

TOPS = ("rdmacommon", "rdmashared", "examples", "tools")
STRING = r'"(?:[^"\\]|\\.)*"'
THROWN = re.compile(rf"\b(?:Error|Unsupported|nonsense)\(\s*((?:{STRING}|[^;\"])*?)\)\s*;", re.S)
RIDDLE = re.compile(
    r"^(?:it )?(?:who|whoever|whose|what) (?!it\b|was\b|is in\b)|\bhas not the\b", re.I)


def of_cpp(path):
    """@return (line, the literal parts of a message) of each error that is thrown"""
    text = path.read_text()
    for thrown in THROWN.finditer(text):
        parts = [part[1:-1] for part in re.findall(STRING, thrown[1])]
        if any(" " in part for part in parts):  # else it is only the name of a call
            yield text.count("\n", 0, thrown.start()) + 1, parts


def words(node):
    """Of an expression, with … for what is filled in."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(
            words(part) if isinstance(part, ast.Constant) else "…" for part in node.values)
    if isinstance(node, ast.BinOp):
        return words(node.left) + words(node.right)
    return "…"


def of_python(path):
    for node in ast.walk(ast.parse(path.read_text())):
        name = getattr(node, "func", None)
        name = getattr(name, "id", getattr(name, "attr", ""))
        if name in ("LabError", "UsageError") and node.args:
            yield node.lineno, [words(node.args[0])]


def messages():
    """(file:line, parts) of all."""
    files = [file for top in TOPS for file in sorted((ROOT / top).rglob("*.*"))]
    for file in files:
        find = {".cpp": of_cpp, ".hpp": of_cpp, ".py": of_python}.get(file.suffix)
        for line, parts in find(file) if find else ():
            yield f"{file.relative_to(ROOT)}:{line}", parts


class Messages(unittest.TestCase):
    maxDiff = None

    def test_they_are_found(self):
        found = list(messages())
        self.assertGreater(len(found), 300)
        self.assertTrue(any("no example" in parts[0] for _, parts in found))
        self.assertTrue(any("it is gone" in parts for _, parts in found))

    def test_plain_words(self):
        wrong = []
        for where, parts in messages():
            for part in parts:
                wrong += [
                    f"{where}: {part!r}: {better}"
                    for phrase, better in phrases()
                    if phrase.search(part)
                ]
                if RIDDLE.search(part):
                    wrong.append(f"{where}: {part!r}: name the thing")
        self.assertEqual(wrong, [])


if __name__ == "__main__":
    if "--list" in sys.argv:
        for place, text in messages():
            print(f"{place}: {' | '.join(text)}")
    else:
        unittest.main(verbosity=2)
