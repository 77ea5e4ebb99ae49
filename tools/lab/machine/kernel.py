# SPDX-License-Identifier: MIT
"""The emulated machine's kernel: the distribution's own package, unpacked into the cache.

Nothing is installed on the host and nobody needs to be root: apt works with package lists of its
own in the cache, and checks what it downloads against the signed lists. A kernel folder appears
under its final name only when it is complete, so neither Ctrl-C nor a broken download leaves half
of one.
"""
from __future__ import annotations

import fcntl
import gzip
import hashlib
import lzma
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Iterator, Sequence

from lab import obstacles
from lab.errors import LabError
from lab.paths import cache_dir

# What the machine needs beyond what is built in. rdma_rxe wants crc32_generic on 6.1 without saying
# so.
MODULES = [
    "virtio_pci", "virtio_console", "virtio_net", "9p", "9pnet_virtio", "overlay", "dummy", "veth",
    "bridge", "sch_netem", "crc32_generic", "ib_uverbs", "rdma_ucm", "ib_umad", "rdma_rxe"]
# Worth having, not there in every kernel.
OPTIONAL = {"crc32_generic", "virtio_pci", "virtio_net", "ib_umad"}


@dataclass(frozen=True)
class Kernel:
    version: str  # as uname -r has it
    image: Path
    modules: Path  # the folder that holds modules.dep


@dataclass(frozen=True)
class Arch:
    """What differs between the machines that Debian's kernels run on."""

    package: str  # the Debian package that depends on the newest kernel
    image: str  # the image's file name begins with this
    qemu: str
    machine: list[str]
    console: str


ARCHS = {
    "x86_64": Arch(
        "linux-image-amd64", "vmlinuz-", "qemu-system-x86_64", ["-machine", "q35"], "ttyS0"),
    "aarch64": Arch(
        "linux-image-arm64", "vmlinuz-", "qemu-system-aarch64", ["-machine", "virt"], "ttyAMA0")}


def arch() -> Arch:
    name = platform.machine()
    if name not in ARCHS:
        raise LabError(
            f"the emulated machine is prepared for {' and '.join(ARCHS)}, not for {name}")
    return ARCHS[name]


@contextmanager
def locked(path: Path) -> Iterator[None]:
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def get() -> Kernel:
    """The kernel to boot, downloaded if it has to be. LAB_KERNEL chooses another release's
    ("bookworm- backports") or a version by its beginning ("6.12").

    @raises LabError if none is available"""
    wanted = os.environ.get("LAB_KERNEL", "")
    folder = cache_dir() / "kernel" / (wanted or "stable").replace("/", "_")
    with locked(folder.with_suffix(".lock")):
        found = _complete(folder)
        if found:
            return found
        # A download that was killed has left these.
        for rubbish in [folder, *folder.parent.glob(f".partial-{folder.name}-*")]:
            shutil.rmtree(rubbish, ignore_errors=True)
        if shutil.which("apt-get"):
            try:
                _download(folder, wanted)
            except LabError:
                if obstacles.is_full(folder.parent):
                    raise LabError(obstacles.no_space(folder.parent)) from None
                raise
        elif wanted:
            raise LabError(f"LAB_KERNEL={wanted} needs apt, which this distribution does not have")
        else:
            _host_kernel(folder)
        found = _complete(folder)
        if not found:
            raise LabError(
                f"the kernel in {folder} is not complete; remove that folder and try again")
        return found


def cached() -> "Kernel | None":
    """The kernel if it is in the cache already."""
    wanted = os.environ.get("LAB_KERNEL", "")
    return _complete(cache_dir() / "kernel" / (wanted or "stable").replace("/", "_"))


def _complete(folder: Path) -> "Kernel | None":
    """The kernel in `folder`, if it is one whose download was finished."""
    stamp = folder / "complete"
    if stamp.exists():
        version, image, size = stamp.read_text().split("\n")[:3]
        kernel = Kernel(version, Path(image), folder / "lib/modules" / version)
        if (
            kernel.image.exists()
            and kernel.image.stat().st_size == int(size)
            and (kernel.modules / "modules.dep").exists()
        ):
            return kernel
    return None


