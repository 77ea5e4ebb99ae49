# SPDX-License-Identifier: MIT
"""The machine that has the device: what machine.json says of it."""
from __future__ import annotations

import os
import platform
import re
import shutil
import socket
import subprocess
from pathlib import Path
from typing import Dict, Optional

SYSFS = Path("/sys/class/infiniband")


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:  # a file of sysfs that the device has not, or an empty entry of its GID table
        return ""


def active_port(device: str) -> Path:
    """Its first active port: the one that the examples choose."""
    ports = sorted((SYSFS / device / "ports").glob("*"))
    return next(
        (port for port in ports if "ACTIVE" in _read(port / "state")),
        ports[0] if ports else Path("/nonexistent"))


def gid_index(device: str) -> Optional[int]:
    """Of the RoCEv2 entry with an IPv4 address, or else of the last RoCEv2 entry; None on
    InfiniBand."""
    port, other = active_port(device), None
    for index in range(256):
        gid = _read(port / "gids" / str(index))
        if not gid.strip("0:") or _read(port / "gid_attrs/types" / str(index)) != "RoCE v2":
            continue
        if gid.startswith("0000:0000:0000:0000:0000:ffff:"):
            return index
        other = index
    return other


def _said(pattern: str, *argv: str) -> str:
    """What a command's output has where `pattern` has its group; empty without the command."""
    if not shutil.which(argv[0]):
        return ""
    try:
        said = subprocess.run(
            argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, timeout=60).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ""
    found = re.search(pattern, said, re.M)
    return found[1].strip() if found else ""


def versions() -> Dict[str, str]:
    """Of what is measured; empty for what is not installed."""
    return {
        "rdma-core": (
            _said(r"(.+)", "dpkg-query", "-W", "-f", "${Version}\n", "libibverbs1")
            or _said(r"(\d+[\d.]*)", "rpm", "-q", "--qf", "%{VERSION}", "libibverbs")
            or _said(r"(.+)", "pkg-config", "--modversion", "libibverbs")),
        "perftest": _said(r"[Vv]ersion:? *([\d.]+)", "ib_write_lat", "--version"),
        "ucx": _said(r"[Vv]ersion:? *([\d.]+)", "ucx_info", "-v"),
        "libfabric": _said(r"libfabric: *([\d.]+)", "fi_info", "--version"),
    }


def _driver(device: str) -> str:
    link = SYSFS / device / "device/driver"
    # SoftRoCE's devices have no device below them. They are the ones that name their netdev so.
    return (
        link.resolve().name
        if link.exists()
        else "rdma_rxe"
        if (SYSFS / device / "parent").exists()
        else "")


def _path_mtu(device: str) -> str:
    return _said(r"active_mtu:\s+(\d+)", "ibv_devinfo", "-d", device)


def cpu_model() -> str:
    model = re.search(r"^model name\s*: (.*)", Path("/proc/cpuinfo").read_text(), re.M)
    return model[1] if model else platform.processor() or platform.machine()


def machine(device: str) -> dict:
    cpuinfo = Path("/proc/cpuinfo").read_text()
    inside = Path("/run/lab/machine").exists()
    port = active_port(device)
    return {
        "host": socket.gethostname(),
        "cpu": cpu_model(),
        "cpus": len(os.sched_getaffinity(0)),
        "kernel": platform.release(),
        # The front end says by what, if it is the project's own machine.
        "emulated": (
            "yes"
            if inside
            else "virtual"
            if re.search(r"^flags.*\bhypervisor\b", cpuinfo, re.M)
            else "no"),
        "device": device,
        "driver": _driver(device),
        "firmware": _read(SYSFS / device / "fw_ver"),
        "node_type": _read(SYSFS / device / "node_type"),
        "link_layer": _read(port / "link_layer"),
        "rate": _read(port / "rate"),
        "mtu": _path_mtu(device),
        "versions": versions(),
    }
