# SPDX-License-Identifier: MIT
"""How a `lab` command fails on purpose."""
from __future__ import annotations


class LabError(Exception):
    """Something did not work: one line that says what and, where known, what to do. Exit status
    1."""


class UsageError(LabError):
    """The command line was wrong. Exit status 2."""


def nearest(word: str, words: "list[str]") -> str:
    """For the end of a message about a wrong word: the right one that it is closest to."""
    import difflib  # every command loads this file, and few need it

    found = difflib.get_close_matches(word, words, n=1, cutoff=0.0)
    return f" (did you mean {found[0]}?)" if found else ""