def _unpacked(image: Path) -> Path:
    """An x86 image holds the kernel xz-compressed; unpacked here, it boots 2 s sooner than when it
    unpacks itself under emulation (Documentation/arch/x86/boot.rst has the header's fields)."""
    data = image.read_bytes()
    if data[0x202:0x206] != b"HdrS":  # not x86
        return image
    start = ((data[0x1F1] or 4) + 1) * 512 + int.from_bytes(data[0x248:0x24C], "little")
    try:
        kernel = lzma.LZMADecompressor(lzma.FORMAT_XZ).decompress(data[start:])
    except lzma.LZMAError:  # compressed otherwise: it unpacks itself
        return image
    if b"Xen\0" not in kernel:  # without this note QEMU cannot enter it
        return image
    unpacked = image.with_name("vmlinux")
    unpacked.write_bytes(kernel)
    image.unlink()
    return unpacked


def _finish(work: Path, folder: Path, version: str, image: Path) -> None:
    """@param image below `work`"""
    subprocess.run(
        ["depmod", "-b", str(work), version], check=True,
        env={**os.environ, "PATH": os.environ.get("PATH", "") + ":/usr/sbin:/sbin"})
    size = (work / image).stat().st_size
    (work / "complete").write_text(f"{version}\n{folder / image}\n{size}\n")
    work.rename(folder)


def _download(folder: Path, wanted: str) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".partial-{folder.name}-") as temp:
        work = Path(temp)
        apt = private_apt(work / "apt", wanted)
        print("lab: fetching package lists for the emulated machine's kernel", file=sys.stderr)
        # Some other source of this machine may be down without harm; if not, the kernel is not to
        # be found.
        updated = subprocess.run(
            [*apt, "update"], capture_output=True, text=True, stdin=subprocess.DEVNULL)
        try:
            packages = _packages(apt, wanted)
        except LabError as error:
            said = [line for line in updated.stderr.splitlines() if line.startswith(("E:", "W:"))]
            raise LabError(f"{error}; apt-get update: {said[0]}" if said else str(error)) from None
        print(f"lab: downloading {', '.join(packages)} (about 70 MB)", file=sys.stderr)
        output_of([*apt, "download", *packages], cwd=work / "apt")
        tree = work / "tree"
        for package in sorted((work / "apt").glob("*.deb")):
            print(f"lab: unpacking {package.name}", file=sys.stderr)
            output_of(["dpkg-deb", "-x", str(package), str(tree)])
        if (tree / "usr/lib/modules").exists() and not (tree / "lib").exists():
            (tree / "lib").symlink_to("usr/lib")
        folders = sorted((tree / "lib/modules").glob("*"))
        if not folders:
            raise LabError(f"{', '.join(packages)} hold no modules")
        version = folders[0].name
        images = [tree / "boot" / (arch().image + version), folders[0] / "vmlinuz"]
        image = next((image for image in images if image.exists()), None)
        if not image:
            raise LabError(f"{', '.join(packages)} hold no kernel image")
        _finish(tree, folder, version, _unpacked(image).relative_to(tree))


def private_apt(folder: Path, wanted: str) -> list[str]:
    """An apt-get that reads this machine's sources and writes only below `folder`."""
    for name in ("lists/partial", "cache/archives/partial", "parts"):
        (folder / name).mkdir(parents=True)
    options = {
        "Dir::State::Lists": folder / "lists",
        "Dir::Cache": folder / "cache",
        "Debug::NoLocking": "true",
        "APT::Sandbox::User": "",
        "Acquire::Languages": "none",
    }
    if re.match(r"[a-z]+-", wanted):  # another suite: the host's sources, with that suite's name
        sources = _sources_of(wanted)
        (folder / "parts/lab.sources.list").write_text(sources)
        options |= {
            "Dir::Etc::SourceList": folder / "parts/lab.sources.list",
            "Dir::Etc::SourceParts": "/dev/null",
        }
    return [
        "apt-get", "-q",
        *(word for key, value in options.items() for word in ("-o", f"{key}={value}"))]


def _sources_of(suite: str) -> str:
    """One-line sources for `suite`, from where the host gets its own release."""
    lines = subprocess.run(
        [
            "apt-get",
            "indextargets",
            "--format",
            "$(SITE) $(RELEASE) $(REPO_URI) $(SIGNED_BY)",
            "Created-By: Packages",
        ],
        capture_output=True,
        text=True,
    ).stdout.split("\n")
    release = suite.split("-")[0]
    uris = sorted(
        {line.split()[2] for line in lines if len(line.split()) >= 3 and line.split()[1] == release}
    )
    if not uris:
        raise LabError(f"LAB_KERNEL={suite}: this machine's apt sources have no release {release}")
    return "".join(
        f"deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] {uri} {suite} main\n"
        for uri in uris)


