"""./lab test: sets everything up and runs `meson test`; arguments go through to it."""
from __future__ import annotations

import json
import subprocess
import sys

from lab import build, packages, place
from lab.errors import LabError


def add_parser(subparsers) -> None:
    parser = subparsers.add_parser("test", help="run the tests; arguments go to meson test: --suite examples")
    parser.add_argument("tests", nargs="*", metavar="TEST", help="names, as meson test takes them")
    parser.set_defaults(main=main, passes_on=[])


def main(args) -> int:
    wanted = [*args.passes_on, *args.tests]
    packages.ensure("build", "device", "docs", "check", *(["browser"] if "thorough" in wanted else []))
    folder = build.build()
    try:
        print(f"lab: {place.find_place().why}", file=sys.stderr, flush=True)
    except LabError as error:
        print(f"lab: the tests that need a device will be skipped: {error}", file=sys.stderr, flush=True)
    log = folder / "meson-logs/testlog.json"
    log.unlink(missing_ok=True)
    status = subprocess.run(["meson", "test", "-C", str(folder), "--no-rebuild", "--print-errorlogs",
                             *wanted]).returncode
    if not log.exists():  # --list and --help, or a suite that does not exist
        return status
    results = [json.loads(line)["result"] for line in log.read_text().splitlines()]
    passed, skipped = (sum(result in names for result in results) for names in (("OK", "EXPECTEDFAIL"), ("SKIP",)))
    print(f"{passed} passed, {len(results) - passed - skipped} failed, {skipped} skipped", flush=True)
    return status
