# SPDX-License-Identifier: MIT
"""./lab: finds the sub-command, runs it, and turns how it ended into an exit status.

A sub-command is a module with add_parser(subparsers) and main(args) -> exit status. Those that only
contributors need have the word `dev` in front: ./lab dev sync.
"""
from __future__ import annotations

import argparse
import importlib
import sys
import textwrap

from lab import process
from lab.errors import UsageError, nearest
from lab.obstacles import guarded

# As --help lists them.
GROUPS = {
    "Learn": ["run", "check", "hint", "progress"],
    "Look inside": ["trace", "capture", "lint", "doctor"],
    "Use in your project": ["new", "test", "docs", "bench"],
    "Machines": ["exec", "shell", "hosts", "down"],
}
COMMANDS = [name for names in GROUPS.values() for name in names]
DEV = ["sync", "record", "inject"]
MODULES = {"exec": "execute"}  # a name that Python keeps for itself


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one line, with the nearest right name."""

    def error(self, message: str) -> None:
        raise UsageError(message)


def _options(parser: argparse.ArgumentParser) -> list[str]:
    return [name for action in parser._actions for name in action.option_strings]


def _parser(prog: str, names: list[str]) -> "tuple[Parser, dict[str, Parser], dict[str, str]]":
    """For these sub-commands only: to load all takes seconds where ./lab itself runs in an emulated
    machine. @return the parser, and the parser and the help of each sub-command"""
    parser = Parser(prog=prog)
    subparsers = parser.add_subparsers(metavar="COMMAND", parser_class=Parser)
    for name in names:
        importlib.import_module("lab.commands." + MODULES.get(name, name)).add_parser(subparsers)
    helps = {action.dest: action.help % {} for action in subparsers._choices_actions}
    return parser, subparsers.choices, helps


def _print_help(prog: str, groups: "dict[str, list[str]]") -> None:
    print(f"usage: {prog} COMMAND ...")
    for title, names in groups.items():
        print(f"\n{title}:")
        for name, text in _parser(prog, names)[2].items():
            print(
                textwrap.fill(text, 80, initial_indent=f"  {name:10}", subsequent_indent=" " * 12))
    print(f"\n{prog} COMMAND --help says more of each.")


def run(argv: list[str]) -> int:
    prog, groups = "./lab", GROUPS
    if argv[:1] == ["dev"]:
        prog, groups, argv = "./lab dev", {"For contributors": DEV}, argv[1:]
    names = [name for group in groups.values() for name in group]
    if not argv or argv[0] in ("-h", "--help"):
        _print_help(prog, groups)
        if groups is GROUPS:
            print("./lab dev --help lists what only contributors need.")
        return 0
    name, given = argv[0], None
    if name not in names:
        near = f" (did you mean dev {name}?)" if name in DEV else nearest(name, [*names, "dev"])
        raise UsageError(f"no command {name}{near}")
    parser, commands, _ = _parser(prog, [name])
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
