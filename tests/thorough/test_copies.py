# SPDX-License-Identifier: MIT
"""Every example stands on its own feet: its copy (./lab new) builds, and so does the command in its
README."""
import re
import tempfile
from pathlib import Path

import copies
import needs_device
from lab import examples, ladder
from lab.machine import headers, kbuild, kernel
from lab.paths import ROOT

LESSONS = [lesson for lesson in ladder.read() if lesson.has_program]


# The one with a folder `new` is test_new's.
COPIED = [lesson for lesson in LESSONS if not (ROOT / "examples" / lesson.stem / "new").exists()]


class Examples(copies.Copies):
    def build_all(self):
        """All copies are subprojects of one project, so that they build side by side. @return the
        project's folder"""
        top = Path(tempfile.mkdtemp(dir=self.top))
        for lesson in COPIED:
            self.new("--from", lesson.stem, folder=top / "subprojects" / lesson.stem)
        # has all that the program needs
        self.new("--from", "13", "--only", "many_client", folder=top / "subprojects/alone")
        names = ["alone", *(lesson.stem for lesson in COPIED)]
        (top / "meson.build").write_text(
            "project('copies', 'cpp')\n" + "".join(f"subproject('{name}')\n" for name in names))
        copies.run(
            ["meson", "setup", "build", *copies.FAST], top,
            PKG_CONFIG_PATH=str(self.installed / "lib/pkgconfig"))
        copies.run(["ninja", "-C", "build"], top)
        return top

    def test_copies_use_the_installed_library(self):
        """test_new_ways has the copy that is built with the libraries as a subproject, and runs
        that of 02. test_examples runs the same sources."""
        top = self.build_all()
        for lesson in COPIED:
            for program in examples.of(lesson)["programs"]:
                with self.subTest(program):
                    copies.run(
                        [top / "build/subprojects" / lesson.stem / program, "--help"], top,
                        LD_LIBRARY_PATH=str(self.installed / "lib"))

    def test_with_static_libraries(self):
        """By Meson and by CMake: the programs carry the libraries of ours that they use."""
        static = copies.install(self.top / "static", "static")
        self.assertEqual(list(static.rglob("*.so*")), [])
        for example, program in (("02", "send_recv"), ("23", "client")):
            project = self.new("--from", example)
            copies.run(
                ["meson", "setup", "by_meson", *copies.FAST], project,
                PKG_CONFIG_PATH=str(static / "lib/pkgconfig"))
            copies.run(["ninja", "-C", "by_meson"], project)
            copies.run(
                ["cmake", "-S", ".", "-B", "by_cmake", f"-DCMAKE_PREFIX_PATH={static}"], project)
            copies.run(["cmake", "--build", "by_cmake", "--parallel", "2"], project)
            for folder in ("by_meson", "by_cmake"):
                with self.subTest(example=example, build=folder):
                    needed = copies.run(
                        ["readelf", "--dynamic", project / folder / program], project)
                    self.assertIn("libibverbs", needed)
                    self.assertNotRegex(needed, "librdma(common|shared)")
                    copies.run([project / folder / program, "--help"], project)

    def test_members_of_a_newer_rdma_core_are_found(self):
        """By Meson and by CMake: both define HAVE_WR_FLUSH. Where rdma-core is too old, another
        member has that name for this test."""
        header = copies.run(
            ["sh", "-c", "echo '#include <infiniband/verbs.h>' | c++ -E -x c++ -"], self.top)
        flags = "" if "wr_flush" in header else "-Dwr_abort=wr_flush"
        project = self.new("--from", "atomics")
        copies.run(
            ["cmake", "-S", ".", "-B", "by_cmake", f"-DCMAKE_PREFIX_PATH={self.installed}"],
            project, CXXFLAGS=flags)
        copies.run(
            ["meson", "setup", "by_meson", *copies.FAST], project, CXXFLAGS=flags,
            PKG_CONFIG_PATH=str(self.installed / "lib/pkgconfig"))
        by_cmake, by_meson = (
            set(re.findall(r"-D(HAVE_\w+)", copies.run(words, project)))
            for words in (
                ["grep", "-rh", "CXX_DEFINES", "by_cmake"],
                ["ninja", "-C", "by_meson", "-t", "commands"]))
        self.assertEqual(by_cmake, by_meson)
        self.assertIn("HAVE_WR_FLUSH", by_cmake)

    def test_copied_module_builds(self):
        why_not = needs_device.why_not(examples.find("kernel_client"))
        if why_not:
            self.skipTest(why_not)
        # kbuild takes no folder with a space in its name
        with tempfile.TemporaryDirectory(prefix="lab-module-") as folder:
            project = self.new("--from", "kernel_client", folder=Path(folder) / "mine")
            tree = headers.get(kernel.get())
            copies.run(
                [
                    "make", "-s", "-C", tree, f"M={project}", f"CC={kbuild.compiler(tree)}",
                    "CONFIG_DEBUG_INFO_BTF_MODULES=", "modules"],
                project)
            self.assertTrue((project / "kernel_client.ko").exists())

    def compile(self, lesson, command, **environment):
        """In the example's folder, as the reader does. The program goes to a folder of the
        test's."""
        into = Path(tempfile.mkdtemp(dir=self.top))
        program = command.split()[-1]
        self.assertTrue(command.endswith(f" -o {program}"))
        command = command.removesuffix(f" {program}") + f" '{into / program}'"
        copies.run(["sh", "-c", command], ROOT / "examples" / lesson.stem, **environment)
        return into / program

    def commands(self, number):
        """@return the lesson, and the commands of its example's README.md"""
        lesson = examples.find(number)
        text = (ROOT / "examples" / lesson.stem / "README.md").read_text()
        return lesson, re.findall(r"^c\+\+ .*$", text, re.M)

    def test_command_is_all_that_it_takes(self):
        lesson, (command,) = self.commands("02")
        program = str(self.compile(lesson, command))
        outcome = examples.run_pair(needs_device.PLACE, [program], [program])
        self.assertEqual(outcome.status, {"server": 0, "client": 0}, outcome.text())

    def test_command_with_installed_libraries(self):
        """The one of README.md."""
        command = re.search(r"`(c\+\+ .*)`", (ROOT / "README.md").read_text())[1]
        with tempfile.TemporaryDirectory(prefix="installed-") as folder:
            # The shell splits what pkg-config says at each space.
            libraries = Path(folder) / "lib"
            for name in ("lib", "include"):
                (libraries.parent / name).symlink_to(self.installed / name)
            program = self.compile(
                examples.find("02"), command, PKG_CONFIG_PATH=str(libraries / "pkgconfig"))
            copies.run([program, "--help"], self.top, LD_LIBRARY_PATH=str(libraries))

    def test_commands_compile(self):
        """Of a program with headers beside it, of two programs, and of one with rdmashared: the
        same function writes all commands. With installed libraries: the sources take longer."""
        static = copies.install(self.top / "static", "static")
        for number in ("08", "12", "23"):
            lesson, commands = self.commands(number)
            self.assertTrue(commands)
            for command in commands:
                fast = re.sub(r"\.\./\.\./(\w+)/src/\*\.cpp", "", command)
                names = "-lrdmashared " * ("rdmashared/src/*.cpp" in command) + "-lrdmacommon"
                fast = fast.replace(" $(pkg-config", f" -L'{static}/lib' {names} $(pkg-config")
                with self.subTest(command):
                    program = self.compile(lesson, fast)
                    copies.run([program, "--help"], self.top)


if __name__ == "__main__":
    needs_device.main()
