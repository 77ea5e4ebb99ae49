# SPDX-License-Identifier: MIT
"""./lab check --watch sees a file being saved, in each way in which editors do it."""
import unittest
from unittest import mock

import labtest
from lab import watch


class Watch(unittest.TestCase):
    def setUp(self):
        self.folder = labtest.temporary_folder(self)
        self.file = self.folder / "02.1_three_messages.cpp"
        self.file.write_text("first")
        self.saves = watch.saves(self.file)
        next(self.saves)  # from here on, nothing is missed

    def looks(self, *between):
        """One look at the file, and another after each of these functions. The watch has to return
        at the last one, and no earlier."""
        steps = iter(between)
        with mock.patch.object(watch.time, "sleep", lambda seconds: next(steps)()):
            next(self.saves)
        self.assertEqual(list(steps), [])

    def write(self):
        self.file.write_text("second")

    def replace(self):
        self.file.unlink()
        new = self.folder / "new"
        new.write_text("third")
        new.rename(self.file)

    def other(self):
        (self.folder / "other.cpp").write_text("x")

    def test_written_before_the_watch_looks(self):
        self.write()
        self.looks()

    def test_written_and_replaced(self):
        self.looks(self.write)
        self.looks(self.other, self.replace)

    def test_nothing_else_counts(self):
        self.looks(self.other, self.file.unlink, self.write)


if __name__ == "__main__":
    unittest.main(verbosity=2)
