# SPDX-License-Identifier: MIT
"""The network of the emulated machine, and of the two hosts. init.sh gets these addresses on the
kernel's command line."""
from __future__ import annotations

NUMBERS = {"": 1, "siw": 1, "a": 1, "b": 2}  # of the machines that are alone, and of the hosts


def address(host: str = "") -> str:
    return f"10.77.0.{NUMBERS[host]}"


def prefix(host: str = "") -> str:
    return f"{address(host)}/24"


def ipv6_prefix(host: str) -> str:
    return f"fd77::{NUMBERS[host]}/64"


def mac(host: str) -> str:
    return f"02:00:00:00:00:{NUMBERS[host]:02x}"
