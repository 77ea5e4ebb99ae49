# SPDX-License-Identifier: MIT
"""A program that was linked to an earlier librdmashared runs with this one: every symbol that was
ever there is there. What the headers do not declare is not. Record new ones with --record."""
import re
import subprocess
import sys
import unittest
from pathlib import Path

from lab import build

RECORDED = Path(__file__).parent / "rdmashared.symbols"
LIBRARY = build.directory() / "rdmashared/librdmashared.so"
PUBLIC = re.compile(
    r"_ZNK?10rdmashared(6Caller|7Metrics|7Pending|7Request|6Sender|6Server|9Histogram)"
    r"|_Z(N|T[ISV]N)10rdmashared13RequestFailed|_ZN10rdmashared(9words_for|18serve_until_signal)E")


def symbols():
    shown = subprocess.run(
        ["nm", "--dynamic", "--defined-only", "--with-symbol-versions", LIBRARY],
        capture_output=True, text=True, check=True).stdout
    return {line.split()[2] for line in shown.splitlines()}


def public():
    """Those of the private struct Family depend on the compiler."""
    return {name for name in symbols() if PUBLIC.match(name) and "6Family" not in name}


class Symbols(unittest.TestCase):
    def test_recorded_ones_are_there(self):
        """One that is missing breaks programs: it needs another soname."""
        self.assertEqual(set(RECORDED.read_text().split()) - public(), set())

    def test_all_are_recorded(self):
        self.assertEqual(public() - set(RECORDED.read_text().split()), set())

    def test_what_is_behind_the_headers_is_not_there(self):
        inner = r"_ZNK?10rdmashared(4Lane|4Loop|7Session|10SenderLoop|7OutRing|10CallerArea)"
        self.assertEqual([name for name in symbols() if re.match(inner, name)], [])


if __name__ == "__main__":
    if "--record" in sys.argv:
        RECORDED.write_text("\n".join(sorted(public())) + "\n")
    else:
        unittest.main(verbosity=2)
