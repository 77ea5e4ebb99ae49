# SPDX-License-Identifier: MIT
"""./lab doctor: where the device comes from and why, and what is missing, with the command that
fixes it.

    ok       as it should be
    missing  something that ./lab needs, or that the chosen place needs
    note     something to know; nothing to fix unless you want that

Each check yields its findings: what it has looked at, and what to do about it.
"""
from __future__ import annotations

import ipaddress
import itertools
import json
import os
import platform
import re
import resource
import shutil
import subprocess
from pathlib import Path
from typing import Iterable, Iterator, NamedTuple, Union

from lab import packages, place
from lab.commands import progress
from lab.errors import LabError
from lab.machine import daemon, kernel, machine
from lab.paths import ROOT


class Finding(NamedTuple):
    state: str  # "ok", "missing" or "note"
    what: str
    fix: str = ""  # a command, or what else to do; "" where there is nothing to do


Findings = Iterator[Finding]
Address = Union[ipaddress.IPv4Address, ipaddress.IPv6Address]
Interface = Union[ipaddress.IPv4Interface, ipaddress.IPv6Interface]


def add_parser(subparsers) -> None:
    parser = subparsers.add_parser(
        "doctor", help="where the RDMA device comes from, and what is missing")
    parser.add_argument("--device", help="the RDMA device, where there are several")
    parser.add_argument(
        "--json", action="store_true",
        help="a list of objects with state, what and fix: for scripts, and for reports of mistakes")
    parser.set_defaults(main=main)


def main(args) -> int:
    progress.note("run", "00_your_lab")  # which has no program
    try:
        packages.ensure(*place.groups(args.device))
    except LabError:
        pass  # the report says what is missing
    found = []
    for finding in look(args.device):
        found.append(finding._asdict())
        if not args.json:
            print(
                f"{finding.state:8}{finding.what}"
                + (f"\n        -> {finding.fix}" if finding.fix else ""), flush=True)
    if args.json:
        print(json.dumps(found, indent=1))
    return int(any(finding["what"].startswith("a device: ") for finding in found))


def look(want: "str | None") -> Findings:
    yield from versions()
    for group in ("build", "device", "machine", "kernel", "docs", "check", "wire"):
        names = packages.missing(group)
        yield Finding(
            "missing" if names else "ok",
            f"packages: {group}" + (f": {' '.join(names)}" if names else ""),
            f"as root: {packages.command(group)}" if names else "")
    yield from here()
    yield from emulation()
    try:
        where = place.find_place(want)
    except LabError as error:
        yield Finding("missing", f"a device: {error}")
        return
    yield Finding("ok", f"place: {where.why}")
    yield from device(where)
    yield from memlock(where)


def versions() -> Findings:
    """What a report of a mistake has to say."""
    project = re.search(r"version: '(.*?)'", (ROOT / "meson.build").read_text())[1]
    commit = ""
    if shutil.which("git"):
        commit = subprocess.run(
            ["git", "-C", str(ROOT), "describe", "--always", "--dirty"], capture_output=True,
            text=True).stdout.strip()
    try:
        system = platform.freedesktop_os_release()["PRETTY_NAME"]
    except OSError:
        system = platform.system()
    yield Finding(
        "ok",
        f"RDMA by Example {project}{f' ({commit})' if commit else ''}; {system}, "
        f"kernel {os.uname().release}, {os.uname().machine}")


def here() -> Findings:
    """What this machine's own kernel offers."""
    release = os.uname().release
    found = place.devices()
    for name, active in found.items():
        yield Finding(
            "ok" if active else "note",
            f"this kernel: device {name}, {'a' if active else 'no'} port active",
            "" if active else f"bring its link up: ip link set NETDEV up; rdma link show {name}")
    if found and not list(Path("/dev/infiniband").glob("uverbs*")):
        yield Finding(
            "missing", "this kernel: /dev/infiniband/uverbs*",
            "modprobe ib_uverbs; in a container: pass --device=/dev/infiniband to it")
    elif found:
        yield from providers(found)
        yield from namespaces(found)
        yield from subnets(found)
    else:
        yield Finding("note", "this kernel: no RDMA device")
    if shutil.which("modprobe") and not subprocess.run(["modprobe", "-nq", "rdma_rxe"]).returncode:
        yield Finding("ok", f"this kernel: module rdma_rxe for {release}")
    else:
        yield Finding(
            "note",
            f"this kernel: no module rdma_rxe for {release}",
            "Ubuntu: apt-get install linux-modules-extra-$(uname -r); Debian's cloud kernel has"
            " none: linux-image-" + kernel.arch().package.rsplit("-", 1)[-1])
    yield Finding(
        "note", f"soft iWARP: {place.SIW}, in an emulated machine",
        f"./lab exec --device {place.SIW} -- ibv_devinfo; the first time may fetch the kernel's"
        " source, 140 MB")
    yield from firewall()
    yield from limits()


