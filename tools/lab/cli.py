# SPDX-License-Identifier: MIT
"""./lab: finds the sub-command, runs it, and turns how it ended into an exit status.

A sub-command is a module with add_parser(subparsers) and main(args) -> exit status.
"""
from __future__ import annotations

import argparse
import importlib
import sys

from lab import process
from lab.errors import UsageError, nearest
from lab.obstacles import guarded

# In the order in which --help lists them.
COMMANDS = [
    "run", "test", "check", "hint", "progress", "hosts", "capture", "trace", "lint", "inject",
    "doctor", "exec", "shell", "down", "new", "docs", "sync", "record", "bench"]
MODULES = {"exec": "execute"}  # a name that Python keeps for itself


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one line, with the nearest right name."""

    def error(self, message: str) -> None:
        raise UsageError(message)


def _options(parser: argparse.ArgumentParser) -> list[str]:
    return [name for action in parser._actions for name in action.option_strings]


def _parser(names: list[str]) -> "tuple[Parser, dict[str, Parser]]":
    """For these sub-commands only: to load all takes seconds where ./lab itself runs in an emulated
    machine."""
    parser = Parser(
        prog="./lab", description="Runs, tests and explains the examples of RDMA by Example.")
    subparsers = parser.add_subparsers(metavar="COMMAND", parser_class=Parser)
    for name in names:
        importlib.import_module("lab." + MODULES.get(name, name)).add_parser(subparsers)
    return parser, subparsers.choices


def run(argv: list[str]) -> int:
    if not argv or argv[0].startswith("-"):  # --help, or nothing that there is
        _parser(COMMANDS)[0].parse_args(argv or ["--help"])
    name, given = argv[0], None
    if name not in COMMANDS:
        raise UsageError(f"no command {name}" + nearest(name, COMMANDS))
    parser, commands = _parser([name])
    if "--" in argv and any(action.dest == "arguments" for action in commands[name]._actions):
        # argparse takes "any number" to be none as soon as it can, and has no place for what comes
        # after an option.
        argv, given = argv[: argv.index("--")], argv[argv.index("--") + 1 :]
    args, unknown = parser.parse_known_args(argv)
    if given is not None:
        args.arguments += given
    if unknown:
        if getattr(args, "passes_on", None) is None:
            raise UsageError(
                f"{name} does not take {unknown[0]}" + nearest(unknown[0], _options(commands[name]))
            )
        args.passes_on = argv[1:]  # all in their order: a word may belong to the option before it
    return args.main(args)


def main() -> None:
    process.prepare()
    sys.exit(guarded(lambda: run(sys.argv[1:])))
