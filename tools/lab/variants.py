# SPDX-License-Identifier: MIT
"""Which expected output holds where.

NAME.txt is what Debian 12 prints. Where newer software prints something else, a
variant beside it names the condition: NAME.kernel-6.4.txt is what SoftRoCE prints since kernel 6.4,
in which the behaviour changed, and NAME.kernel-6.2.rdma-core-45.txt needs both to be as new. Only
SoftRoCE has variants: what another device does does not depend on its kernel's rdma_rxe.
"""
from __future__ import annotations

import functools
import re
import subprocess
from pathlib import Path
from typing import Mapping

from lab.place import Place

# What newer software does otherwise, as the tests ask for it with since().
LOCAL_ERRORS_ARE_FLUSHES = "kernel-6.4"  # the status of a local error, or of a bind that fails
EACH_REGION_HAS_AN_RKEY = "kernel-6.5"  # also where no peer may use it: rxe_mr_init in rxe_mr.c
# Each acknowledgement waits for a work queue, not only behind another: rxe_comp_queue_pkt in
# rxe_comp.c.
ACKNOWLEDGED_LATER = "kernel-6.10"
FORK_INIT_DOES_NOTHING = "rdma-core-51"
CONDITION = re.compile(r"\.(kernel|rdma-core)-(\d+(?:\.\d+)*)(?=\.)")
Version = tuple  # of int


def version(text: str) -> Version:
    """The numbers at the beginning: (6, 12, 107) of "6.12.107+deb13-amd64"."""
    return tuple(map(int, re.match(r"\d+(?:\.\d+)*", text)[0].split(".")))


def conditions(file: Path) -> "dict[str, Version]":
    """What `file` needs: {"kernel": (6, 4)}; nothing if it is no variant."""
    return {what: version(number) for what, number in CONDITION.findall(file.name)}


def since(place: Place, condition: str) -> bool:
    """Whether SoftRoCE is as new there as "kernel-6.4" says. @raises ValueError if that is no
    condition"""
    return _reached(named(Path("any.txt"), condition), there(place))


def _reached(file: Path, have: "Mapping[str, Version]") -> bool:
    return all(have.get(what, ()) >= least for what, least in conditions(file).items())


def base(file: Path) -> Path:
    """The file that `file` is a variant of; itself if it is none."""
    return file.with_name(CONDITION.sub("", file.name))


def named(file: Path, condition: str) -> Path:
    """The variant of `file` for "kernel-6.4". @raises ValueError if that is no condition"""
    variant = file.with_name(f"{file.name.split('.txt')[0]}.{condition}.txt")
    if base(variant) != file:
        raise ValueError(
            f"{condition} is no condition: kernel-6.4, rdma-core-45, or both with a point between"
            " them")
    return variant


def choose(file: Path, have: "Mapping[str, Version]") -> Path:
    """`file`, or that of its variants that needs the newest software of what is there.

    @param have the versions where the program runs; empty for a device that has no variants"""
    beside = [path for path in file.parent.glob("*.txt") if path != file and base(path) == file]
    reached = [path for path in beside if _reached(path, have)]
    return max(reached, key=lambda path: sorted(conditions(path).items()), default=file)


@functools.lru_cache(maxsize=None)
def there(place: Place) -> "dict[str, Version]":
    """The versions that count at this place; none if its device is not SoftRoCE."""
    if not place.device.startswith("rxe"):
        return {}
    release = subprocess.run(
        place.wrap(["uname", "-r"]), stdin=subprocess.DEVNULL, capture_output=True, text=True,
        check=True)
    # libibverbs 1.14.56.0 is that of rdma-core 56.0.
    library = subprocess.run(
        ["pkg-config", "--modversion", "libibverbs"], capture_output=True, text=True, check=True)
    return {"kernel": version(release.stdout), "rdma-core": version(library.stdout)[2:]}


def expected(file: Path, place: Place) -> Path:
    """The expected output `file`, as it is at this place."""
    return choose(file, there(place))
