# SPDX-License-Identifier: MIT
"""./lab progress: what is noted, by whom, and that a run does not fail because its note does. Needs
no device."""
import contextlib
import io
import os
import shlex
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

from lab import build, examples, ladder, packages, pair, place
from lab.commands import check, progress, run
from lab.errors import LabError
from lab.paths import ROOT

LESSONS = {lesson.number: lesson for lesson in ladder.read() if lesson.command}


def everything() -> list:
    """A line for each thing that can be noted, in the order of the lessons."""
    lines, exercises = [], progress.State([]).exercises
    for lesson in ladder.read():
        if not lesson.command:
            continue
        lines.append(("run", lesson.stem))
        lines += [("broken", lesson.stem, name) for name in examples.breaks(lesson)]
        lines += [("solved", name) for name in exercises[lesson.stem]]
    return lines


class Progress(unittest.TestCase):
    def setUp(self):
        temp = tempfile.TemporaryDirectory(prefix="lab progress ")
        self.addCleanup(temp.cleanup)
        self.folder = Path(temp.name)
        self.file = self.folder / "state/progress.txt"
        self.set(LAB_PROGRESS=str(self.file))

    def set(self, **environment):
        patch = mock.patch.dict(os.environ, environment)
        patch.start()
        self.addCleanup(patch.stop)

    def lab(self, *words, **environment):
        result = subprocess.run(
            [ROOT / "lab", "progress", *words], env={**os.environ, **environment},
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=600)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result.stdout, result.stderr

    def noted(self):
        return self.file.read_text() if self.file.is_file() else ""

    # ---- what is noted

    def outcome(self, timed_out=False, **status):
        return pair.Outcome(status=status, timed_out=timed_out)

    def do_run(self, outcome, *words):
        """./lab run, and what it notes; the programs themselves do not run."""
        parser = __import__("argparse").ArgumentParser()
        run.add_parser(parser.add_subparsers())
        with mock.patch.object(packages, "ensure"), mock.patch.object(
            build, "build", return_value=Path()
        ), mock.patch.object(
            place, "find_place", return_value=SimpleNamespace(why="x")
        ), mock.patch.object(
            examples, "run", return_value=outcome
        ), contextlib.redirect_stderr(
            io.StringIO()
        ):
            status = run.main(parser.parse_args(["run", *words]))
        return status, self.noted()

    def test_run_notes_what_has_worked(self):
        self.assertEqual(self.do_run(self.outcome(server=0, client=1), "02"), (1, ""))
        self.assertEqual(
            self.do_run(self.outcome(timed_out=True, server=0, client=0), "02"), (1, ""))
        self.assertEqual(
            self.do_run(self.outcome(server=0, client=0), "02"), (0, "run 02_send_recv\n"))
        self.assertEqual(
            self.do_run(self.outcome(server=0, client=0), "02"), (0, "run 02_send_recv\n"))

    def test_a_device_that_cannot_do_it_does_not_stop_the_reader(self):
        self.assertEqual(
            self.do_run(self.outcome(server=77, client=77), "10"),
            (pair.SKIPPED, "run 10_memory_windows\n"))

    def test_a_break_is_noted_if_it_has_failed(self):
        self.assertEqual(
            self.do_run(self.outcome(server=0, client=0), "02", "--break", "no_grh"), (1, ""))
        self.assertEqual(
            self.do_run(self.outcome(server=1, client=1), "02", "--break", "no_grh"),
            (0, "broken 02_send_recv no_grh\n"))

    def test_an_exercise_is_noted_if_it_is_solved(self):
        for missing, noted in ((["x"], ""), ([], "solved 02.1_three_messages\n")):
            with mock.patch.object(packages, "ensure"), mock.patch.object(
                build, "build"
            ), mock.patch.object(place, "find_place"), mock.patch.object(
                check, "verdict", return_value=missing
            ), contextlib.redirect_stdout(
                io.StringIO()
            ):
                self.assertEqual(
                    check.main(SimpleNamespace(exercise="02.1", watch=False)), int(bool(missing)))
            self.assertEqual(self.noted(), noted)

    def test_what_tests_run_does_not_count(self):
        self.set(LAB_PROGRESS="off")
        self.assertIsNone(progress.file())
        progress.note("run", "02_send_recv")
        self.assertEqual(progress.read(), set())
        self.assertIn("'LAB_PROGRESS': 'off'", (ROOT / "tests/meson.build").read_text())

    def test_where_it_is_kept(self):
        self.set(LAB_PROGRESS="", HOME="/home/x", XDG_STATE_HOME="/var/x")
        name = progress.file().name
        self.assertEqual(progress.file(), Path("/var/x/rdma-by-example/progress") / name)
        for ignored in ("", "not/absolute"):
            self.set(XDG_STATE_HOME=ignored)
            self.assertEqual(
                progress.file(), Path("/home/x/.local/state/rdma-by-example/progress") / name)
        with mock.patch.object(progress, "ROOT", ROOT.parent / "another" / ROOT.name):
            self.assertNotEqual(
                progress.file().name, name, "another clone's progress is not this one's")
        with mock.patch.object(Path, "home", side_effect=RuntimeError):
            self.assertIsNone(progress.file())
            progress.note("run", "02_send_recv")

    # ---- whatever the file is like

    def test_two_at_a_time(self):
        code = (
            "import sys; from lab.commands import progress\n"
            "for i in range(100): progress.note('run', f'{sys.argv[1]}-{i}')")
        started = [
            subprocess.Popen(
                [sys.executable, "-c", code, str(n)],
                env={**os.environ, "PYTHONPATH": str(ROOT / "tools")})
            for n in range(6)]
        self.assertEqual([process.wait(60) for process in started], [0] * 6)
        self.assertEqual(
            progress.read(), {("run", f"{n}-{i}") for n in range(6) for i in range(100)})

    def test_damage(self):
        self.file.parent.mkdir()
        self.file.write_bytes(b"run 02_send_recv\n\xff\xfe\0 rubbish\nrun 99_no_such\nbroken\n\n")
        progress.note("run", "03_send_variants")
        out, err = self.lab()
        self.assertIn("02_send_recv         yes", out)
        self.assertIn("03_send_variants     yes", out)
        self.assertIn("04_read_write        -", out)
        self.assertEqual(err, f"lab: {self.file}: 3 damaged lines do not count\n")

    def test_where_nothing_can_be_written(self):
        (self.folder / "file").write_text("")
        for unwritable in (self.folder / "file/progress.txt", self.folder):
            self.set(LAB_PROGRESS=str(unwritable))
            self.assertEqual(self.do_run(self.outcome(server=0, client=0), "02"), (0, ""))
            self.assertIn("lab: progress is not kept: [Errno ", self.lab()[1])
        self.set(LAB_PROGRESS=str(self.file))
        full = OSError(28, "No space left on device")
        with mock.patch.object(Path, "open", side_effect=full), contextlib.redirect_stderr(
            io.StringIO()
        ) as said:
            progress.note("run", "02_send_recv")
        self.assertRegex(said.getvalue(), "^lab: progress is not kept: .*No space.*\n$")

    # ---- what comes next

    def test_every_step_is_the_next_one(self):
        """A reader who always does what comes next does everything, in order."""
        done = []
        for line in everything():
            commands = progress.State(done).next()
            command = shlex.split(commands[0], comments=True)
            expected = {
                "run": lambda stem: (
                    ["./lab", "doctor"] if stem == "00_your_lab" else ["./lab", "run", stem]),
                "broken": lambda stem, name: ["./lab", "run", stem, "--break", name],
                "solved": lambda name: ["./lab", "check", name.split("_")[0]],
            }[line[0]](*line[1:])
            self.assertEqual(command, expected, done[-1:])
            done.append(line)
        self.assertEqual(progress.State(done).next(), [])

    def test_who_goes_on_without_exercises(self):
        commands = progress.State([("run", "04_read_write")]).next()
        self.assertTrue(commands[0].startswith("./lab run 04_read_write --break"), commands)
        self.assertTrue(commands[1].startswith("./lab run 05_write_with_imm "), commands)
        # And it leads to the lesson that was left out.
        self.assertTrue(commands[2].startswith("./lab doctor "), commands)
        commands = progress.State([("run", "00_your_lab"), ("run", "02_send_recv")]).next()
        self.assertTrue(commands[2].startswith("./lab run 01_hello_device "), commands)
        last = progress.State([]).lessons[-1].stem
        left = progress.State([line for line in everything() if line[1][:2] >= last[:2]]).next()
        self.assertTrue(left[0].startswith("./lab doctor"), left)

    def test_two_routes_from_lesson_17(self):
        before = [line for line in everything() if line[1][:2] <= "17"]
        commands = progress.State(before).next()
        self.assertEqual(
            [" ".join(command.split()) for command in commands],
            ["./lab run 18_memory_area # to build it, read lessons/18_memory_area.md",
             "./lab run 27_in_production # to use it, read lessons/27_in_production.md"])
        # A reader who uses it only is not sent back.
        used = [*before, *(line for line in everything() if line[1][:2] == "27")]
        commands = progress.State(used).next()
        self.assertEqual([command.split()[2] for command in commands], ["28_measure"])
        # One who builds it, is.
        commands = progress.State([*used, ("run", "19_bells")]).next()
        self.assertEqual(
            [command.split()[2] for command in commands], ["28_measure", "18_memory_area"])

    def test_command(self):
        out, _ = self.lab()
        parts = {lesson.part for lesson in LESSONS.values()}
        self.assertEqual(out.count("\n"), len(LESSONS) + len(parts) + 4)
        self.assertIn("next: ./lab doctor ", out)
        for line in everything():
            progress.note(*line)
        out, err = self.lab()
        self.assertIn("02_send_recv         yes   4 of 4   3 of 3\n", out)
        self.assertIn("all there is", out)
        self.assertEqual(err, "")
        self.assertIn("next: ./lab doctor ", self.lab("--forget")[0])
        self.assertFalse(self.file.exists())
        self.file.mkdir(parents=True)
        with self.assertRaises(LabError):
            progress.main(SimpleNamespace(forget=True))


if __name__ == "__main__":
    unittest.main(verbosity=2)
