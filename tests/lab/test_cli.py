# SPDX-License-Identifier: MIT
"""The command line of ./lab: one line and exit status 2 for what is wrong, help for the rest."""
import os
import shutil
import subprocess
import tempfile
import unittest
import unittest.mock
from pathlib import Path

from lab import cli, packages
from lab.commands import test
from lab.errors import LabError
from lab.paths import ROOT


def lab(*words, **environment):
    result = subprocess.run(
        [ROOT / "lab", *words], env={**os.environ, "LAB_PROGRESS": "off", **environment},
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=600)
    return result.returncode, result.stdout, result.stderr


class CommandLine(unittest.TestCase):
    def wrong(self, *words, says):
        status, out, err = lab(*words)
        self.assertEqual((status, out), (2, ""), err)
        self.assertEqual(err.count("\n"), 1, err)
        self.assertIn(says, err)

    def test_wrong_words_name_the_nearest(self):
        self.wrong("rnu", says="no command rnu (did you mean run?)")
        self.wrong("run", "02_sendrecv", says="no example 02_sendrecv (did you mean 02_send_recv?)")
        self.wrong("run", "--devcie", "x", "02", says="(did you mean --device?)")
        self.wrong("run", "02", "--break", "no_recieve", says="(did you mean no_receive?)")
        self.wrong("check", "02.7", says="no exercise 02.7")
        self.wrong("run", says="example")
        self.wrong("exec", says="needs a command")
        self.wrong("exec", "--on", "a", "--device", "siw0", "--", "true", says="not allowed with")
        self.wrong("shell", says="needs a terminal")
        self.wrong("new", "/tmp/x", says="--from")

    def test_help(self):
        for words in ([], ["--help"]):
            status, out, _ = lab(*words)
            self.assertEqual(status, 0)
            for command in cli.COMMANDS:
                self.assertIn(f"\n  {command} ", out)
            self.assertIn("./lab dev --help", out)
        for command in cli.COMMANDS:
            self.assertEqual(lab(command, "--help")[0], 0, command)

    def test_what_only_contributors_need(self):
        for words in (["dev"], ["dev", "--help"]):
            status, out, _ = lab(*words)
            self.assertEqual(status, 0)
            for command in cli.DEV:
                self.assertIn(f"\n  {command} ", out)
        for command in cli.DEV:
            status, out, _ = lab("dev", command, "--help")
            self.assertEqual(status, 0)
            self.assertIn(f"usage: ./lab dev {command} ", out)
            self.wrong(command, says=f"no command {command} (did you mean dev {command}?)")
        self.wrong("dev", "snyc", says="no command snyc (did you mean sync?)")

    def test_a_programs_own_arguments_may_follow_any_option(self):
        self.wrong("run", "--program", "rat", "07", "--", "--size", "1", says="no program rat")
        self.wrong("run", "07", "--program", "rat", "--", "--size", "1", says="no program rat")

    def test_a_lesson_without_a_program(self):
        self.wrong("run", "25", says="lessons/25_long_messages.md has its commands")

    def test_what_goes_to_meson_keeps_its_order(self):
        words = ["--suite", "lessons", "--num-processes=1", "test_links"]
        with unittest.mock.patch("lab.commands.test.main", lambda args: args.passes_on):
            self.assertEqual(cli.run(["test", *words]), words)

    def test_a_second_test_run_in_a_clone_is_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            with test.alone(Path(folder)), self.assertRaises(LabError):
                with test.alone(Path(folder)):
                    pass
            with test.alone(Path(folder)):  # the first has ended
                pass

    def test_a_run_of_no_test_is_an_error(self):
        with tempfile.TemporaryDirectory() as folder, unittest.mock.patch.object(
            subprocess, "run"
        ) as meson:
            meson.return_value.returncode = 0
            self.assertEqual(test.run(Path(folder), "all", ["--list"]), (0, []))
            with self.assertRaisesRegex(LabError, "no test has this name"):
                test.run(Path(folder), "all", ["test_nosuch"])
            meson.return_value.returncode = 2  # meson has said why
            self.assertEqual(test.run(Path(folder), "all", ["test_nosuch"]), (2, []))

    def test_works_from_any_folder(self):
        result = subprocess.run(
            [ROOT / "lab", "run", "nosuch"], cwd="/", capture_output=True, text=True)
        self.assertIn("no example nosuch", result.stderr)

    def test_without_home(self):
        environment = {name: value for name, value in os.environ.items() if name != "HOME"}
        result = subprocess.run(
            [ROOT / "lab", "progress"], env={**environment, "LAB_PROGRESS": "off"},
            capture_output=True, text=True)
        self.assertEqual(result.returncode, 0, result.stderr)

    def test_package_lists(self):
        for group in set(packages.DEBIAN) - {"play"}:  # ./lab docs --play needs Debian
            for _, (_, names) in packages.OTHERS.items():
                self.assertIn(group, names)

    def test_says_what_to_install_where_it_may_not(self):
        """No package tool and no root: the line to type."""
        with unittest.mock.patch.object(
            packages, "missing", lambda *groups: ["meson"]
        ), unittest.mock.patch.object(packages, "privilege", lambda: None), self.assertRaises(
            LabError
        ) as caught:
            packages.ensure("build")
        self.assertIn(
            "As root: apt-get install -y --no-install-recommends meson", str(caught.exception))
        for tool, says in (
            ("dnf", "dnf install meson"),
            ("pacman", "pacman -S --needed meson"),
            ("zypper", "zypper install meson"),
        ):
            with unittest.mock.patch.object(
                shutil, "which", lambda name: name if name == tool else None
            ):
                self.assertIn(says, packages.command("build"))

    def test_only_a_command_that_begins_installs(self):
        """What it calls later says what is missing: somebody may be using a machine."""
        calling = {
            path.stem
            for path in (ROOT / "tools").rglob("*.py")
            if "packages.ensure(" in path.read_text()
        }
        self.assertEqual(
            calling - {cli.MODULES.get(name, name) for name in [*cli.COMMANDS, *cli.DEV]},
            set())
        with unittest.mock.patch.object(
            packages, "missing", lambda *groups: ["meson"]
        ), unittest.mock.patch.object(packages, "_apt", self.fail), self.assertRaises(LabError):
            packages.need("build")
        with unittest.mock.patch.object(
            packages, "missing", lambda *groups: ["meson"]
        ), unittest.mock.patch.object(packages, "_apt", self.fail), unittest.mock.patch.dict(
            os.environ, LAB_INSTALL="no"
        ), self.assertRaises(
            LabError
        ):
            packages.ensure("build")  # what ./lab test sets for its tests


if __name__ == "__main__":
    unittest.main(verbosity=2)
