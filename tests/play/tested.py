# SPDX-License-Identifier: MIT
"""Prints a hash of what makes and tests the machine in the page. tested.txt has that of test_play's
last run that passed."""
import hashlib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
RECORD = Path(__file__).with_name("tested.txt")


def digest():
    found = hashlib.sha256()
    folders = [ROOT / name for name in ("tools/play", "tests/play", "tools/site")]
    files = [path for folder in folders for path in folder.iterdir() if path.is_file()]
    files += [ROOT / "tools/lab" / f"{name}.py" for name in ("normalise", "listening", "examples")]
    for path in sorted(set(files) - {RECORD}):
        found.update(path.name.encode() + b"\0" + path.read_bytes())
    return found.hexdigest()


if __name__ == "__main__":
    print(digest())
