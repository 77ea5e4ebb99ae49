# SPDX-License-Identifier: MIT
"""Makes the machine that runs in a page: a 32-bit kernel with SoftRoCE, the stock tools, and a
state that is saved once the RDMA device is there. Compiles the examples, which the page loads.

Everything is made from packages of Debian and npm, and kept in the cache: a part whose name says
from what it was made is made once.
"""
from __future__ import annotations

import base64
import gzip
import hashlib
import json
import os
import re
import shutil
import ssl
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path
from typing import Callable

from lab import build
from lab.errors import LabError
from lab.machine import kernel, network
from lab.paths import ROOT, cache_dir

HERE = Path(__file__).resolve().parent
BIOS = [Path("/usr/share/seabios") / name for name in ("bios.bin", "vgabios-stdvga.bin")]
# The packages of the headers and libraries for the programs, and of the tools in the machine.
PACKAGES = (
    "libibverbs-dev librdmacm-dev libcli11-dev libgtest-dev libasio-dev libstdc++-{gcc}-dev"
    " ibverbs-providers ibverbs-utils rdmacm-utils iproute2 busybox-static")
TOOLS = ("ibv_devices", "ibv_devinfo", "ibv_rc_pingpong", "rping", "rdma", "busybox")
LIBRARIES = "lib/i386-linux-gnu"


def part(name: str, made_of: str, make: "Callable[[Path], None]") -> Path:
    """The folder of the cache that make(folder) has filled, now or earlier.

    @param made_of whatever decides what make() makes"""
    digest = hashlib.sha256(made_of.encode()).hexdigest()[:12]
    folder = cache_dir() / "play" / f"{name}-{digest}"
    with kernel.locked(folder.with_suffix(".lock")):
        if not folder.exists():
            print(f"lab: making {folder.name}", file=sys.stderr, flush=True)
            work = folder.with_suffix(".partial")
            shutil.rmtree(work, ignore_errors=True)  # of a command that was ended
            work.mkdir()
            make(work)
            work.rename(folder)
    return folder


def npm(name: str) -> Path:
    """The files of a package of npm. @raises LabError if they are not those of npm.json"""
    wanted = json.loads((HERE / "npm.json").read_text())[name]

    def make(folder: Path) -> None:
        file = f"{name.rpartition('/')[2]}-{wanted['version']}.tgz"
        address = f"https://registry.npmjs.org/{name}/-/{file}"
        # The checksum says whether it is the right file. A bare Debian has no certificates.
        context = ssl._create_unverified_context()
        try:
            with urllib.request.urlopen(address, timeout=60, context=context) as answer:
                data = answer.read()
        except OSError as error:
            raise LabError(f"cannot download {address}: {error}") from error
        digest = "sha512-" + base64.b64encode(hashlib.sha512(data).digest()).decode()
        if digest != wanted["integrity"]:
            raise LabError(f"{file} is not the file that tools/play/npm.json names: {digest}")
        subprocess.run(
            ["tar", "xz", "--strip-components=1", "-C", str(folder)], input=data, check=True)

    return part(name.rpartition("/")[2], json.dumps(wanted), make)


def linux() -> Path:
    """The kernel's image, from the newest linux-source package that is installed."""
    sources = sorted(
        Path("/usr/src").glob("linux-source-*.tar.xz"),
        key=lambda path: [int(number) for number in re.findall(r"\d+", path.name)])
    if not sources:
        raise LabError("no /usr/src/linux-source-*.tar.xz: install linux-source")
    options = re.sub("#.*", "", (HERE / "kernel_options.txt").read_text()).split()
    config = "".join(f"CONFIG_{option}=y\n" for option in options)

    def make(folder: Path) -> None:
        print("lab: compiling a kernel takes about ten minutes", file=sys.stderr, flush=True)
        # make takes no path with a space.
        with tempfile.TemporaryDirectory(dir="/var/tmp") as temp:
            subprocess.run(
                ["tar", "xf", str(sources[-1]), "--strip-components=1", "-C", temp], check=True)
            (Path(temp) / "fragment").write_text(config)
            for command in (
                "make ARCH=i386 tinyconfig", "scripts/kconfig/merge_config.sh -m .config fragment",
                "make ARCH=i386 olddefconfig", f"make ARCH=i386 -j{os.cpu_count()} bzImage"
            ):
                kernel.output_of(command.split(), cwd=temp)
            shutil.copy(Path(temp) / "arch/x86/boot/bzImage", folder)
            shutil.copy(Path(temp) / "COPYING", folder)

    digest = hashlib.sha256(sources[-1].read_bytes()).hexdigest()
    return part("linux", digest + config, make) / "bzImage"


def debian() -> Path:
    """Debian's i386 packages, unpacked."""
    packages = PACKAGES.format(gcc=gcc()).split()

    def make(folder: Path) -> None:
        with tempfile.TemporaryDirectory() as temp:
            apt = kernel.private_apt(Path(temp) / "apt", "")
            (Path(temp) / "status").touch()
            for option in (
                "APT::Architecture=i386", "APT::Architectures=i386",
                f"Dir::State::status={temp}/status"
            ):
                apt += ["-o", option]
            kernel.output_of([*apt, "update"])
            kernel.output_of(
                [*apt, "install", "--download-only", "-y", "--no-install-recommends", *packages])
            for package in sorted(Path(temp).glob("apt/cache/archives/*.deb")):
                kernel.output_of(["dpkg-deb", "-x", str(package), str(folder)])

    return part("debian", " ".join(packages), make)


