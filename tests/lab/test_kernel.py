# SPDX-License-Identifier: MIT
"""The kernel in the cache: half of one is never used, and the machine's archive is one that cpio
reads."""
import gzip
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from lab import packages, place
from lab.errors import LabError
from lab.machine import kernel

if place.INSIDE.exists():
    print("skipped: this is the emulated machine")
    sys.exit(77)


class Kernel(unittest.TestCase):
    def setUp(self):
        packages.need("machine")
        self.real = kernel.get()
        temp = tempfile.TemporaryDirectory(prefix="lab cache ")
        self.addCleanup(temp.cleanup)
        saved = os.environ.get("LAB_CACHE")
        os.environ["LAB_CACHE"] = temp.name
        self.addCleanup(
            lambda: (
                os.environ.pop("LAB_CACHE") if saved is None else os.environ.update(LAB_CACHE=saved)
            ))
        self.cache = Path(temp.name)
        # Downloading takes time and network: the one thing that is replaced here.
        self.downloads = 0
        original = kernel._download
        self.addCleanup(setattr, kernel, "_download", original)
        kernel._download = kernel._host_kernel = self.download

    def download(self, folder, wanted=""):
        self.downloads += 1
        modules = folder / "lib/modules" / self.real.version
        modules.mkdir(parents=True)
        (modules / "modules.dep").write_text("")
        (folder / "vmlinux").write_bytes(b"x" * 1000)
        (folder / "complete").write_text(f"{self.real.version}\n{folder / 'vmlinux'}\n1000\n")

    def test_downloaded_once(self):
        first = kernel.get()
        self.assertEqual(kernel.get(), first)
        self.assertEqual(self.downloads, 1)

    def test_half_a_kernel_is_fetched_again(self):
        for damage in (
            lambda folder: (folder / "vmlinux").write_bytes(b"x" * 10),
            lambda folder: (folder / "complete").unlink(),
            lambda folder: (folder / "lib/modules" / self.real.version / "modules.dep").unlink(),
        ):
            kernel.get()
            before = self.downloads
            damage(self.cache / "kernel/stable")
            kernel.get()
            self.assertEqual(self.downloads, before + 1)

    def test_interrupted_download_leaves_nothing(self):
        def interrupted(folder, wanted=""):
            raise KeyboardInterrupt

        kernel._download = kernel._host_kernel = interrupted
        with self.assertRaises(KeyboardInterrupt):
            kernel.get()
        self.assertEqual([path.name for path in (self.cache / "kernel").iterdir()], ["stable.lock"])

    def test_another_kernel_has_a_folder_of_its_own(self):
        os.environ["LAB_KERNEL"] = "bookworm-backports"
        self.addCleanup(os.environ.pop, "LAB_KERNEL")
        kernel.get()
        self.assertTrue((self.cache / "kernel/bookworm-backports/complete").exists())

    def test_modules_come_after_what_they_need(self):
        order = [
            path.name.split(".")[0].replace("-", "_")
            for path in kernel._load_order(self.real, ["no_such"])
        ]
        self.assertLess(order.index("ib_core"), order.index("ib_uverbs"))
        self.assertLess(order.index("ib_uverbs"), order.index("rdma_rxe"))
        self.assertLess(order.index("9pnet"), order.index("9p"))
        self.assertEqual(len(order), len(set(order)))

    def test_initramfs(self):
        """Only what is needed is in it, and the programs are byte for byte the ones here."""
        path = kernel.initramfs(self.real)
        archive = gzip.decompress(path.read_bytes())
        self.assertLess(path.stat().st_size, 4 << 20)
        for name in ("init.sh", "agent.py", "frames.py"):
            self.assertIn((Path(kernel.__file__).parent / name).read_bytes(), archive)
        self.assertEqual(len(archive) % 4, 0)
        self.assertEqual(kernel.initramfs(self.real), path)

    def test_unknown_architecture(self):
        original = kernel.platform.machine
        self.addCleanup(setattr, kernel.platform, "machine", original)
        kernel.platform.machine = lambda: "sparc64"
        with self.assertRaises(LabError):
            kernel.arch()
        kernel.platform.machine = lambda: "aarch64"
        self.assertEqual(kernel.arch().console, "ttyAMA0")


@unittest.skipUnless(
    os.environ.get("LAB_TEST_DOWNLOAD"), "downloads 70 MB: LAB_TEST_DOWNLOAD=1 for it")
class Download(unittest.TestCase):
    def test_as_this_user(self):
        with tempfile.TemporaryDirectory(prefix="lab cache ") as temp:
            environment = {**os.environ, "LAB_CACHE": temp}
            subprocess.run(
                [sys.executable, "-c", "from lab.machine import kernel; kernel.get()"],
                env=environment, check=True)
            self.assertEqual(
                sorted(path.name for path in Path(temp, "kernel").iterdir()),
                ["stable", "stable.lock"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
