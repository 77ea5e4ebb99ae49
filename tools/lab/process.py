# SPDX-License-Identifier: MIT
"""What every `lab` process does before anything else."""
from __future__ import annotations

import os
import signal
import sys


ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)  # the signals that ask a process to end


def prepare() -> None:
    """Gives the process standard files that it can rely on, and an orderly end by SIGTERM and
    SIGHUP."""
    for fd in range(3):
        try:
            os.fstat(fd)
        except OSError:  # closed by the caller: the next file opened would be taken for it
            os.open(os.devnull, os.O_RDWR)
    # A closed stream is None here. With None for stderr, print() would write to stdout.
    sys.stdout, sys.stderr = sys.stdout or open(1, "w"), sys.stderr or open(2, "w")
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:
            # As Ctrl-C does: what is half-built goes, and so does a machine that is just starting.
            signal.signal(number, lambda number, _: sys.exit(128 + number))
