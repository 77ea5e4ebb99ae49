# SPDX-License-Identifier: MIT
"""Runs examples with the library of close_probe.cpp preloaded: it says what a program that closes
its device has left open on it."""
from __future__ import annotations

import os

import needs_device
from lab import examples

CLOSED = "closed the device"
# Whose library has to be the first one loaded: there is no probe then.
HAS_SANITIZER = "sanitize" in needs_device.BUILD.name
# By a relative path, since LD_PRELOAD takes a space for the end of one.
os.chdir(needs_device.BUILD / "tests/examples")
UNDER = [] if HAS_SANITIZER else ["env", "LD_PRELOAD=./libclose_probe.so"]


def run(program: str, kind: str):
    """@return the outcome without the probe's lines, how often each role has closed a device, and
    what was left open"""
    outcome = examples.run(needs_device.PLACE, needs_device.BUILD, program, kind, under=UNDER)
    closed = {role: outcome.of(role).count(CLOSED) for role in outcome.status}
    left = [text for _, text in outcome.lines if text.startswith("left open")]
    outcome.lines = [
        (role, text)
        for role, text in outcome.lines
        if text != CLOSED and not text.startswith("left open")
    ]
    return outcome, closed, left
