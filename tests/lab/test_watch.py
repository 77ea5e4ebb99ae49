# SPDX-License-Identifier: MIT
"""./lab check --watch sees a file being saved, in each way in which editors do it."""
import queue
import threading
import unittest

import labtest
from lab import watch


class Watch(unittest.TestCase):
    def setUp(self):
        self.folder = labtest.temporary_folder(self)
        self.file = self.folder / "02.1_three_messages.cpp"
        self.file.write_text("first")
        self.saves = watch.saves(self.file)
        next(self.saves)  # from here on, nothing is missed
        self.seen = queue.Queue()
        self.addCleanup(self.saves.close)

    def wait(self):
        """Runs the next step of the watch in a thread, since it may wait."""

        def step():
            next(self.saves)
            self.seen.put(self.file.read_text())

        thread = threading.Thread(target=step)
        thread.start()
        return thread

    def test_written(self):
        thread = self.wait()
        self.file.write_text("second")
        self.assertEqual(self.seen.get(timeout=60), "second")
        thread.join()

    def test_replaced(self):
        thread = self.wait()
        new = self.folder / "new"
        new.write_text("third")
        new.rename(self.file)
        self.assertEqual(self.seen.get(timeout=60), "third")
        thread.join()

    def test_other_files_do_not_count(self):
        thread = self.wait()
        (self.folder / "other.cpp").write_text("x")
        self.assertTrue(self.seen.empty())
        self.file.write_text("last")
        self.assertEqual(self.seen.get(timeout=60), "last")
        thread.join()
        self.assertTrue(self.seen.empty())


if __name__ == "__main__":
    unittest.main(verbosity=2)