def _packages(apt: list[str], wanted: str) -> list[str]:
    """The packages that hold the kernel, its modules and their lists: the image's package, and what
    it depends on of the same version. On Ubuntu, others hold modules that few systems need."""
    cache = ["apt-cache", *apt[2:]]
    if wanted and not re.match(r"[a-z]+-", wanted):
        names = output_of(
            [*cache, "search", "--names-only", f"^linux-image-{re.escape(wanted)}"]
        ).split("\n")
        names = [
            line.split()[0]
            for line in names
            if line
            and "cloud" not in line
            and "-rt-" not in line
            and "-dbg" not in line
            and "unsigned" not in line
        ]
        if not names:
            raise LabError(f"LAB_KERNEL={wanted}: apt knows no linux-image-{wanted}…")
        return _same_version(cache, names[-1])
    meta = arch().package
    if not output_of([*cache, "pkgnames", meta]):
        meta = "linux-image-generic"
    if not output_of([*cache, "pkgnames", meta]):
        raise LabError(
            f"this machine's apt sources have no kernel package ({arch().package} or {meta})")
    depends = output_of([*cache, "depends", "--no-recommends", "--no-suggests", meta])
    image = re.search(r"Depends: (linux-image-\S*\d\S*)", depends)
    if not image:
        raise LabError(f"{meta} depends on no kernel package")
    extra = f"linux-modules-extra-{_version(image[1])}"
    has_extra = extra in output_of([*cache, "pkgnames", extra]).split()
    return _same_version(cache, image[1]) + ([extra] if has_extra else [])


def _version(image: str) -> str:
    return image.removeprefix("linux-image-").removeprefix("unsigned-")


def _same_version(cache: list[str], image: str) -> list[str]:
    """The package and all that it depends on whose names have its version."""
    listed = output_of(
        [
            *cache, "depends", "--recurse", "--no-recommends", "--no-suggests", "--no-conflicts",
            "--no-breaks", "--no-replaces", "--no-enhances", image])
    names = set(re.findall(r"^(?:  .?Depends: )?(linux-\S+)$", listed, re.M))
    return [image, *sorted(name for name in names - {image} if name.endswith(_version(image)))]


def _host_kernel(folder: Path) -> None:
    """Without apt: the kernel that this machine runs, if its distribution put it where they all
    do."""
    version = os.uname().release
    modules = Path("/lib/modules") / version
    images = [
        path
        for path in (
            Path(f"/boot/vmlinuz-{version}"), modules / "vmlinuz", Path("/boot/vmlinuz-linux"))
        if os.access(path, os.R_OK)
    ]
    if not images or not (modules / "modules.dep").exists():
        raise LabError(
            f"no kernel for the emulated machine: no readable /boot/vmlinuz-{version} with"
            f" {modules}")
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".partial-{folder.name}-") as temp:
        work = Path(temp) / "tree"
        (work / "lib/modules").mkdir(parents=True)
        (work / "lib/modules" / version).symlink_to(modules)
        (work / "complete").write_text(f"{version}\n{images[0]}\n{images[0].stat().st_size}\n")
        work.rename(folder)


def output_of(argv: list[str], **options) -> str:
    result = subprocess.run(
        argv, capture_output=True, text=True, stdin=subprocess.DEVNULL, **options)
    if result.returncode:
        reason = (result.stderr or result.stdout).strip().split("\n")[-1]
        raise LabError(f"{' '.join(argv[:1] + argv[-2:])} failed: {reason}")
    return result.stdout


# ---- initramfs
# ------------------------------------------------------------------------------------


def initramfs_of(group: str) -> "tuple[Kernel, Path]":
    """What the machines of this group (machine.py) boot: the kernel, and its initramfs."""
    kernel = get()
    if group != "siw":
        return kernel, initramfs(kernel)
    from lab.machine import siw

    return kernel, siw.initramfs(kernel)


