"""./lab new DIR --from EXAMPLE: a project of the reader's own, made from an example.

Most projects are copies of the example's sources, and link rdmacommon. An example with a folder `new` is a library by now
(rdmashared): the project is a copy of that folder, and links the library. With --sources it has a copy of the library, too.
"""
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
{found} = dependency('{found}', fallback: ['rdma-by-example', '{found}'])
{own}
{programs}
"""

CMAKE = """cmake_minimum_required(VERSION 3.18)
project({name} CXX)

find_package({found} REQUIRED)
{own}
foreach(program {programs})
  add_executable(${{program}} ${{program}}.cpp)
  target_link_libraries(${{program}} PRIVATE {linked}::{linked})
endforeach()
"""

# Of the copy of rdmashared.
OWN_MESON = """threads = dependency('threads')
rdmashared = declare_dependency(
  link_with: static_library('rdmashared',
{sources}
    include_directories: 'include',
    dependencies: [rdmacommon, threads]),
  include_directories: 'include',
  dependencies: [rdmacommon, threads])
"""

OWN_CMAKE = """file(GLOB sources CONFIGURE_DEPENDS src/*.cpp)
add_library(rdmashared STATIC ${sources})
add_library(rdmashared::rdmashared ALIAS rdmashared)
target_include_directories(rdmashared PUBLIC include)
target_link_libraries(rdmashared PUBLIC rdmacommon::rdmacommon Threads::Threads)
"""

README = """# {name}

Made from `{stem}` of RDMA by Example; its lesson, `lessons/{stem}.md` there, explains the code.
{own}
## Build

Install {found} first. In the RDMA by Example folder:

```sh
meson setup -Dexamples=false --libdir=lib installed
meson install -C installed
```

Then build here, with Meson or with CMake:

```sh
meson setup build
ninja -C build
```

```sh
cmake -S . -B build
cmake --build build
```

If you have installed it into a `--prefix` of your own, set PKG_CONFIG_PATH to its `lib/pkgconfig` for Meson, or CMAKE_PREFIX_PATH
to the prefix for CMake. Set LD_LIBRARY_PATH to its `lib` when you run the programs.

As a Meson subproject, with nothing installed: put the RDMA by Example folder, or a link to it, at
`subprojects/rdma-by-example` before `meson setup`. Meson then builds {found} along with this.

## Run

```sh
{run}
```

On a machine without RDMA, `./lab exec -- COMMAND` in the RDMA by Example folder runs any command where a
SoftRoCE device is; `./lab doctor` there says what is missing for one of your own.
"""

OWN_README = """
`rdmashared` is your copy of the library. If you change what goes over the network, change `protocol_magic` in
`rdmashared/src/wire.hpp` as well: a program with another number is rejected.
"""


def add_parser(subparsers) -> None:
    parser = subparsers.add_parser("new", help="a project of your own from an example: new DIR --from 02_send_recv")
    parser.add_argument("directory", type=Path, metavar="DIR")
    parser.add_argument("--from", dest="example", required=True, metavar="EXAMPLE", help="name or number")
    parser.add_argument("--sources", action="store_true", help="with the sources of rdmashared, for you to change (19_shared_client)")
    parser.set_defaults(main=main)


def main(args) -> int:
    lesson = examples.find(args.example)
    folder = args.directory
    name = re.sub(r"[^A-Za-z0-9_-]", "_", folder.absolute().name)
    example = ROOT / "examples" / lesson.stem
    uses_library = (example / "new").is_dir()
    if not name:
        raise UsageError(f"{folder} is no name for a project")
    if args.sources and not uses_library:
        raise UsageError(f"{lesson.stem} has no --sources: the project is a copy of its sources anyway")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise LabError(f"{folder} is there already and not empty")

    origin = example / "new" if uses_library else example
    folder.mkdir(parents=True, exist_ok=True)
    for path in origin.glob("*.?pp"):
        shutil.copy(path, folder)
    programs = re.findall(r"'(\w+)'", re.search(r"^programs = \[(.*?)\]", (example / "meson.build").read_text(), re.M | re.S)[1])
    if uses_library:
        programs = ["server", "client"]
    linked = "rdmashared" if uses_library else "rdmacommon"
    found = "rdmacommon" if args.sources else linked
    if args.sources:
        _copy_library(folder / "rdmashared")

    (folder / "meson.build").write_text(MESON.format(
        name=name, found=found, own="subdir('rdmashared')\n" if args.sources else "",
        programs="\n".join(f"executable('{program}', '{program}.cpp', dependencies: {linked})" for program in programs)))
    (folder / "CMakeLists.txt").write_text(CMAKE.format(
        name=name, found=found, linked=linked, programs=" ".join(programs),
        own="find_package(Threads REQUIRED)\nadd_subdirectory(rdmashared)\n" if args.sources else ""))
    (folder / "README.md").write_text(README.format(
        name=name, stem=lesson.stem, found=found, own=OWN_README if args.sources else "", run=_commands(lesson, programs, uses_library)))
    print(f"made {folder} from {origin.relative_to(ROOT)}; {folder}/README.md says how to build it")
    return 0


def _copy_library(folder: Path) -> None:
    for part in ("include", "src"):
        shutil.copytree(ROOT / "shared" / part, folder / part)
    shutil.copy(ROOT / "LICENSE", folder)
    sources = sorted(path.name for path in (folder / "src").glob("*.cpp"))
    (folder / "meson.build").write_text(OWN_MESON.format(sources="\n".join(f"    'src/{name}'," for name in sources)))
    (folder / "CMakeLists.txt").write_text(OWN_CMAKE)


def _commands(lesson, programs: list[str], uses_library: bool) -> str:
    """What the README shows under "Run"."""
    if not lesson.is_pair:
        return f"build/{programs[0]}"
    server, client = ("server", "client") if uses_library else lesson.sides or (programs[0], programs[0])
    lines = [(f"build/{server}", "the server"), (f"build/{client} --host ADDRESS", "the client; ADDRESS is the server's")]
    if uses_library:
        lines.append((f"build/{client} --join numbers", "a second client, over the connection of the first"))
    return "\n".join(f"{command:34} # {what}" for command, what in lines)
