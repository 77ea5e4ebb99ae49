# SPDX-License-Identifier: MIT
"""ATOMIC_WRITE and FLUSH, which need a newer rdma-core and kernel than Debian 12 has.

There the next release's libraries are unpacked, not installed. The library and the program are
built against their headers, and run in an emulated machine that boots the backports' kernel and
sees their providers. Debian 13 has what it takes.
"""
import os
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

import labtest
from lab import kernel
from lab.paths import ROOT

labtest.need_machine()
labtest.choose_newer_kernel()
PACKAGES = [
    "libibverbs-dev", "libibverbs1", "ibverbs-providers", "libnl-3-200", "libnl-route-3-200",
    "libc6", "libstdc++6", "libgcc-s1"]
IN_THE_MACHINE = """
mount --bind "$LIBRARIES/libibverbs" /usr/lib/x86_64-linux-gnu/libibverbs
loader="$LIBRARIES/ld-linux-x86-64.so.2"
program() { "$loader" --library-path "$LIBRARIES" "$FOLDER/atomic_write" --device rxe0 "$@" 2>&1; }
program --tcp-port 18999 > "$FOLDER/server" &
program --host 127.0.0.1 --tcp-port 18999 > "$FOLDER/client"
wait $! && cat "$FOLDER/server" "$FOLDER/client"
"""


def run(*argv, **options):
    result = subprocess.run(
        argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        **options)
    if result.returncode:
        raise AssertionError(f"{argv} ended with {result.returncode}:\n{result.stdout}")
    return result.stdout


class Newer(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(dir=ROOT / "build", prefix="newer-")
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.addCleanup(lambda: labtest.finish(labtest.lab("down")))

    def fetch(self):
        """@return the root of the newer libraries"""
        apt = self.folder / "apt"
        options = [
            "-o", f"Dir::Etc::SourceList={apt}/sources.list", "-o",
            "Dir::Etc::SourceParts=/dev/null"]
        command = [*kernel.private_apt(apt, ""), *options]
        sources = kernel._sources_of("bookworm-backports")
        (apt / "sources.list").write_text(sources.replace("bookworm-backports", "trixie"))
        run(*command, "update")
        run(*command, "download", *PACKAGES, cwd=apt)
        root = self.folder / "root"
        for package in apt.glob("*.deb"):
            run("dpkg-deb", "-x", str(package), str(root))
        return root

    @unittest.skipUnless(
        not labtest.NEEDS_BACKPORTS or shutil.which("apt-get") and os.uname().machine == "x86_64",
        "needs Debian's packages for x86-64")
    def test_flush(self):
        said = (
            self.run_with_newer_libraries()
            if labtest.NEEDS_BACKPORTS
            else self.run_what_is_installed()
        )
        text = said.stdout.decode()
        self.assertEqual(said.returncode, 0, text + said.stderr.decode())
        self.assertEqual(text.count("this device has ATOMIC_WRITE and FLUSH"), 2, text)
        for line in ('"entry 0"', '"entry 3"', "appended 4 entries"):
            self.assertIn(line, text)

    def run_what_is_installed(self):
        return labtest.finish(labtest.lab("run", "07_atomics", "--program", "atomic_write"))

    def run_with_newer_libraries(self):
        root = self.fetch()
        libraries = root / "usr/lib/x86_64-linux-gnu"
        # needs librdmacm
        library = [
            path for path in sorted((ROOT / "common/src").glob("*.cpp")) if path.name != "cm.cpp"
        ]
        sources = [*map(str, library), str(ROOT / "examples/07_atomics/atomic_write.cpp")]
        run(
            "c++", "-std=c++20", "-Wall", "-Wextra", "-Werror", "-Wno-missing-field-initializers",
            "-DHAVE_WR_ATOMIC_WRITE", "-DHAVE_WR_FLUSH", "-isystem", str(root / "usr/include"),
            "-I", str(ROOT / "common/include"), *sources, str(libraries / "libibverbs.so.1"),
            "-Wl,--allow-shlib-undefined", "-o", str(self.folder / "atomic_write"))
        return labtest.run(
            "env", f"LIBRARIES={libraries}", f"FOLDER={self.folder}", "unshare", "-m", "sh", "-c",
            IN_THE_MACHINE)


if __name__ == "__main__":
    unittest.main(verbosity=2)
