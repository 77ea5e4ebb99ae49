# SPDX-License-Identifier: MIT
"""The rate of this processor's time stamp counter (TSC), which an emulated processor hands on.

The machine's kernel finds the rate by itself, with two emulated clocks. On a busy machine these can
disagree. The kernel once took the wrong one, and its time went 2.8 times as fast, for as long as
the machine ran. So ./lab measures the rate and gives it to the kernel (tsc_early_khz)."""
from __future__ import annotations

import ctypes
import functools
import mmap
import platform
import time
from typing import Callable, Optional

# rdtsc; shl $32, %rdx; or %rdx, %rax; ret
READ_TSC = b"\x0f\x31" b"\x48\xc1\xe2\x20" b"\x48\x09\xd0" b"\xc3"
INTERVAL = 0.05  # seconds; the kernel corrects less than 1 % later by itself
TRIES = 20


@functools.lru_cache(maxsize=None)
def kilohertz() -> Optional[int]:
    """None on another architecture than x86-64, and where no program may make code while it runs"""
    if platform.machine() != "x86_64":
        return None
    try:
        code = mmap.mmap(
            -1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    except OSError:
        return None
    code.write(READ_TSC)
    count = ctypes.CFUNCTYPE(ctypes.c_uint64)(ctypes.addressof(ctypes.c_char.from_buffer(code)))
    time_1, count_1 = _now(count)
    time.sleep(INTERVAL)
    time_2, count_2 = _now(count)
    return round((count_2 - count_1) * 1e6 / (time_2 - time_1))


def _now(count: Callable[[], int]) -> tuple[int, int]:
    """The time in nanoseconds, and the count at that time: of several tries the one that took the
    shortest time, since another process may have run in the middle of a try."""
    tries = []
    for _ in range(TRIES):
        before, counted, after = time.monotonic_ns(), count(), time.monotonic_ns()
        tries.append((after - before, (before + after) // 2, counted))
    return min(tries)[1:]