def gcc() -> str:
    return kernel.output_of(["g++", "-dumpversion"]).strip()


def programs(root: Path) -> Path:
    """Compiles the examples and their changes for a 32-bit machine. @return the build folder

    @param root of debian()"""
    folder = build.directory() / "play/programs"
    cross = folder.parent / "i686.ini"
    folder.mkdir(parents=True, exist_ok=True)
    text = (HERE / "i686.ini").read_text().replace("@ROOT@", str(root)).replace("@GCC@", gcc())
    if not (folder / "build.ninja").exists() or cross.read_text() != text:
        cross.write_text(text)
        shutil.rmtree(folder)
        # The libraries come with each program: the saved machine does not depend on them.
        kernel.output_of(
            [
                "meson", "setup", f"--cross-file={cross}", "-Ddefault_library=static",
                "-Dwerror=true", "-Dexercises=false", "-Ddebug=false", str(folder), str(ROOT)])
    print("lab: compiling the examples for 32 bits", file=sys.stderr, flush=True)
    with build.lock(folder):
        kernel.output_of(["ninja", "-C", str(folder), *build.default_targets(folder, "examples")])
    return folder


def is_elf(file: Path) -> bool:
    return file.read_bytes()[:4] == b"\x7fELF"


def files(root: Path) -> "dict[str, Path]":
    """Where in the machine -> which file of this system: the tools, and all libraries that they or
    the examples need. @param root of debian()"""
    found = {"init": HERE / "page_init.sh", "lib/ld-linux.so.2": root / "lib/ld-linux.so.2"}
    for tool in TOOLS:
        found[f"bin/{tool}"] = next(
            path for place in ("usr/bin", "bin", "sbin") if (path := root / place / tool).exists())
    driver = next((root / "usr" / LIBRARIES / "libibverbs").glob("librxe-*.so"))
    found[f"usr/{LIBRARIES}/libibverbs/{driver.name}"] = driver
    found["etc/libibverbs.d/rxe.driver"] = root / "etc/libibverbs.d/rxe.driver"
    places = [root / "usr" / LIBRARIES, root / LIBRARIES]
    found[f"{LIBRARIES}/libstdc++.so.6"] = root / "usr" / LIBRARIES / "libstdc++.so.6"
    left = list(found.values())
    while left:
        file = left.pop()
        said = kernel.output_of(["readelf", "-d", str(file)]) if is_elf(file) else ""
        for name in re.findall(r"\(NEEDED\).*\[(.*)\]", said):
            inside = f"{LIBRARIES}/{name}"
            if inside not in found and name != "ld-linux.so.2":
                found[inside] = next(path for in_ in places if (path := in_ / name).exists())
                left.append(found[inside])
    return found


def stripped(program: Path) -> bytes:
    with tempfile.NamedTemporaryFile() as file:
        kernel.output_of(["strip", "-o", file.name, str(program)])
        return Path(file.name).read_bytes()


def initramfs(found: "dict[str, Path]") -> bytes:
    folders = sorted({str(above) for name in found for above in Path(name).parents} - {"."})
    archive = [(name, 0o40755, b"") for name in folders]
    archive += [
        (name, 0o100755, stripped(file) if is_elf(file) else file.read_bytes())
        for name, file in sorted(found.items())]
    archive += [
        ("etc/passwd", 0o100644, b"root::0:0:root:/root:/bin/sh\n"),
        ("etc/hosts", 0o100644, b"127.0.0.1 localhost lab\n::1 localhost\n")]
    return kernel.cpio(archive)


def command_line() -> str:
    """The kernel's. The kernel passes to page_init.sh, as variables, what it does not know."""
    return (
        "console=ttyS0 quiet panic=-1 tsc=reliable mitigations=off random.trust_cpu=on"
        f" lab_mac={network.mac('')} lab_ipv4={network.prefix()}"
        f" lab_ipv6={network.ipv6_prefix('')}")


def state(image: Path, root: bytes) -> Path:
    """The file with the saved state, compressed."""
    v86 = npm("v86")
    script = HERE / "save_state.mjs"

    def make(folder: Path) -> None:
        (folder / "initrd.gz").write_bytes(gzip.compress(root, 1))
        kernel.output_of(
            [
                "node", str(script), str(v86 / "build"), *map(str, BIOS), str(image),
                str(folder / "initrd.gz"), command_line(), str(folder / "state.bin")])
        kernel.output_of(
            ["zstd", "-q", "-19", "--rm", str(folder / "state.bin"), "-o",
             str(folder / "state.bin.zst")])

    inputs = [image, script, HERE / "page_machine.mjs", *BIOS]
    made_of = hashlib.sha256(root + b"".join(file.read_bytes() for file in inputs)).hexdigest()
    return part("state", made_of + v86.name + command_line(), make) / "state.bin.zst"