def initramfs(kernel: Kernel, more: Sequence[str] = (), built: Sequence[Path] = ()) -> Path:
    """A small initramfs: busybox, the modules in the order in which they are loaded, and init.sh.

    @param more names of further modules, of which some may be missing or built in
    @param built modules that are not the kernel's own. They are loaded last"""
    modules = [*_load_order(kernel, more), *built]
    init = Path(__file__).with_name("init.sh").read_bytes()
    agent, frames = (
        Path(__file__).with_name(name).read_bytes() for name in ("agent.py", "frames.py"))
    busybox = _busybox().read_bytes()
    key = hashlib.sha256(
        b"\0".join(
            [
                init, agent, frames, busybox, kernel.version.encode(), repr(modules).encode(),
                *(path.read_bytes() for path in built), Path(__file__).read_bytes()])
    ).hexdigest()[:16]
    path = cache_dir() / "kernel" / f"initramfs-{kernel.version}-{key}.gz"
    if path.exists():
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    files = [
        ("init", 0o100755, init),
        ("agent.py", 0o100644, agent),
        ("frames.py", 0o100644, frames),
        ("bin", 0o40755, b""),
        ("bin/busybox", 0o100755, busybox),
        ("modules", 0o40755, b""),
    ]
    for number, module in enumerate(modules):
        name = module.name.split(".")[0]
        files.append((f"modules/{number:03d}-{name}.ko", 0o100644, _decompressed(module)))
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".partial-", delete=False) as file:
        try:
            file.write(gzip.compress(cpio(files), 1))
            file.flush()
            os.rename(file.name, path)
        except BaseException:
            os.unlink(file.name)
            raise
    return path


def _busybox() -> Path:
    for name in ("/bin/busybox", "/usr/lib/initcpio/busybox", "/sbin/busybox"):
        if os.access(name, os.R_OK):
            return Path(name)
    raise LabError("no static busybox: install busybox-static")


def _load_order(kernel: Kernel, more: Sequence[str]) -> list[Path]:
    """The modules and what they depend on, dependencies first; built-in ones need no loading."""
    depends: dict[str, tuple[str, list[str]]] = {}
    for line in (kernel.modules / "modules.dep").read_text().splitlines():
        path, _, needs = line.partition(":")
        depends[_module_name(path)] = (path, needs.split())
    builtin = {
        _module_name(line) for line in (kernel.modules / "modules.builtin").read_text().split()}
    order: list[str] = []
    for name in [*MODULES, *more]:
        if name in depends:
            path, needs = depends[name]
            # modules.dep lists what a module needs with the most basic one last.
            order += [item for item in [*reversed(needs), path] if item not in order]
        elif name not in builtin and name not in [*OPTIONAL, *more]:
            raise LabError(
                f"kernel {kernel.version} has no module {name}; choose another by LAB_KERNEL")
    return [kernel.modules / path for path in order]


def has_module(kernel: Kernel, name: str) -> bool:
    """Whether the kernel's packages have this module, built in or not."""
    lists = [kernel.modules / "modules.dep", kernel.modules / "modules.builtin"]
    return any(
        _module_name(line.partition(":")[0]) == name
        for path in lists for line in path.read_text().splitlines())


def _module_name(path: str) -> str:
    return path.rsplit("/", 1)[-1].split(".")[0].replace("-", "_")


def _decompressed(module: Path) -> bytes:
    data = module.read_bytes()
    if module.suffix == ".xz":
        return lzma.decompress(data)
    if module.suffix == ".gz":
        return gzip.decompress(data)
    if module.suffix == ".zst":
        return subprocess.run(["zstd", "-dc", str(module)], check=True, capture_output=True).stdout
    return data


def cpio(files: list[tuple[str, int, bytes]]) -> bytes:
    """The "newc" archive that the kernel unpacks (Documentation/driver-api/early-userspace)."""
    archive = bytearray()

    def pad() -> None:
        archive.extend(b"\0" * (-len(archive) % 4))

    for inode, (name, mode, data) in enumerate([*files, ("TRAILER!!!", 0, b"")], start=1):
        encoded = name.encode() + b"\0"
        fields = [inode, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(encoded), 0]
        archive.extend(b"070701" + b"".join(b"%08X" % field for field in fields) + encoded)
        pad()
        archive.extend(data)
        pad()
    return bytes(archive)
