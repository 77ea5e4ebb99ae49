# SPDX-License-Identifier: MIT
"""./lab doctor: where the device comes from and why, and what is missing, with the command that
fixes it.

    ok       as it should be
    missing  something that ./lab needs, or that the chosen place needs
    note     something to know; nothing to fix unless you want that
"""
from __future__ import annotations

import ipaddress
import os
import re
import resource
import shutil
import subprocess
from pathlib import Path

from lab import packages, place
from lab.commands import progress
from lab.errors import LabError
from lab.machine import daemon, kernel, machine


def add_parser(subparsers) -> None:
    parser = subparsers.add_parser(
        "doctor", help="where the RDMA device comes from, and what is missing")
    parser.add_argument("--device", help="the RDMA device, where there are several")
    parser.set_defaults(main=main)


def report(state: str, what: str, fix: str = "") -> None:
    print(f"{state:8}{what}" + (f"\n        -> {fix}" if fix else ""), flush=True)


def main(args) -> int:
    progress.note("run", "00_your_lab")  # which has no program
    try:
        packages.ensure(*place.groups(args.device))
    except LabError:
        pass  # the report says what is missing
    for group in ("build", "device", "machine", "kernel", "docs", "check", "wire"):
        names = packages.missing(group)
        report(
            "missing" if names else "ok",
            f"packages: {group}" + (f": {' '.join(names)}" if names else ""),
            f"as root: {packages.command(group)}" if names else "",
        )
    here()
    emulation()
    try:
        where = place.find_place(args.device)
    except LabError as error:
        report("missing", f"a device: {error}")
        return 1
    report("ok", f"place: {where.why}")
    device(where)
    memlock(where)
    return 0


def here() -> None:
    """What this machine's own kernel offers."""
    release = os.uname().release
    found = place.devices()
    for name, active in found.items():
        report(
            "ok" if active else "note",
            f"this kernel: device {name}, {'a' if active else 'no'} port active",
            "" if active else f"bring its link up: ip link set NETDEV up; rdma link show {name}")
    if found and not list(Path("/dev/infiniband").glob("uverbs*")):
        report(
            "missing", "this kernel: /dev/infiniband/uverbs*",
            "modprobe ib_uverbs; in a container: pass --device=/dev/infiniband to it")
    elif not found:
        report("note", "this kernel: no RDMA device")
    if shutil.which("modprobe") and not subprocess.run(["modprobe", "-nq", "rdma_rxe"]).returncode:
        report("ok", f"this kernel: module rdma_rxe for {release}")
    else:
        report(
            "note",
            f"this kernel: no module rdma_rxe for {release}",
            "Ubuntu: apt-get install linux-modules-extra-$(uname -r); Debian's cloud kernel has"
            " none: linux-image-" + kernel.arch().package.rsplit("-", 1)[-1])
    firewall()


def firewall() -> None:
    """RoCEv2 is UDP to port 4791; only root can read the rules."""
    for command in (["nft", "list", "ruleset"], ["iptables-save"]):
        if not shutil.which(command[0]):
            continue
        result = subprocess.run(command, capture_output=True, text=True)
        if result.returncode:
            report(
                "note",
                (
                    f"firewall: {command[0]} tells only root; UDP 4791 has to be open between two"
                    " hosts"))
        elif re.search(r"drop|reject|DROP|REJECT", result.stdout) and "4791" not in result.stdout:
            report(
                "note",
                "firewall: there are rules, and none of them mentions UDP 4791, which RoCEv2 needs",
                "nft add rule inet filter input udp dport 4791 accept",
            )
        else:
            report("ok", "firewall: nothing in the way of UDP 4791")
        return
    report("ok", "firewall: none is installed")


def emulation() -> None:
    """What the emulated machine needs."""
    if place.INSIDE.exists():
        return report("note", "this is the emulated machine")
    qemu = kernel.arch().qemu
    report(
        "ok" if shutil.which(qemu) else "missing", f"emulated machine: {qemu}",
        "" if shutil.which(qemu) else f"as root: {packages.command('machine')}")
    cached = kernel.cached()
    if cached:
        report("ok", f"emulated machine: kernel {cached.version}")
    else:
        report(
            "note",
            "emulated machine: no kernel yet; it is downloaded when it is needed, about 70 MB")
    if not os.access("/dev/kvm", os.R_OK | os.W_OK):
        report(
            "note",
            "emulated machine: no KVM (/dev/kvm), so it is emulated, which is slower and works")
    elif daemon.kvm_verdict_file().exists():
        report("note", "emulated machine: /dev/kvm is there and does not work, so it is emulated")
    else:
        report("ok", "emulated machine: KVM")
    running = machine.status()
    if running:
        report(
            "ok",
            (
                f"emulated machine: running since a boot of {running['boot_seconds']:.1f} s by "
                f"{running['accelerator']}; QEMU is process {running['qemu']}"))
    return None


def ask(where: place.Place, *argv: str) -> str:
    result = subprocess.run(where.wrap(list(argv)), capture_output=True, text=True)
    return result.stdout


def device(where: place.Place) -> None:
    """What the chosen device says of itself, wherever it is."""
    top = f"/sys/class/infiniband/{where.device}/ports"
    # One process for all of it: the GID table has 1024 entries, most of them empty, which grep
    # passes over.
    found = ask(where, "sh", "-c", f"cd {top} && grep -s . */state */gids/* */gid_attrs/types/*")
    values = dict(line.split(":", 1) for line in found.splitlines())
    gids = 0
    for path, value in values.items():
        port, *rest = path.split("/")
        if rest == ["state"]:
            active = "ACTIVE" in value
            report(
                "ok" if active else "missing", f"port {port}: {value}",
                "" if active else "ip link set NETDEV up")
        elif rest[:2] == ["gid_attrs", "types"]:
            gids += 1
            gid = ipaddress.ip_address(values[f"{port}/gids/{rest[2]}"])
            text = f"::ffff:{gid.ipv4_mapped}" if gid.ipv4_mapped else str(gid)
            report(
                "note" if value.endswith("v1") else "ok",
                f"port {port} GID {rest[2]}: {text} ({value})")
    if not gids:
        report(
            "missing", "no GID",
            "give the netdev an IP address: ip address add 10.77.0.1/24 dev NETDEV")
    mtu = re.search(r"active_mtu:\s*(\d+)", ask(where, "ibv_devinfo", "-d", where.device))
    if mtu:
        report(
            "ok",
            f"path MTU: {mtu[1]} bytes"
            + ("; 4096 needs a netdev MTU of 9000" if mtu[1] == "1024" else ""))


def memlock(where: place.Place) -> None:
    """Registered memory counts against ulimit -l, except for root."""
    limit = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
    if where.kind == "machine" or os.getuid() == 0 or limit == resource.RLIM_INFINITY:
        report("ok", "memlock: as much as there is")
    else:
        report(
            "ok" if limit >= 1 << 26 else "note",
            f"memlock: {limit >> 10} kB may be registered",
            (
                ""
                if limit >= 1 << 26
                else (
                    "ulimit -l unlimited, or a line in /etc/security/limits.conf: "
                    "* - memlock unlimited; in a container: --ulimit memlock=-1")))
