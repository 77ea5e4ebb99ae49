# SPDX-License-Identifier: MIT
"""The README.md of each example: what it shows, its files in reading order, how to run it, and how
to compile it without Meson.

./lab dev sync writes them, from the ladder and from the first comment of each file."""
from __future__ import annotations

from pathlib import Path

from lab import examples, ladder, sources
from lab.paths import ROOT

TEXT = """# {stem}

The new idea: {idea}. Lesson: [{stem}](../../lessons/{stem}.md).

This file is generated from the first comments of the sources (`./lab dev sync`).

## The files, in the order in which to read them

| file | what it is for |
|---|---|
{files}

## Run it

In the project's folder:

```sh
./lab run {stem}
```

## Compile it without Meson

{compile}
"""

COMPILE = """Each program is one command, in this folder, with the sources of the libraries. With
the installed libraries, it is shorter ([how](../../README.md#copy-the-code)). It needs these
packages: {packages}.

```sh
{lines}
```
"""

# The libraries that rdmacommon takes, by the names that pkg-config knows, and their packages.
LIBRARIES = "libibverbs librdmacm CLI11"
PACKAGES = ("g++", "pkg-config", "libibverbs-dev", "librdmacm-dev", "libcli11-dev")
# A library without a file for pkg-config: it has only headers, in the compiler's own folder.
ASIO, ASIO_PACKAGE = "#include <asio.hpp>", "libasio-dev"

MEMBERS = """
Not every rdma-core has {members} in `struct ibv_qp_ex`, of `<infiniband/verbs.h>`. If yours does,
add {definitions}.
"""

MODULE = """
The kernel module, for the running kernel:

```sh
make -C /lib/modules/$(uname -r)/build M=$PWD modules
```
"""


def all_files() -> "list[tuple[Path, str]]":
    """@return each file with the text that it should have"""
    return [
        (ROOT / "examples" / lesson.stem / "README.md", text(lesson))
        for lesson in ladder.read()
        if lesson.has_program
    ]


def text(lesson: ladder.Lesson) -> str:
    folder = ROOT / "examples" / lesson.stem
    found = list(
        dict.fromkeys(
            path
            for program in examples.of(lesson)["programs"]
            for path in sources.of_program(folder, program)))
    if lesson.kind == "kernel":
        found += sorted(folder.glob("*.[ch]"))
    files = []
    for path in found:
        if sources.banner(path):
            both = [path, path.with_suffix(".cpp")] if path.suffix == ".hpp" else [path]
            links = ", ".join(f"[{one.name}]({one.name})" for one in both if one in found)
            files.append(f"| {links} | {sources.purpose(path)} |")
    if (folder / "new").exists():
        files.append("| [new](new) | What `./lab new` copies. |")
    return TEXT.format(
        stem=lesson.stem, idea=lesson.idea, files="\n".join(files),
        compile=_compile(lesson, folder).strip())


def _compile(lesson: ladder.Lesson, folder: Path) -> str:
    has_asio = any(ASIO in path.read_text() for path in folder.glob("*.?pp"))
    packages = [*PACKAGES, *([ASIO_PACKAGE] if has_asio else [])]
    programs = examples.of(lesson)["programs"]
    result = COMPILE.format(
        packages=f"{', '.join(packages[:-1])} and {packages[-1]}",
        lines="\n".join(command(folder, program) for program in programs))
    optional = sources.members(sorted(folder.glob("*.?pp")))
    if optional:
        result += MEMBERS.format(
            members=" and ".join(f"`{name}`" for name in optional),
            definitions=" and ".join(f"`-DHAVE_{name.upper()}`" for name in optional))
    return result + (MODULE if lesson.kind == "kernel" else "")


def command(folder: Path, program: str) -> str:
    """What compiles one program, with the sources of the libraries that it uses."""
    parts = sources.of_program(folder, program)
    used = sources.libraries(parts)
    words = ["c++ -std=c++20 -pthread", *(f"-I../../{name}/include" for name in used)]
    words += [path.name for path in parts if path.suffix == ".cpp"]
    words += [f"../../{name}/src/*.cpp" for name in used]
    return f"{' '.join(words)} $(pkg-config --cflags --libs {LIBRARIES}) -o {program}"
