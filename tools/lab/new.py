"""./lab new DIR --from EXAMPLE: a project of the reader's own, made from an example."""
from __future__ import annotations

import re
import shutil
from pathlib import Path

from lab import examples
from lab.errors import LabError, UsageError
from lab.paths import ROOT

MESON = """project('{name}', 'cpp', default_options: ['cpp_std=c++20', 'warning_level=2'])

# Designated initialisers name what matters; the rest is zero, and that is what is meant.
add_project_arguments('-Wno-missing-field-initializers', language: 'cpp')

# The installed library, or, where there is none, the project in subprojects/rdma-by-example.
rdmacommon = dependency('rdmacommon', fallback: ['rdma-by-example', 'rdmacommon'])

{programs}
"""

README = """# {name}

Made from `{stem}` of RDMA by Example; its lesson, `lessons/{stem}.md` there, explains the code.

## Build

Against an installed rdmacommon (in the RDMA by Example folder: `meson setup -Dexamples=false installed && meson install -C installed`; into
a `--prefix` of your own, PKG_CONFIG_PATH and LD_LIBRARY_PATH have to name its folders):

```sh
meson setup build
ninja -C build
```

As a subproject, with nothing installed: put the RDMA by Example folder, or a link to it, at
`subprojects/rdma-by-example` before `meson setup`. Meson then builds rdmacommon along with this.

## Run

{run}

On a machine without RDMA, `./lab exec -- COMMAND` in the RDMA by Example folder runs any command where a
SoftRoCE device is; `./lab doctor` there says what is missing for one of your own.
"""


def add_parser(subparsers) -> None:
    parser = subparsers.add_parser("new", help="a project of your own from an example: new DIR --from 02_send_recv")
    parser.add_argument("directory", type=Path, metavar="DIR")
    parser.add_argument("--from", dest="example", required=True, metavar="EXAMPLE", help="name or number")
    parser.set_defaults(main=main)


def main(args) -> int:
    lesson = examples.find(args.example)
    folder = args.directory
    name = re.sub(r"[^A-Za-z0-9_-]", "_", folder.absolute().name)
    if not name:
        raise UsageError(f"{folder} is no name for a project")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise LabError(f"{folder} is there already and not empty")
    sources = sorted(path for path in (ROOT / "examples" / lesson.stem).glob("*.?pp"))
    meson = (ROOT / "examples" / lesson.stem / "meson.build").read_text()
    programs = re.findall(r"'(\w+)'", re.search(r"^programs = \[(.*?)\]", meson, re.M | re.S)[1])
    # What else there is belongs to all programs: nothing is linked in that a program does not call.
    rest = [path.name for path in sources if path.suffix == ".cpp" and path.stem not in programs]
    libraries = "[rdmacommon, dependency('threads')]" if "'threads'" in meson else "rdmacommon"
    folder.mkdir(parents=True, exist_ok=True)
    for path in sources:
        shutil.copy(path, folder)
    (folder / "meson.build").write_text(MESON.format(
        name=name, programs="\n".join(([f"parts = static_library('parts', {', '.join(map(repr, rest))}, dependencies: {libraries})"]
                                       if rest else []) + [
            f"executable('{program}', '{program}.cpp', {'link_with: parts, ' if rest else ''}dependencies: {libraries})"
            for program in programs])))
    commands = [f"build/{programs[0]}"]
    if lesson.is_pair:
        server, client = lesson.sides or (programs[0], programs[0])
        commands = [f"{f'build/{server}':34} # the server",
                    f"{f'build/{client} --host ADDRESS':34} # the client; ADDRESS is the server's"]
    (folder / "README.md").write_text(README.format(name=name, stem=lesson.stem,
                                                    run="```sh\n" + "\n".join(commands) + "\n```"))
    print(f"made {folder} from examples/{lesson.stem}; {folder}/README.md says how to build it")
    return 0
