"""Names and sizes: what the layout promises."""
import unittest
from collections import Counter

from lab import examples, ladder
from lab.paths import ROOT

FOLDERS = ["common", "examples", "tests", "tools", "picture", "docs"]
SUFFIXES = {".cpp", ".hpp", ".py", ".sh", ".svg", ".txt", ".patch"}


def files():
    return [path for folder in FOLDERS for path in (ROOT / folder).rglob("*")
            if path.suffix in SUFFIXES and "__pycache__" not in path.parts]


class Names(unittest.TestCase):
    def test_basenames_are_unique(self):
        # A header and its source share a stem, not a name; a change that is shown may have one name in two lessons.
        names = Counter(path.name for path in files() if path.parent.name != "break")
        self.assertEqual([name for name, count in names.items() if count > 1], [])

    def test_each_lesson_has_its_files(self):
        stems = [lesson.stem for lesson in ladder.read()]
        self.assertEqual(stems, sorted(stems))
        for lesson in ladder.read():
            self.assertTrue(lesson.file.exists(), lesson.stem)
            self.assertEqual((ROOT / "examples" / lesson.stem).is_dir(), lesson.kind != "lesson", lesson.stem)
        self.assertLessEqual({path.name for path in (ROOT / "examples").iterdir() if path.is_dir()}, set(stems))
        self.assertEqual({path.stem for path in (ROOT / "lessons").glob("[0-9]*.md")}, set(stems))

    def test_examples_stay_short(self):
        for path in (ROOT / "examples").rglob("*.?pp"):
            self.assertLessEqual(len(path.read_text().splitlines()), 300, path)

    def test_no_expected_output_is_left_over(self):
        known = set()
        for lesson in ladder.read():
            folder = ROOT / "examples" / lesson.stem
            known |= {lesson.stem} | {f"{lesson.stem}.break.{path.stem}" for path in folder.glob("break/*.patch")}
            known |= {path.stem for path in folder.glob("exercises/*.cpp")}
            known |= {f"{lesson.stem}.{other}" for other in examples.others(lesson)}
        names = {path.stem for path in (ROOT / "tests/expected").iterdir() if not path.stem.endswith(".transcript")}
        self.assertLessEqual(names, known)


if __name__ == "__main__":
    unittest.main(verbosity=2)
