# SPDX-License-Identifier: MIT
"""11_when_it_breaks: each failure is a command of its own, with the row that the lesson's table has
for it."""
import re
import unittest

import needs_device
from lab import examples, variants

ROW = re.compile(r"\| ([a-z-]+) \| .*")


def run(*arguments):
    return examples.run(needs_device.PLACE, needs_device.BUILD, "when_it_breaks", "pair", arguments)


class Failures(unittest.TestCase):
    @unittest.skipIf(needs_device.PLACE.kind == "device", "the lesson's table is SoftRoCE's")
    def test_each_alone(self):
        text = variants.expected(
            examples.expected_file("11_when_it_breaks"), needs_device.PLACE
        ).read_text()
        table = {row[1]: row[0] for row in ROW.finditer(text) if row[1] != "failure"}
        self.assertEqual(len(table), 10)
        for name, row in table.items():
            with self.subTest(name):
                outcome = run(name)
                self.assertFalse(outcome.failed, outcome.text())
                self.assertIn(row, outcome.of("client"))
                self.assertIn("and the server's message is here", outcome.text())

    def test_a_name_that_there_is_not(self):
        self.assertEqual(run("bad-luck").status, {"server": 2})


if __name__ == "__main__":
    needs_device.main()
