# SPDX-License-Identifier: MIT
"""The packages that the project needs, by distribution, and their installation where that is
possible."""
from __future__ import annotations

import os
import platform
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from lab.errors import LabError

QEMU = "qemu-system-arm" if platform.machine() == "aarch64" else "qemu-system-x86"


def _clang_runtime() -> str:
    """libFuzzer and the sanitizers of Debian's clang, which only recommends this package. Its name
    has clang's version in it."""
    try:
        release = platform.freedesktop_os_release()
    except OSError:
        return ""
    version = {"12": 14, "13": 19}.get(release.get("VERSION_ID", ""))
    return f" libclang-rt-{version}-dev" if release["ID"] == "debian" and version else ""


DEBIAN = {
    "build": (
        "meson ninja-build g++ pkg-config libibverbs-dev librdmacm-dev libcli11-dev libgtest-dev"
        " libasio-dev patch"),
    "device": "ibverbs-providers ibverbs-utils rdmacm-utils iproute2 kmod",
    "machine": f"{QEMU} busybox-static zstd",
    "kernel": "make gcc patch perl",
    "docs": "doxygen graphviz",
    "check": "clang-format cmake flake8 make perftest procps",
    "wire": "tcpdump tshark",
    "bench": "perftest ucx-utils libfabric-bin rdmacm-utils",
    "book": "chromium",
    "play": "linux-source bc flex bison make gcc g++ seabios nodejs",
    "thorough": "chromium chromium-driver clang valgrind" + _clang_runtime(),
}
# For the distributions on which ./lab installs nothing itself: the names to type.
OTHERS = {
    "dnf": (
        "dnf install",
        {
            "build": (
                "meson ninja-build gcc-c++ pkgconf rdma-core-devel cli11-devel gtest-devel"
                " asio-devel patch"),
            "device": "libibverbs libibverbs-utils librdmacm-utils iproute kmod",
            "machine": "qemu-system-x86 busybox zstd",
            "kernel": "make gcc patch perl kernel-devel",
            "docs": "doxygen graphviz",
            "check": "clang-tools-extra cmake make perftest python3-flake8 procps-ng",
            "wire": "tcpdump wireshark-cli",
            "bench": "perftest ucx libfabric librdmacm-utils",
            "book": "chromium",
            "thorough": "chromium chromedriver clang compiler-rt valgrind",
        }),
    "pacman": (
        "pacman -S --needed",
        {
            "build": "meson ninja gcc pkgconf rdma-core cli11 gtest asio patch",
            "device": "iproute2 kmod",
            "machine": "qemu-system-x86 busybox zstd",
            "kernel": "make gcc patch perl linux-headers",
            "docs": "doxygen graphviz",
            "check": "clang cmake flake8 make procps-ng",
            "wire": "tcpdump wireshark-cli",
            "bench": "openucx libfabric",
            "book": "chromium",
            "thorough": "chromium clang compiler-rt valgrind",
        }),
    "zypper": (
        "zypper install",
        {
            "build": (
                "meson ninja gcc-c++ pkg-config rdma-core-devel cli11-devel gtest asio-devel"
                " patch"),
            "device": "libibverbs-utils librdmacm-utils iproute2 kmod",
            "machine": "qemu-x86 busybox-static zstd",
            "kernel": "make gcc patch perl kernel-default-devel",
            "docs": "doxygen graphviz",
            "check": "clang cmake make procps python3-flake8",
            "wire": "tcpdump wireshark",
            "bench": "perftest ucx-tools libfabric librdmacm-utils",
            "book": "chromium",
            "thorough": "chromium chromedriver clang valgrind",
        }),
}
# Where dpkg cannot be asked: a program or file that tells whether a group is there.
SIGNS = {
    "build": ["meson", "ninja", "g++", "pkg-config", "patch"],
    "device": ["ibv_devices", "ip"],
    "machine": [QEMU.replace("-x86", "-x86_64").replace("-arm", "-aarch64"), "busybox"],
    "kernel": ["make", "gcc", "patch", "perl"],
    "docs": ["doxygen", "dot"],
    "check": ["clang-format", "cmake", "flake8", "make", "ps"],
    "wire": ["tcpdump", "tshark"],
    "bench": ["ib_write_lat", "ucx_perftest", "fi_pingpong", "rstream"],
    "book": ["chromium"],
    "thorough": ["chromium", "chromedriver", "clang++", "valgrind"],
}


def missing(*groups: str) -> list[str]:
    """The names of the packages (without dpkg: programs) of these groups that are not installed."""
    if not shutil.which("dpkg-query"):
        return [name for group in groups for name in SIGNS[group] if not shutil.which(name)]
    names = [name for group in groups for name in DEBIAN[group].split()]
    listed = subprocess.run(
        ["dpkg-query", "-W", "-f", "${Package} ${db:Status-Status}\n", *names], capture_output=True,
        text=True).stdout
    installed = {line.split()[0] for line in listed.splitlines() if line.endswith(" installed")}
    return [name for name in names if name not in installed]


def command(*groups: str) -> str:
    """What to type, as root, to install these groups on this machine."""
    for tool, (install, names) in OTHERS.items():
        if shutil.which(tool) and not shutil.which("apt-get"):
            return f"{install} " + " ".join(names[group] for group in groups)
    return "apt-get install -y --no-install-recommends " + " ".join(missing(*groups))


def need(*groups: str) -> None:
    """@raises LabError with the line to type if a package of these groups is missing; installs
    nothing"""
    names = missing(*groups)
    if names:
        raise LabError(f"missing: {' '.join(names)}. As root: {command(*groups)}")


def ensure(*groups: str) -> None:
    """Installs what is missing, as root or through sudo, on Debian and Ubuntu. A command calls it
    once, as it begins, for everything that it needs: what comes later calls need(). LAB_INSTALL=no
    forbids it to install.

    @raises LabError where nothing can be installed, with the line to type"""
    names = missing(*groups)
    if not names:
        return
    prefix = privilege()
    if not shutil.which("apt-get") or prefix is None or os.environ.get("LAB_INSTALL") == "no":
        need(*groups)
    print(f"lab: installing {' '.join(names)}", file=sys.stderr, flush=True)
    # A machine without package lists (a container image) does not know any package yet.
    if subprocess.run(["apt-cache", "policy", *names], capture_output=True, text=True).stdout.count(
        "Candidate: (none)"
    ) or not any(Path("/var/lib/apt/lists").glob("*Packages*")):
        _apt(prefix, ["update", "-q"])
    _apt(prefix, ["install", "-y", "--no-install-recommends", *names])
    # Without dpkg, programs were looked for, and a package may not bring all of them.
    need(*groups)
    from lab.machine import machine

    machine.files_changed()


def privilege() -> "list[str] | None":
    """The words to put before a command that needs root; None if there are none."""
    if os.getuid() == 0:
        return []
    if shutil.which("sudo"):
        if subprocess.run(["sudo", "-n", "true"], capture_output=True).returncode == 0:
            return ["sudo", "-n"]
        if sys.stdin.isatty():
            return ["sudo"]
    return None


def _apt(prefix: list[str], words: list[str]) -> None:
    argv = [
        *prefix, "env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-o",
        "DPkg::Lock::Timeout=300", *words]
    process = subprocess.Popen(
        argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    said = []
    for line in process.stdout:
        said.append(line)
        if line.startswith(("Get:", "Unpacking", "Setting up")):
            print("lab:   " + line.strip()[:100], file=sys.stderr, flush=True)
    if process.wait():
        raise LabError(f"{shlex.join(argv)} failed:\n{''.join(said[-8:])}")
