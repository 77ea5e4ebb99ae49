# SPDX-License-Identifier: MIT
"""./lab new makes a project that builds outside the tree, against the installed libraries. The
other ways to build it are test_new_ways.py's."""
import re
import subprocess
import tempfile
from pathlib import Path

import needs_device
import projects
from copies import run
from lab.paths import ROOT


class New(projects.Projects):
    def test_against_the_installed_library(self):
        project = self.new("--from", "02_send_recv")
        prefix = self.meson(project)
        self.sends_and_receives(project, *prefix)
        # A hint leads to a text that the copy has.
        result = subprocess.run(
            [*prefix, project / "build/send_recv", "--device", "none_such"], capture_output=True,
            text=True)
        file, anchor = re.search(r"see (\S+\.md)#([\w-]+)", result.stderr).groups()
        text = (project / file).read_text()
        self.assertTrue(re.search(rf"^#+ {anchor.replace('-', ' ')}$", text, re.M | re.I), anchor)
        self.assertEqual(
            re.findall(r"\]\((?!https?:|#)[^)]*\)", text), [],
            "links to files that the copy does not have")

    def test_shared_client_against_the_installed_library(self):
        project = self.new("--from", "23_shared_client")
        self.assertEqual(
            {path.name for path in project.iterdir()},
            {
                "server.cpp", "client.cpp", "ask_again.hpp", "messages.hpp", "meson.build",
                "CMakeLists.txt", "README.md", "LICENSE", "lessons"})
        self.serves_and_is_joined(project, *self.meson(project))

    def test_cmake_looks_at_the_version(self):
        version = re.search(r"version: '(\d+)\.(\d+)\.(\d+)'", (ROOT / "meson.build").read_text())
        major, minor, patch = map(int, version.groups())
        older = f"{major}.{minor - 1}" if minor else f"{major - 1}.99"
        wanted = {
            older: False,
            f"{major}.{minor}": True,
            f"{major}.{minor}.{patch}": True,
            f"{major}.{minor}.{patch} EXACT": True,
            f"{major}.{minor}.{patch + 1}": False,
            f"{major}.{minor + 1}": False,
            f"{major + 1}": False,
        }
        folder = Path(tempfile.mkdtemp(dir=self.top))
        (folder / "CMakeLists.txt").write_text(
            "cmake_minimum_required(VERSION 3.18)\nproject(versions CXX)\n"
            + "".join(
                f"find_package(rdmashared {version} QUIET)\nmessage(STATUS \"{version}:"
                " ${rdmashared_FOUND}\")\nunset(rdmashared_DIR CACHE)\n"
                for version in wanted))
        said = run(
            ["cmake", "-S", ".", "-B", "build", f"-DCMAKE_PREFIX_PATH={self.installed}"], folder)
        self.assertEqual(
            {
                version: found == "1"
                for version, found in re.findall(r"^-- (\d.*): (\d)$", said, re.M)},
            wanted)

    def test_build_files_are_short(self):
        for options in (["--from", "02"], ["--from", "23"], ["--from", "23", "--sources"]):
            project = self.new(*options)
            for name in ("meson.build", "CMakeLists.txt"):
                self.assertLessEqual(
                    len((project / name).read_text().splitlines()), 15, (options, name))
            readme = (project / "README.md").read_text()
            self.assertIn("meson setup build", readme)
            self.assertIn("cmake -S . -B build", readme)

    def test_the_new_programs_fit_on_a_screen(self):
        for path in (ROOT / "examples/23_shared_client/new").iterdir():
            licence, *lines = path.read_text().splitlines()
            self.assertIn("SPDX", licence)
            self.assertLessEqual(len(lines), 50, path)

    def test_each_program_of_an_example_is_built(self):
        meson = (self.new("--from", "12") / "meson.build").read_text()
        self.assertEqual(
            re.findall(r"^executable\('(\w+)'", meson, re.M), ["cm_server", "cm_client"])

    def test_only_takes_what_one_program_needs(self):
        project = self.new("--from", "13", "--only", "many_client")
        self.assertEqual(
            {path.name for path in project.glob("*.?pp")}, {"many_client.cpp", "children.hpp"})
        self.assertEqual(
            re.findall(r"^executable\('(\w+)'", (project / "meson.build").read_text(), re.M),
            ["many_client"])

    def fails(self, status, says, *options):
        result = subprocess.run([ROOT / "lab", "new", *options], capture_output=True, text=True)
        self.assertEqual(result.returncode, status, result.stderr)
        self.assertIn(says, result.stderr)

    def test_does_not_overwrite(self):
        self.fails(1, "not empty", self.new("--from", "02"), "--from", "02")

    def test_says_what_there_is_not(self):
        self.fails(
            2, "00_your_lab is a lesson without a program", self.top / "none", "--from", "00")
        self.fails(
            2, "02_send_recv has no program send_recw (did you mean send_recv?)", self.top / "none",
            "--from", "02", "--only", "send_recw")

    def test_sources_are_of_the_library_only(self):
        self.fails(
            2, "02_send_recv has no --sources", self.top / "none", "--from", "02", "--sources")
        self.assertFalse((self.top / "none").exists())


if __name__ == "__main__":
    needs_device.main()
