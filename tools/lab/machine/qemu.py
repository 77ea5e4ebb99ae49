# SPDX-License-Identifier: MIT
"""The command line of an emulated machine."""
from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from lab.errors import LabError
from lab.machine import kernel as kernels, network, tsc
from lab.paths import ROOT

MEMORY = "1G"
MEMORY_OF_HOST = "640M"  # of each of two, so that QEMU itself stays below 1 GiB
TRANSLATED = 256  # MiB for translated code; QEMU itself would take up to 1 GiB
# Only one of them runs until the agent is ready: two hosts on two real processors start in little
# more than half the time.
PROCESSORS = 2


def command(
    kernel: kernels.Kernel, initramfs: Path, accelerator: str, host: str, port: int,
    wire: "int | None", console: Path
) -> list[str]:
    """@param host "a" or "b" for one of two, "" or "siw" for a machine that is alone
    @param port a connected socket that becomes the agent's virtio port
    @param wire a connected socket that becomes the Ethernet between the two hosts"""
    arch = kernels.arch()
    if not shutil.which(arch.qemu):
        raise LabError(f"{arch.qemu} is not installed: ./lab doctor names the package")
    processor = (
        ["-accel", "kvm", "-cpu", "host"]
        if accelerator == "kvm"
        else ["-accel", f"tcg,thread=multi,tb-size={TRANSLATED}", "-cpu", "max,erms=off"])
    rate = None if accelerator == "kvm" else tsc.kilohertz()
    ethernet = ["-netdev", f"socket,id=wire,fd={wire}"]
    ethernet += ["-device", "virtio-net-pci,netdev=wire,romfile="]
    return [
        arch.qemu, *arch.machine, *processor, "-m", MEMORY if wire is None else MEMORY_OF_HOST,
        "-smp", str(PROCESSORS), "-nodefaults", "-display", "none", "-no-reboot", "-no-user-config",
        "-kernel", str(kernel.image), "-initrd", str(initramfs),
        # no_timer_check: on a busy machine the emulated timer's interrupts come too late for the
        # kernel's test of it, which ends in a panic ("IO-APIC + timer doesn't work").
        "-append",
        f"console={arch.console} quiet oops=panic panic=-1 mitigations=off tsc=reliable"
        f" no_timer_check{f' tsc_early_khz={rate}' if rate else ''}"
        f" maxcpus=1 lab.python={_python()} lab.mac={network.mac(host)}"
        f" lab.ipv4={network.prefix(host)} lab.ipv6={network.ipv6_prefix(host)}"
        # Some tests use a stricter kernel.
        + (f" lab.driver={host}" if wire is None and host else "")
        + ("" if wire is None else f" lab.host={host}") + " " + os.environ.get("LAB_BOOT", ""),
        "-serial", "file:" + _quote(console), "-device", "virtio-serial-pci",
        "-chardev", f"socket,id=agent,fd={port}",
        "-device", "virtserialport,chardev=agent,name=lab.agent",
        *([] if wire is None else ethernet),
        *_share("host", Path("/"), "readonly=on"),
        *_share("project", ROOT, "readonly=off"),
    ]


def _share(tag: str, path: Path, access: str) -> list[str]:
    # multidevs=remap keeps files of different file systems apart that have the same inode number.
    return [
        "-fsdev",
        f"local,id={tag},path={_quote(path)},security_model=none,multidevs=remap,{access}",
        "-device", f"virtio-9p-pci,fsdev={tag},mount_tag={tag}"]


def _quote(path: Path) -> str:
    """QEMU separates options by commas, and takes two for one."""
    return str(path).replace(",", ",,")


def _python() -> str:
    """The interpreter that the machine runs its agent with: the host's files are the machine's."""
    usual = "/usr/bin/python3"
    return usual if os.access(usual, os.X_OK) else os.path.realpath(sys.executable)
