# SPDX-License-Identifier: MIT
"""The headers of the emulated machine's kernel, with which kbuild builds a module for it (lesson
31).

They come as the kernel does (kernel.py): the distribution's packages, unpacked into the cache,
without root and without anything being installed. They lie in the kernel's own folder of the cache,
and go with it.
"""
from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from lab.errors import LabError
from lab.machine import kernel


def get(of: kernel.Kernel) -> Path:
    """The folder that `make -C` wants, for this kernel. Downloads it if need be.

    @raises LabError if it is not available"""
    found = _find(of)
    if found:
        return found
    folder = _folder(of)
    with kernel.locked(folder.with_name(folder.name + ".lock")):
        found = _find(of)
        if found:
            return found
        if not shutil.which("apt-get"):
            raise LabError(
                f"no headers for kernel {of.version}: there is no {_installed(of)}, and no apt to"
                " get them by")
        _download(of, folder)
    return _find(of) or _gone(of)


def _folder(of: kernel.Kernel) -> Path:
    return of.modules.parents[2] / "headers"  # complete as soon as it has this name


def _installed(of: kernel.Kernel) -> Path:
    """Where a distribution without apt keeps the headers of the kernel that it runs, and boots in
    the machine, too."""
    return Path("/lib/modules") / of.version / "build"


def _find(of: kernel.Kernel) -> "Path | None":
    for path in (_folder(of) / "usr/src" / f"linux-headers-{of.version}", _installed(of)):
        if (path / "Makefile").exists() and (path / "Module.symvers").exists():
            return path
    return None


def _gone(of: kernel.Kernel) -> Path:
    raise LabError(
        f"no headers for kernel {of.version}: the archive cannot be reached, or has a newer kernel"
        f" by now. Then remove {of.modules.parents[2]}, and ./lab fetches that one, with its"
        " headers")


def _download(of: kernel.Kernel, folder: Path) -> None:
    wanted = os.environ.get("LAB_KERNEL", "")
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".partial-headers-") as temp:
        work = Path(temp)
        apt = kernel.private_apt(work / "apt", wanted)
        print(f"lab: fetching the headers of kernel {of.version} (about 15 MB)", file=sys.stderr)
        subprocess.run([*apt, "update"], capture_output=True, stdin=subprocess.DEVNULL)
        name = f"linux-headers-{of.version}"
        cache = ["apt-cache", *apt[2:]]
        if name not in kernel.output_of([*cache, "pkgnames", name]).split():
            _gone(of)
        depends = kernel.output_of([*cache, "depends", "--no-recommends", "--no-suggests", name])
        # The part that all flavours share, and kbuild's own programs. The compiler is not unpacked
        # but installed.
        packages = [name, *re.findall(r"Depends: (linux-(?:headers|kbuild)-\S+)", depends)]
        kernel.output_of([*apt, "download", *packages], cwd=work / "apt")
        tree = work / "tree"
        for package in sorted((work / "apt").glob("*.deb")):
            kernel.output_of(["dpkg-deb", "-x", str(package), str(tree)])
        # The one file in it that names others absolutely: in "include", and since Linux 7.3 in
        # KBUILD_OUTPUT.
        makefile = tree / "usr/src" / name / "Makefile"
        makefile.write_text(
            re.sub(r"(?<=[ =])/usr/", f"{folder}/usr/", makefile.read_text()))
        tree.rename(folder)