def providers(found: Iterable[str]) -> Findings:
    """Devices that the kernel has, and libibverbs does not find."""
    if not shutil.which("ibv_devices"):
        return
    listed = subprocess.run(["ibv_devices"], capture_output=True, text=True).stdout.split()
    for name in found:
        if name not in listed:
            yield Finding(
                "missing", f"libibverbs: the provider library for {name}",
                "install it, in a container, too: Debian's ibverbs-providers "
                "(lessons/troubleshooting.md#no-provider)")


def entries(name: str, what: str) -> "set[str]":
    """What a device's GID table says in its used entries."""
    found = set()
    for entry in (place.SYSFS / name).glob(f"ports/*/{what}/*"):
        try:
            found.add(entry.read_text().strip())
        except OSError:  # an empty entry
            pass
    return found


def addresses_of(name: str) -> "set[Address]":
    """The IP addresses that the device has as GIDs, whichever namespace they are in."""
    gids = {ipaddress.IPv6Address(gid) for gid in entries(name, "gids")}
    return {gid.ipv4_mapped or gid for gid in gids if int(gid) and not gid.is_link_local}


def interfaces() -> "list[tuple[str, Interface]]":
    """Each address of this network namespace, with its netdev. Needs ip(8)."""
    shown = subprocess.run(["ip", "-json", "address"], capture_output=True).stdout
    links = json.loads(shown or "[]")
    return [
        (link["ifname"], ipaddress.ip_interface(f"{address['local']}/{address['prefixlen']}"))
        for link in links for address in link["addr_info"]]


def namespaces(found: Iterable[str]) -> Findings:
    """Devices whose network interface another network namespace has, as in a container. A netdev of
    the same name may be here."""
    if not shutil.which("ip"):
        return
    here_too = {interface.ip for _, interface in interfaces()}
    for name in found:
        addresses = addresses_of(name)
        if addresses and not addresses & here_too:
            yield Finding(
                "note",
                f"{name}: its netdev, {', '.join(sorted(entries(name, 'gid_attrs/ndevs')))}, is in"
                " another network namespace",
                "run the container with the host's network, or move the netdev into this one "
                "(lessons/troubleshooting.md#other-namespace)")


def subnets(found: Iterable[str]) -> Findings:
    """Two interfaces of RDMA devices in one subnet: a peer may learn the wrong one's Ethernet
    address."""
    if not shutil.which("ip"):
        return
    ours = set().union(*map(addresses_of, found))
    networks = [
        (interface.network, netdev) for netdev, interface in interfaces()
        if interface.version == 4 and interface.ip in ours]
    for (network, one), (other_network, other) in itertools.combinations(sorted(networks), 2):
        if one != other and network.overlaps(other_network):
            yield Finding(
                "note", f"{one} and {other} have addresses in one subnet, {network}",
                "sysctl net.ipv4.conf.all.arp_ignore=1 net.ipv4.conf.all.arp_announce=2 "
                "(lessons/troubleshooting.md#two-devices-one-subnet)")


def firewall() -> Findings:
    """RoCEv2 is UDP to port 4791; only root can read the rules."""
    for command in (["nft", "list", "ruleset"], ["iptables-save"]):
        if not shutil.which(command[0]):
            continue
        result = subprocess.run(command, capture_output=True, text=True)
        if result.returncode:
            yield Finding(
                "note",
                (
                    f"firewall: {command[0]} tells only root; UDP 4791 has to be open between two"
                    " hosts"))
        elif re.search(r"drop|reject|DROP|REJECT", result.stdout) and "4791" not in result.stdout:
            yield Finding(
                "note",
                "firewall: there are rules, and none of them mentions UDP 4791, which RoCEv2 needs",
                "nft add rule inet filter input udp dport 4791 accept",
            )
        else:
            yield Finding("ok", "firewall: nothing in the way of UDP 4791")
        return
    yield Finding("ok", "firewall: none is installed")


