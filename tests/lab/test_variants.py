# SPDX-License-Identifier: MIT
"""Which expected output holds where, and that each variant is one that a lesson shows."""
import re
import tempfile
import unittest
from pathlib import Path
from unittest import mock

from lab import examples, normalise, variants
from lab.commands import record, sync
from lab.errors import UsageError
from lab.paths import ROOT
from lab.place import Place

NAMES = [
    "x.txt", "x.kernel-6.4.txt", "x.kernel-6.12.txt", "x.y.txt", "x.command.txt",
    "x.command.kernel-6.2.rdma-core-45.txt", "xx.kernel-6.1.txt"]


class Choosing(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        for name in NAMES:
            (self.folder / name).touch()

    def chosen(self, name, **have):
        return variants.choose(
            self.folder / name, {what.replace("_", "-"): number for what, number in have.items()}
        ).name

    def test_the_newest_that_is_reached(self):
        for kernel, name in {
            (6, 1): "x.txt", (6, 3, 99): "x.txt", (6, 4): "x.kernel-6.4.txt",
            (6, 4, 0): "x.kernel-6.4.txt", (6, 11, 5): "x.kernel-6.4.txt",
            (6, 12, 107): "x.kernel-6.12.txt", (7, 0): "x.kernel-6.12.txt"
        }.items():
            with self.subTest(kernel):
                self.assertEqual(self.chosen("x.txt", kernel=kernel, rdma_core=(44, 0)), name)

    def test_all_conditions_have_to_hold(self):
        for kernel, library, is_variant in (
            ((6, 1), (56, 0), False),
            ((6, 12), (44, 0), False),
            ((6, 12), (45, 0), True),
        ):
            with self.subTest(kernel=kernel, library=library):
                self.assertEqual(
                    self.chosen("x.command.txt", kernel=kernel, rdma_core=library),
                    (
                        "x.command.kernel-6.2.rdma-core-45.txt"
                        if is_variant
                        else "x.command.txt"))

    def test_without_a_variant(self):
        self.assertEqual(
            self.chosen("x.y.txt", kernel=(9, 9), rdma_core=(99,)), "x.y.txt")
        self.assertEqual(self.chosen("no_such.txt", kernel=(9, 9), rdma_core=(99,)), "no_such.txt")
        self.assertEqual(self.chosen("x.txt"), "x.txt")

    def test_names(self):
        file = self.folder / "x.y.txt"
        self.assertEqual(variants.named(file, "kernel-6.4").name, "x.y.kernel-6.4.txt")
        for name in NAMES:
            path = self.folder / name
            self.assertEqual(bool(variants.conditions(path)), variants.base(path) != path, name)
        self.assertEqual(
            variants.conditions(self.folder / NAMES[5]), {"kernel": (6, 2), "rdma-core": (45,)})
        for wrong in ("kernel", "6.4", "kernel-six", "glibc-2.41", "kernel-6.4.x"):
            with self.subTest(wrong), self.assertRaises(ValueError):
                variants.named(file, wrong)

    def test_versions(self):
        for text, numbers in {
            "6.12.107+deb13-amd64": (6, 12, 107),
            "6.1.0-56-amd64": (6, 1, 0),
            "1.14.56.0\n": (1, 14, 56, 0),
        }.items():
            self.assertEqual(variants.version(text), numbers)


class There(unittest.TestCase):
    def test_of_this_machine(self):
        have = variants.there(Place("softroce", "", "rxe0", "10.77.0.1"))
        self.assertGreaterEqual(have["kernel"], (3,))
        self.assertGreaterEqual(have["rdma-core"], (39,))

    def test_another_device_has_no_variants(self):
        self.assertEqual(variants.there(Place("device", "", "mlx5_0", "10.77.0.1")), {})

    def test_record_takes_what_this_place_shows(self):
        here = Place("softroce", "", "rxe0", "10.77.0.1")
        record.check_condition(here, None)
        record.check_condition(here, "kernel-3.0")
        for wrong in ("kernel-999.0", "kernel-3.0.rdma-core-999", "glibc-2.41"):
            with self.subTest(wrong), self.assertRaises(UsageError):
                record.check_condition(here, wrong)


class Used(unittest.TestCase):
    """Those of the recorded outputs."""

    FILES = [path for path in examples.recorded() if variants.conditions(path)]

    def test_each_differs_from_an_output_that_is_there(self):
        self.assertGreater(len(self.FILES), 5)
        for path in self.FILES:
            with self.subTest(path.name):
                sides = [
                    [normalise.normalise(line, "rxe0") for line in file.read_text().splitlines()]
                    for file in (variants.base(path), path)]
                self.assertNotEqual(*sides)

    def test_a_lesson_shows_it_and_names_the_condition(self):
        """No lesson shows what an exercise prints."""
        pages = [page.read_text() for page in (ROOT / "lessons").glob("*.md")]
        for path in self.FILES:
            if path.parent.name == "exercises":
                continue
            with self.subTest(path.name):
                where = re.escape(str(path.relative_to(ROOT)))
                marked = re.compile(f"<!-- (newer|output) {where} -->")
                shown = [" ".join(text.split()) for text in pages if marked.search(text)]
                self.assertEqual(len(shown), 1)
                for what, number in variants.conditions(path).items():
                    self.assertIn(f"{what} {'.'.join(map(str, number))}", shown[0])

    def test_what_is_newer(self):
        with tempfile.TemporaryDirectory() as folder, mock.patch.object(sync, "ROOT", Path(folder)):
            for name, lines in {
                "x.txt": "same\nold 1.250 us\nport: TCP port 5\n",
                "x.kernel-6.4.txt": "same\nnew 3.500 us\nport: TCP port 7\n",
            }.items():
                Path(folder, name).write_text(lines)
            self.assertEqual(
                sync.newer(Path("x.md"), "x.kernel-6.4.txt"), ["```text", "new 3.500 us", "```"])
            with self.assertRaisesRegex(ValueError, "names no condition"):
                sync.newer(Path("x.md"), "x.txt")


if __name__ == "__main__":
    unittest.main(verbosity=2)
