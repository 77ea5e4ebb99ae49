# SPDX-License-Identifier: MIT
"""A project of ./lab new builds and runs in each way that its README names: by CMake, as a
subproject, and with the library's sources. One that is built runs with a later library, too."""
import shutil
import subprocess
import tempfile
from pathlib import Path

import needs_device
import projects
from copies import FAST, run
from lab.paths import ROOT


class Ways(projects.Projects):
    def cmake(self, project):
        """Builds it by CMake, which finds the library's folder for the program as well."""
        run(
            [
                "cmake", "-S", ".", "-B", "build", f"-DCMAKE_PREFIX_PATH={self.installed}",
                "-DCMAKE_COMPILE_WARNING_AS_ERROR=ON",
                "-DCMAKE_CXX_FLAGS=-Wall -Wextra -Wno-missing-field-initializers"],
            project)
        run(["cmake", "--build", "build", "--parallel", "2"], project)

    def test_as_a_subproject(self):
        project = self.new("--from", "02_send_recv")
        self.sends_and_receives(project, *self.meson(project, "send_recv", as_subproject=True))

    def test_by_cmake(self):
        project = self.new("--from", "02_send_recv")
        self.cmake(project)
        self.sends_and_receives(project)

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


if __name__ == "__main__":
    needs_device.main()
