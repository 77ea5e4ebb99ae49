# SPDX-License-Identifier: MIT
"""./lab new makes a project that builds outside the tree: against the installed libraries, by Meson
and by CMake, and as a subproject."""
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

import copies
import needs_device
from copies import FAST, run
from lab import examples, pair
from lab.paths import ROOT


class New(copies.Copies):
    def meson(self, project, *targets, as_subproject=False):
        """Builds it by Meson. @return what starts a program of it"""
        if as_subproject:
            (project / "subprojects").mkdir()
            (project / "subprojects/rdma-by-example").symlink_to(ROOT)
            run(["meson", "setup", "build", "--unity=subprojects", *FAST], project)
        else:
            run(
                ["meson", "setup", "build", *FAST], project,
                PKG_CONFIG_PATH=str(self.installed / "lib/pkgconfig"))
            self.assertFalse((project / "subprojects").exists())
        run(["ninja", "-C", "build", *targets], project)
        return [] if as_subproject else ["env", f"LD_LIBRARY_PATH={self.installed}/lib"]

    def cmake(self, project):
        """Builds it by CMake, which finds the library's folder for the program as well."""
        run(
            [
                "cmake", "-S", ".", "-B", "build", f"-DCMAKE_PREFIX_PATH={self.installed}",
                "-DCMAKE_COMPILE_WARNING_AS_ERROR=ON",
                "-DCMAKE_CXX_FLAGS=-Wall -Wextra -Wno-missing-field-initializers"],
            project)
        run(["cmake", "--build", "build", "--parallel", "2"], project)

    def sends_and_receives(self, project, *prefix):
        argv = [*prefix, str(project / "build/send_recv")]
        outcome = examples.run_pair(needs_device.PLACE, argv, argv)
        self.assertEqual(outcome.status, {"server": 0, "client": 0}, outcome.text())
        self.assertIn('received "hello from the server"', outcome.of("client"))

    def serves_and_is_joined(self, project, *prefix):
        outcome = pair.run(
            needs_device.PLACE,
            [
                *prefix, "python3", "-I", "-S", str(ROOT / "tests/thorough/joining.py"),
                str(project / "build"), needs_device.PLACE.address])
        self.assertRegex(
            outcome.text(),
            r"""^client: get: nothing
client: put: 42 in place of nothing
client: put: 0 is no key
client: client --join numbers .*
joined: get: 42
joined: put: 42 in place of 42
joined: put: 0 is no key
ended: 0 0 0
$""",
        )

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

    def test_as_a_subproject(self):
        project = self.new("--from", "02_send_recv")
        self.sends_and_receives(project, *self.meson(project, "send_recv", as_subproject=True))

    def test_by_cmake(self):
        project = self.new("--from", "02_send_recv")
        self.cmake(project)
        self.sends_and_receives(project)

    def test_shared_client_against_the_installed_library(self):
        project = self.new("--from", "23_shared_client")
        self.assertEqual(
            {path.name for path in project.iterdir()},
            {
                "server.cpp", "client.cpp", "ask_again.hpp", "messages.hpp", "meson.build",
                "CMakeLists.txt", "README.md", "LICENSE", "lessons"})
        self.serves_and_is_joined(project, *self.meson(project))

    def test_shared_client_as_a_subproject(self):
        project = self.new("--from", "23_shared_client")
        self.serves_and_is_joined(project, *self.meson(project, as_subproject=True))

    def test_shared_client_by_cmake(self):
        project = self.new("--from", "23_shared_client")
        self.cmake(project)
        self.serves_and_is_joined(project)
        for arguments, status, says in (
            ([], 2, "usage: "),
            (["--host", "a", "--join", "b"], 2, "usage: "),
            (["--join", "nobody"], 1, "error: "),
        ):
            result = subprocess.run(
                [project / "build/client", *arguments], capture_output=True, text=True)
            self.assertEqual((result.returncode, result.stdout), (status, ""), arguments)
            self.assertIn(says, result.stderr)

    def test_programs_run_with_a_later_library(self):
        """The programs are not built again. The library has new options, in what was reserved for
        them, a new outcome and a new function."""
        project = self.new("--from", "23_shared_client")
        self.meson(project)
        later = Path(tempfile.mkdtemp(dir=self.top))
        for name in ("meson.build", "meson_options.txt"):
            shutil.copy(ROOT / name, later)
        for name in ("rdmacommon", "rdmashared", "tools/cmake"):
            shutil.copytree(ROOT / name, later / name)
        patch = ROOT / "tests/thorough/later_library.patch"
        run(["patch", "-p1", "--fuzz=0", "-i", patch], later)
        run(
            [
                "meson", "setup", "build", "-Dexamples=false", "--libdir=lib",
                f"--prefix={later}/installed", "--unity=on", *FAST],
            later)
        run(["meson", "install", "-C", "build"], later)
        self.serves_and_is_joined(project, "env", f"LD_LIBRARY_PATH={later}/installed/lib")

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

    def own_library(self):
        """A project with the sources of the library, one of which has been changed."""
        project = self.new("--from", "23_shared_client", "--sources")
        for name in ("include/rdmashared/server.hpp", "src/server.cpp", "LICENSE"):
            self.assertTrue((project / "rdmashared" / name).exists(), name)
        with (project / "rdmashared/src/caller.cpp").open("a") as source:
            source.write(
                'const char *said_by_the_copy();\nconst char *said_by_the_copy() { return "changed'
                ' by its reader"; }\n')
        return project

    def uses_own_library(self, project, *prefix):
        self.assertIn(b"changed by its reader", (project / "build/client").read_bytes())
        self.assertNotIn(
            "librdmashared", run(["readelf", "--dynamic", project / "build/client"], project))
        self.serves_and_is_joined(project, *prefix)

    def test_sources_against_the_installed_library(self):
        project = self.own_library()
        self.uses_own_library(project, *self.meson(project))

    def test_sources_by_cmake(self):
        project = self.own_library()
        self.cmake(project)
        self.uses_own_library(project)

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
