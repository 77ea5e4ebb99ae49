# SPDX-License-Identifier: MIT
"""Where the RDMA device comes from: one that is there, SoftRoCE in this kernel, or the emulated
machine.

Everybody who runs a program takes a Place and runs place.wrap(argv) as an ordinary process: input,
both output streams, signals and exit status are the program's own wherever it runs.
"""
from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Optional, Sequence

from lab import packages
from lab.errors import LabError
from lab.machine import machine, network
from lab.paths import ROOT, cache_dir

NETDEV, RDMA, SIW, ADDRESS = "lab0", "rxe0", "siw0", network.address()
SYSFS = Path("/sys/class/infiniband")
INSIDE = Path("/run/lab/machine")  # exists in the emulated machine only


class NoDevice(LabError):
    """No place has a device; the message says for each why not."""


@dataclass(frozen=True)
class Place:
    kind: str  # "device", "softroce" or "machine"
    why: str  # one line that says why this one
    device: str  # name of the RDMA device
    address: str  # an IP address of its netdev: what a client on the same host gives as --host
    prefix: Sequence[str] = field(default=())
    host: str = ""  # which emulated machine

    def wrap(self, argv: Sequence[str]) -> list[str]:
        """The command line that runs `argv` where the device is."""
        return [*self.prefix, *argv]


def find_place(want: Optional[str] = None) -> Place:
    """@param want the device's name (--device); LAB_DEVICE does the same, LAB_PLACE chooses the
    kind

    @raises NoDevice"""
    want = want or os.environ.get("LAB_DEVICE") or None
    only = os.environ.get("LAB_PLACE", "")
    kinds = {"device": _existing, "softroce": _softroce, "machine": _machine}
    if only and only not in kinds:
        raise LabError(f"LAB_PLACE={only}: {', '.join(kinds)} are possible")
    reasons = []
    for kind, find in kinds.items():
        if only in ("", kind):
            found = find(want)
            if isinstance(found, Place):
                return found
            reasons.append(f"{kind}: {found}")
    raise NoDevice("no RDMA device is available. " + "; ".join(reasons))


def groups(want: Optional[str] = None) -> list[str]:
    """The packages (packages.py) that the place which find_place() would choose needs. Nothing is
    started or made."""
    only = os.environ.get("LAB_PLACE", "")
    here = INSIDE.exists() or only in ("device", "softroce")
    if not here and only != "machine":
        here = not isinstance(
            _usable(want or os.environ.get("LAB_DEVICE") or None), str
        ) or not _no_softroce(want)
    return ["device"] if here else ["device", "machine", *(["kernel"] if want == SIW else [])]


# ---- a device that is there


def devices() -> dict[str, bool]:
    """Name of each RDMA device of this kernel -> whether a port of it is active."""
    found = {}
    for path in sorted(SYSFS.glob("*")):
        states = [state.read_text() for state in path.glob("ports/*/state")]
        found[path.name] = any("ACTIVE" in state for state in states)
    return found


def _usable(want: Optional[str]) -> "list[str] | str":
    """Those of this kernel's devices that this user can use, or why there is none."""
    found = devices()
    if want and found and want not in found:
        raise NoDevice(f"no device {want}; there are {', '.join(found)}")
    usable = [name for name, active in found.items() if active and want in (None, name)]
    if not usable:
        return f"{', '.join(found)} has no active port" if found else "this kernel has none"
    if not any(
        os.access(path, os.R_OK | os.W_OK) for path in Path("/dev/infiniband").glob("uverbs*")
    ):
        return (
            "there is one, but no /dev/infiniband/uverbs* that this user may open (in a container:"
            " pass it in)")
    return usable


def _existing(want: Optional[str]) -> "Place | str":
    usable = _usable(want)
    if isinstance(usable, str):
        return usable
    name = usable[0]
    others = (
        f", the first of {len(usable)}; choose another by --device or LAB_DEVICE"
        if len(usable) > 1
        else "")
    return Place(
        "device", f"using {name}, an RDMA device of this machine{others}", name, _address(name))


def _address(device: str) -> str:
    """An IPv4 address of the device's netdev; without one, loopback, which suits TCP if not
    rdma_cm."""
    for netdev in sorted(path.name for path in (SYSFS / device / "device/net").glob("*")) or [
        _parent(device)
    ]:
        result = subprocess.run(
            ["ip", "-json", "-4", "address", "show", "dev", netdev], capture_output=True)
        for link in json.loads(result.stdout or "[]"):
            for address in link.get("addr_info", []):
                return address["local"]
    return "127.0.0.1"


def _parent(device: str) -> str:
    """The netdev below an rxe device."""
    path = SYSFS / device / "parent"
    return path.read_text().strip() if path.exists() else "lo"


# ---- SoftRoCE in this kernel


