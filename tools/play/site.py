# SPDX-License-Identifier: MIT
"""./lab docs --play: puts the machine, and what the pages must know, beside the site's pages."""
from __future__ import annotations

import argparse
import gzip
import html
import json
import platform
import re
import shlex
import shutil
from pathlib import Path

from lab import examples, listening, normalise, variants
from lab.commands import run
from lab.errors import LabError
from lab.machine import network
from lab.paths import ROOT
from lab.place import RDMA, Place
from lab.wire import packets
from play import page_machine as machine

HERE = machine.HERE
PLACE = Place("machine", "", RDMA, network.address())
# A browser asks for an icon, if a page has none.
HEAD = '<link rel="icon" href="data:,"/><script type="module" src="play/page.js"></script></head>'


def is_possible() -> bool:
    """Whether make() can work here."""
    return bool(shutil.which("apt-get")) and platform.machine() == "x86_64"


def groups() -> "list[str]":
    """The packages (packages.py) that make() needs. @raises LabError where there are none"""
    if not is_possible():
        raise LabError("--play is made of Debian's packages: build the site on Debian, on x86-64")
    return ["build", "machine", "play"]


def make(pages: Path) -> None:
    """Puts everything into pages/play, and the script into each lesson's page."""
    root, image = machine.debian(), machine.linux()
    state = machine.state(image, machine.initramfs(machine.files(root)))
    folder = machine.programs(root)
    out = pages / "play"
    (out / "files").mkdir(parents=True)
    v86, xterm = machine.npm("v86"), machine.npm("@xterm/xterm")
    for file in (state, xterm / "lib/xterm.js", xterm / "css/xterm.css", HERE / "page.js",
                 HERE / "page_wire.js", HERE / "page.css"):
        shutil.copy(file, out)
    # Not every web server knows what .mjs is.
    shutil.copy(v86 / "build/libv86.mjs", out / "libv86.js")
    shutil.copy(HERE / "page_machine.mjs", out / "page_machine.js")
    # The page unpacks it, so that it is small from any web server.
    (out / "v86.wasm.gz").write_bytes(gzip.compress((v86 / "build/v86.wasm").read_bytes(), 9))
    table = runs(folder, versions(image, root))
    # The machine gets these on request: the programs, and the file that lesson 05 sends.
    names = {command[0] for each in table.values() for command in each.get("commands", [])}
    files = {name: machine.stripped(folder / "examples" / name) for name in names}
    files["README.md"] = (ROOT / "README.md").read_bytes()
    for name, data in files.items():
        (out / "files" / f"{name}.gz").write_bytes(gzip.compress(data, 9))
    (out / "play.json").write_text(
        json.dumps(
            {
                "listening": listening.LISTENING.pattern,
                "rules": [
                    [pattern.pattern, re.sub(r"\\(\d)", r"$\1", with_)]
                    for pattern, with_ in normalise.RULES],
                "operations": packets.OPERATIONS, "naks": packets.NAKS,
                "become_second": " ".join(
                    ["become", network.mac("b"), network.prefix("b"), network.ipv6_prefix("b")]),
                "files": sorted(files), "runs": table,
            }))
    (out / "licences.html").write_text(licences(root, image))
    for page in pages.glob("page_lessons_*.html"):
        page.write_text(page.read_text().replace("</head>", HEAD, 1))


def versions(image: Path, root: Path) -> "dict[str, variants.Version]":
    """What the expected outputs depend on (lab/variants.py)."""
    linux = re.search(rb"\d+\.\d+\.\d+", image.read_bytes()[0x200:])
    library = root / "usr/lib/i386-linux-gnu/pkgconfig/libibverbs.pc"
    verbs = re.search(r"^Version: (.*)$", library.read_text(), re.M)
    return {
        "kernel": variants.version(linux[0].decode()), "rdma-core": variants.version(verbs[1])[2:]}


def runs(folder: Path, have: "dict[str, variants.Version]") -> "dict[str, dict]":
    """Each "./lab run ..." of the lessons, and each "trace" and "capture" -> its `commands`, on
    `two_hosts` or not, and what they print (`expected`), if that is recorded; or `why` it does not
    run in a page.

    @param folder of machine.programs(). @param have as versions() says"""
    parser = argparse.ArgumentParser()
    run.add_parser(parser.add_subparsers())
    table = {}
    for page in sorted((ROOT / "lessons").glob("*.md")):
        for verb, line in re.findall(
                r"^\./lab (run|trace|capture) (.*?) *$", page.read_text(), re.M):
            words, _, given = line.partition(" -- ")
            args = parser.parse_args(["run", *words.split()])
            lesson, program = run.choose(args.example, args.broken, args.program)
            its = table[f"./lab {verb} {line}"] = {"two_hosts": args.two_hosts or verb != "run"}
            if args.device:
                its["why"] = f"it needs {args.device}"
            elif lesson.kind == "kernel":
                its["why"] = "it loads a module into the kernel"
            else:
                its["commands"] = commands(folder, program, lesson.kind, shlex.split(given))
                # These changes end by a time limit, or before it if the machine is fast.
                is_timed = lesson.stem == "28_measure" and args.broken
                if verb == "run" and not (is_timed or given or args.program):
                    file = variants.choose(examples.expected_file(lesson.stem, args.broken), have)
                    its["expected"] = normalise.split_roles(file.read_text())
    return table


def commands(folder: Path, program: str, kind: str, given: "list[str]") -> "list[list[str]]":
    """The command lines of a program, or of server and client. The client gets the server's port in
    place of {port}."""
    lines = examples.command_lines(PLACE, folder, program, kind, given)
    if len(lines) == 2:
        option = examples.PORT_OPTION[kind]
        lines[0] += [option, "0"]
        lines[1] += ["--host", PLACE.address, option, "{port}"]
    return [[Path(line[0]).name, *line[1:]] for line in lines]


def licences(root: Path, image: Path) -> str:
    """A page with the licence of each thing that the site ships, and where its sources are."""
    parts = {
        f"https://www.npmjs.com/package/{name}": machine.npm(name) / "LICENSE"
        for name in ("v86", "@xterm/xterm")}
    parts["https://packages.debian.org/linux-source"] = image.parent / "COPYING"
    for file in [Path("/usr/share/doc/seabios/copyright"), *root.glob("usr/share/doc/*/copyright")]:
        parts[f"https://packages.debian.org/{file.parent.name}"] = file
    text = '<!DOCTYPE html><html lang="en"><meta charset="utf-8"><title>Licences</title>'
    text += "<h1>What the machine in the page is made of</h1>"
    for sources, file in sorted(parts.items()):
        words = html.escape(file.read_text(errors="replace"))
        text += f'<h2><a href="{sources}">{sources}</a></h2><pre>{words}</pre>'
    return text + "</html>\n"
