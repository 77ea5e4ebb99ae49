# SPDX-License-Identifier: MIT
"""SoftiWARP, the kernel's module siw, for an emulated machine of its own.

A kernel that has the module brings it. Debian's kernels do not: there it is built from the
distribution's package of the kernel's source, against the headers that a lesson's module takes, too
(headers.py). It lies in the kernel's own folder of the cache, and goes with it.
"""
from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from lab.errors import LabError
from lab.machine import headers, kbuild, kernel

SOURCE = "drivers/infiniband/sw/siw"
# Modules that siw needs, if the kernel does not have them built in. The second one looks for the
# first one when it is loaded.
NEEDS = ["crc32c_generic", "libcrc32c"]


def initramfs(of: kernel.Kernel) -> Path:
    """The emulated machine's initramfs, with siw. @raises LabError if there is no module"""
    if kernel.has_module(of, "siw"):
        return kernel.initramfs(of, ["siw"])
    return kernel.initramfs(of, NEEDS, built=[_module(of)])


def _module(of: kernel.Kernel) -> Path:
    folder = of.modules.parents[2] / "siw"
    module = folder / "siw.ko"  # complete as soon as it has this name
    with kernel.locked(folder.with_name("siw.lock")):
        if not module.exists():
            if not shutil.which("apt-get"):
                raise LabError(
                    f"kernel {of.version} has no module siw, and there is no apt to get its source"
                    " by")
            tree = headers.get(of)
            with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".partial-siw-") as work:
                source = _download(of, Path(work))
                print(f"lab: building siw for kernel {of.version}", file=sys.stderr)
                built = kbuild.make(tree, source, "CONFIG_RDMA_SIW=m")
                if built.returncode:
                    raise LabError(f"siw does not build:\n{built.stdout}")
                folder.mkdir(exist_ok=True)
                kbuild.strip(source / "siw.ko", source / "stripped.ko")
                (source / "stripped.ko").rename(module)
    return module


def _download(of: kernel.Kernel, work: Path) -> Path:
    """The module's folder in the kernel's source."""
    name = "linux-source-" + re.match(r"\d+\.\d+", of.version)[0]
    apt = kernel.private_apt(work / "apt", os.environ.get("LAB_KERNEL", ""))
    print(f"lab: fetching {name}, for soft iWARP (about 140 MB)", file=sys.stderr)
    subprocess.run([*apt, "update"], capture_output=True, stdin=subprocess.DEVNULL)
    if name not in kernel.output_of(["apt-cache", *apt[2:], "pkgnames", name]).split():
        raise LabError(f"kernel {of.version} has no module siw, and apt knows no {name}")
    kernel.output_of([*apt, "download", name], cwd=work / "apt")
    (package,) = (work / "apt").glob("*.deb")
    kernel.output_of(["dpkg-deb", "-x", str(package), str(work / "package")])
    package.unlink()
    (archive,) = (work / "package/usr/src").glob("linux-source-*.tar.xz")
    folder = work / "source"
    folder.mkdir()
    with tarfile.open(archive, "r|xz") as source:  # which need not be read to its end
        for member in source:
            path = member.name.partition("/")[2]
            if member.isfile() and path.startswith(SOURCE + "/"):
                (folder / Path(path).name).write_bytes(source.extractfile(member).read())
            elif list(folder.iterdir()):
                return folder
    raise LabError(f"{name} has no {SOURCE}")
