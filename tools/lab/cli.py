"""./lab: finds the sub-command, runs it, and turns how it ended into an exit status.

A sub-command is a module with add_parser(subparsers) and main(args) -> exit status.
"""
from __future__ import annotations

import argparse
import importlib
import sys

from lab import process
from lab.errors import LabError, UsageError, nearest

# In the order in which --help lists them.
COMMANDS = ["run", "test", "check", "hosts", "capture", "trace", "doctor", "exec", "shell", "down", "new", "docs",
            "sync", "record"]
MODULES = {"exec": "execute"}  # a name that Python keeps for itself


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one line, with the nearest right name."""

    def error(self, message: str) -> None:
        raise UsageError(message)


def _options(parser: argparse.ArgumentParser) -> list[str]:
    return [name for action in parser._actions for name in action.option_strings]


def _parser() -> "tuple[Parser, dict[str, Parser]]":
    parser = Parser(prog="./lab", description="Runs, tests and explains the examples of RDMA by Example.")
    subparsers = parser.add_subparsers(metavar="COMMAND", parser_class=Parser)
    for name in COMMANDS:
        importlib.import_module("lab." + MODULES.get(name, name)).add_parser(subparsers)
    return parser, subparsers.choices


def run(argv: list[str]) -> int:
    parser, commands = _parser()
    if not argv:
        parser.print_help()
        return 0
    name = argv[0]
    if not name.startswith("-") and name not in commands:
        raise UsageError(f"no command {name}" + nearest(name, list(commands)))
    args, unknown = parser.parse_known_args(argv)
    if unknown:
        if getattr(args, "passes_on", None) is None:
            raise UsageError(f"{name} does not take {unknown[0]}" + nearest(unknown[0], _options(commands[name])))
        args.passes_on = unknown
    return args.main(args)


def main() -> None:
    process.prepare()
    try:
        status = run(sys.argv[1:])
    except UsageError as error:
        print(f"lab: {error}", file=sys.stderr)
        status = 2
    except LabError as error:
        print(f"lab: {error}", file=sys.stderr)
        status = 1
    except KeyboardInterrupt:
        status = 130
    except BrokenPipeError:  # ./lab … | head
        sys.stderr.close()
        status = 141
    sys.exit(status)