def _state_file() -> Path:
    """A restart undoes everything by itself, so what was done belongs to this boot."""
    return cache_dir() / f"softroce-{Path('/proc/sys/kernel/random/boot_id').read_text().strip()}"


def has_rxe_module() -> bool:
    """Whether SoftRoCE can be loaded into this kernel. Asks no program: modprobe(8) may not be
    installed yet."""
    folder = Path("/lib/modules") / os.uname().release
    lists = [
        folder / name
        for name in ("modules.dep", "modules.builtin")
        if os.access(folder / name, os.R_OK)
    ]
    return any(re.search(r"/rdma_rxe\.ko", path.read_text()) for path in lists)


def _no_softroce(want: Optional[str]) -> str:
    """Why ./lab cannot make a device in this kernel; "" if it can."""
    if not has_rxe_module():
        return f"kernel {os.uname().release} has no module rdma_rxe"
    if want not in (None, RDMA):
        return f"there is no {want}, and {RDMA} is what ./lab makes"
    if packages.privilege() is None:
        return "rdma_rxe is there, but loading it needs root or sudo"
    return ""


def _softroce(want: Optional[str]) -> "Place | str":
    why_not = _no_softroce(want)
    if why_not:
        return why_not
    packages.need("device")
    prefix = packages.privilege()
    # Each step with what undoes it; ./lab down undoes what was done here and nothing else.
    steps = [
        (["modprobe", "-a", "rdma_rxe", "ib_uverbs", "rdma_ucm"], []),
        (["ip", "link", "add", NETDEV, "type", "dummy"], ["ip", "link", "delete", NETDEV]),
        (["ip", "address", "add", network.prefix(), "dev", NETDEV], []),
        (["ip", "link", "set", NETDEV, "up"], []),
        (
            ["rdma", "link", "add", RDMA, "type", "rxe", "netdev", NETDEV],
            ["rdma", "link", "delete", RDMA]),
    ]
    # 6.1 needs it unasked
    subprocess.run([*prefix, "modprobe", "-q", "crc32_generic"], capture_output=True)
    for step, undo in steps:
        result = subprocess.run([*prefix, *step], capture_output=True, text=True)
        if result.returncode and "File exists" not in result.stderr:
            softroce_down()
            return f"{' '.join(step)} failed: {result.stderr.strip()}"
        if undo and not result.returncode:
            with open(_state_file(), "a") as state:
                state.write(" ".join(undo) + "\n")
    # udev needs a moment to make the device files.
    if shutil.which("udevadm"):
        subprocess.run([*prefix, "udevadm", "settle"], capture_output=True)
    return Place(
        "softroce", f"using {RDMA}, SoftRoCE in this kernel on {NETDEV} (./lab down removes it)",
        RDMA, ADDRESS)


def softroce_down() -> bool:
    """Removes what _softroce() made, and only that. @return whether there was anything"""
    if not _state_file().exists():
        return False
    prefix = packages.privilege()
    if prefix is None:
        raise LabError("removing the SoftRoCE device needs root or sudo")
    for undo in reversed(_state_file().read_text().splitlines()):
        subprocess.run([*prefix, *undo.split()], capture_output=True)
    _state_file().unlink()
    return True


# ---- the emulated machine


def find_machine() -> Place:
    """The emulated machine, wherever else a device may be. @raises NoDevice"""
    found = _machine(None)
    if isinstance(found, Place):
        return found
    raise NoDevice(f"no emulated machine is available: {found}")


def _machine(want: Optional[str]) -> "Place | str":
    if INSIDE.exists():
        return "this is the emulated machine already"
    if want not in (None, RDMA, SIW):
        raise NoDevice(f"no device {want}; there are {RDMA} and {SIW}, in emulated machines")
    host, what = ("siw", "soft iWARP") if want == SIW else ("", "SoftRoCE")
    try:
        packages.need("machine", *(["kernel"] if host else []))
    except LabError as error:
        return str(error)
    machine.start(host)  # if that fails, it is an error and not a reason to skip tests
    device = want or RDMA
    return Place(
        "machine", f"using {device}, {what} in the emulated machine", device, ADDRESS,
        _prefix(host), host)


def _prefix(host: str) -> tuple[str, ...]:
    # Without site (-S), which looks for packages: a tenth of what starting the client takes.
    return (sys.executable, "-S", str(ROOT / "tools/lab/commands/execute.py"), host)


# ---- two hosts


def find_host(host: str) -> Place:
    """One of the two emulated hosts; both are started if they do not run. @raises LabError"""
    if INSIDE.exists():
        raise NoDevice("this is an emulated machine already; two hosts are started outside")
    packages.need("machine")
    machine.start(host)
    return Place(
        "machine", f"using {RDMA} on host {host}", RDMA, network.address(host), _prefix(host), host)


def find_hosts() -> tuple[Place, Place]:
    """Hosts a and b, where servers and clients run. @raises LabError"""
    return find_host("a"), find_host("b")