def emulation() -> Findings:
    """What the emulated machine needs."""
    if place.INSIDE.exists():
        yield Finding("note", "this is the emulated machine")
        return
    qemu = kernel.arch().qemu
    yield Finding(
        "ok" if shutil.which(qemu) else "missing", f"emulated machine: {qemu}",
        "" if shutil.which(qemu) else f"as root: {packages.command('machine')}")
    cached = kernel.cached()
    if cached:
        yield Finding("ok", f"emulated machine: kernel {cached.version}")
    else:
        yield Finding(
            "note",
            "emulated machine: no kernel yet; it is downloaded when it is needed, about 70 MB")
    if not os.access("/dev/kvm", os.R_OK | os.W_OK):
        yield Finding(
            "note",
            "emulated machine: no KVM (/dev/kvm), so it is emulated, which is slower and works")
    elif daemon.kvm_verdict_file().exists():
        yield Finding(
            "note", "emulated machine: /dev/kvm is there and does not work, so it is emulated")
    else:
        yield Finding("ok", "emulated machine: KVM")
    running = machine.status()
    if running:
        yield Finding(
            "ok",
            (
                f"emulated machine: running since a boot of {running['boot_seconds']:.1f} s by "
                f"{running['accelerator']}; QEMU is process {running['qemu']}"))


def ask(where: place.Place, *argv: str) -> str:
    result = subprocess.run(where.wrap(list(argv)), capture_output=True, text=True)
    return result.stdout


def device(where: place.Place) -> Findings:
    """What the chosen device says of itself, wherever it is."""
    top = f"/sys/class/infiniband/{where.device}/ports"
    # One process for all of it: the GID table has 1024 entries, most of them empty, which grep
    # passes over.
    found = ask(where, "sh", "-c", f"cd {top} && grep -s . */state */gids/* */gid_attrs/types/*")
    values = dict(line.split(":", 1) for line in found.splitlines())
    gids, is_roce_v2 = [], False
    for path, value in values.items():
        port, *rest = path.split("/")
        if rest == ["state"]:
            active = "ACTIVE" in value
            yield Finding(
                "ok" if active else "missing", f"port {port}: {value}",
                "" if active else "ip link set NETDEV up")
        elif rest[:2] == ["gid_attrs", "types"]:
            gid = ipaddress.ip_address(values[f"{port}/gids/{rest[2]}"])
            gids.append(gid)
            is_roce_v2 |= value == "RoCE v2"
            text = f"::ffff:{gid.ipv4_mapped}" if gid.ipv4_mapped else str(gid)
            yield Finding(
                "note" if value.endswith("v1") else "ok",
                f"port {port} GID {rest[2]}: {text} ({value})")
    if not gids:
        yield Finding(
            "missing", "no GID",
            "give the netdev an IP address: ip address add 10.77.0.1/24 dev NETDEV")
    elif is_roce_v2 and all(gid.is_link_local for gid in gids):
        yield Finding(
            "note", "only link-local GIDs: rdma_cm and a peer behind a router need an IP address",
            "ip address add 10.77.0.1/24 dev NETDEV")
    mtu = re.search(r"active_mtu:\s*(\d+)", ask(where, "ibv_devinfo", "-d", where.device))
    if mtu:
        yield Finding(
            "ok",
            f"path MTU: {mtu[1]} bytes"
            + ("; 4096 needs a netdev MTU of 9000" if mtu[1] == "1024" else ""))


def limits() -> Findings:
    """What a process may have of this machine, and a process that has nearly all of it."""
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    yield Finding(
        "ok" if files >= 1024 else "note", f"open files: {files} for each process (ulimit -n)",
        "" if files >= 1024 else "a device, channel or TCP connection needs one: ulimit -n 1024")
    most = int(Path("/proc/sys/vm/max_map_count").read_text())
    for process, count in mappings():
        if count > most * 0.9:
            yield Finding(
                "note", f"mappings: process {process} has {count} of {most}",
                f"sysctl vm.max_map_count={2 * most} "
                "(lessons/troubleshooting.md#registration-refused)")


def mappings() -> "Iterator[tuple[str, int]]":
    """Each process of this user, with the number of its mappings."""
    for maps in Path("/proc").glob("[0-9]*/maps"):
        try:
            yield maps.parent.name, maps.read_bytes().count(b"\n")
        except OSError:  # it has ended, or is another user's
            pass


def memlock(where: place.Place) -> Findings:
    """Registered memory counts against ulimit -l, except for root."""
    limit = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
    if where.kind == "machine" or os.getuid() == 0 or limit == resource.RLIM_INFINITY:
        yield Finding("ok", "memlock: as much as there is")
    else:
        yield Finding(
            "ok" if limit >= 1 << 26 else "note",
            f"memlock: {limit >> 10} kB may be registered",
            (
                ""
                if limit >= 1 << 26
                else (
                    "ulimit -l unlimited, or a line in /etc/security/limits.conf: "
                    "* - memlock unlimited; in a container: --ulimit memlock=-1")))
