# SPDX-License-Identifier: MIT
"""./lab new DIR --from EXAMPLE: a project of the reader's own, made from an example.

Most projects are copies of the example's sources, and link rdmacommon. An example with a folder
`new` is a library by now (rdmashared): the project is a copy of that folder, and links the library.
With --sources it has a copy of the library, too.
"""
from __future__ import annotations

import re
import shutil
from pathlib import Path

from lab import examples, sources
from lab.errors import LabError, UsageError, nearest
from lab.paths import ROOT

MESON = """project('{name}', 'cpp', default_options: ['cpp_std=c++20', 'warning_level=2'])

# Designated initialisers name what matters; the rest is zero, and that is what is meant.
add_project_arguments('-Wno-missing-field-initializers', language: 'cpp')
{members}
# The installed library, or, where there is none, the project in subprojects/rdma-by-example.
{found} = dependency('{found}', fallback: ['rdma-by-example', '{found}'])
{own}
{programs}
"""

CMAKE = """cmake_minimum_required(VERSION 3.18)
project({name} CXX)

find_package({found} REQUIRED)
{members}{own}
foreach(program {programs})
  add_executable(${{program}} ${{program}}.cpp)
  target_link_libraries(${{program}} PRIVATE {linked}::{linked})
endforeach()
"""

# Some versions of rdma-core do not have these members.
MEMBERS_MESON = """foreach member : [{names}]
  if meson.get_compiler('cpp').has_member('struct ibv_qp_ex', member,
      prefix: '#include <infiniband/verbs.h>')
    add_project_arguments('-DHAVE_' + member.to_upper(), language: 'cpp')
  endif
endforeach
"""

MEMBERS_CMAKE = """include(CheckStructHasMember)
foreach(member {names})
  string(TOUPPER HAVE_${{member}} name)
  check_struct_has_member("struct ibv_qp_ex" ${{member}} infiniband/verbs.h ${{name}} LANGUAGE CXX)
  if(${{name}})
    add_compile_definitions(${{name}})
  endif()
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

Made from `{stem}` of RDMA by Example. Its lesson, `lessons/{stem}.md` there, explains the code.
Errors name `lessons/troubleshooting.md`, which is here as well. LICENSE is the license of the
copied files.
{own}
## Build

The shortest way: put the RDMA by Example folder, or a link to it, at `subprojects/rdma-by-example`.
Meson then builds {found} along with this.

Or install {found} first. In the RDMA by Example folder:

```sh
meson setup -Dexamples=false --libdir=lib build-install
meson install -C build-install
```

Then build here, with Meson or, if the libraries are installed, with CMake:

```sh
meson setup build
ninja -C build
```

```sh
cmake -S . -B build
cmake --build build
```

If you have installed it into a `--prefix` of your own, set PKG_CONFIG_PATH to its `lib/pkgconfig`
for Meson, or CMAKE_PREFIX_PATH to the prefix for CMake. Set LD_LIBRARY_PATH to its `lib` when you
run the programs.

For a program of your own, add `NAME.cpp`. In `meson.build`, add
`executable('NAME', 'NAME.cpp', dependencies: {linked})`. In `CMakeLists.txt`, add `NAME` to the
list after `foreach(program`.
{module}
## Run

```sh
{run}
```

On a machine without RDMA, `./lab exec -- COMMAND` in the RDMA by Example folder runs any command
where a SoftRoCE device is; `./lab doctor` there says what is missing for one of your own. That may
be an emulated machine with a `/tmp` of its own: keep this project, and what you install, elsewhere.
Programs there read all files of this host. Files that they write are kept only below the RDMA by
Example folder.
"""

MODULE_README = """
`make -C /lib/modules/$(uname -r)/build M=$PWD modules` builds the kernel module for the running
kernel. A mistake in a module can stop the machine: load it in a virtual machine.
"""

OWN_README = """
`rdmashared` is your copy of the library. If you change what goes over the network, change
`protocol_magic` in `rdmashared/src/wire.hpp` as well: a program with another number is rejected.
"""


def add_parser(subparsers) -> None:
    parser = subparsers.add_parser(
        "new", help="a project of your own from an example: new DIR --from 02_send_recv")
    parser.add_argument("directory", type=Path, metavar="DIR")
    parser.add_argument(
        "--from", dest="example", required=True, metavar="EXAMPLE", help="name or number")
    parser.add_argument(
        "--only", metavar="PROGRAM", help="one program of the example, and the files that it needs")
    parser.add_argument(
        "--sources", action="store_true",
        help="with the sources of rdmashared, for you to change (23_shared_client)")
    parser.set_defaults(main=main)


def main(args) -> int:
    lesson = examples.find(args.example)
    folder = args.directory
    name = re.sub(r"[^A-Za-z0-9_-]", "_", folder.absolute().name)
    example = ROOT / "examples" / lesson.stem
    has_new = (example / "new").is_dir()
    programs = ["server", "client"] if has_new else examples.of(lesson)["programs"]
    if not name:
        raise UsageError(f"{folder} is no name for a project")
    if args.sources and not has_new:
        raise UsageError(
            f"{lesson.stem} has no --sources: the project is a copy of its sources anyway")
    if args.only and args.only not in programs:
        raise UsageError(f"{lesson.stem} has no program {args.only}" + nearest(args.only, programs))
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise LabError(f"{folder} is there already and not empty")

    origin = example / "new" if has_new else example
    programs = [args.only] if args.only else programs
    parts = list(
        dict.fromkeys(part for program in programs for part in sources.of_program(origin, program)))
    has_module = lesson.kind == "kernel" and not args.only
    if has_module:
        parts += [*origin.glob("*.[ch]"), origin / "Kbuild"]
    folder.mkdir(parents=True, exist_ok=True)
    for path in [*parts, ROOT / "LICENSE"]:
        shutil.copy(path, folder)
    (folder / "lessons").mkdir()
    (folder / "lessons/troubleshooting.md").write_text(
        _without_links((ROOT / "lessons/troubleshooting.md").read_text()))
    linked = sources.libraries(parts)[-1]
    found = "rdmacommon" if args.sources else linked
    if args.sources:
        _copy_library(folder / "rdmashared")

    members = sources.members(parts)
    (folder / "meson.build").write_text(
        MESON.format(
            name=name,
            found=found,
            own="subdir('rdmashared')\n" if args.sources else "",
            members=(
                "\n" + MEMBERS_MESON.format(names=", ".join(f"'{member}'" for member in members))
                if members
                else ""),
            programs="\n".join(
                f"executable('{program}', '{program}.cpp', dependencies: {linked})"
                for program in programs)))
    (folder / "CMakeLists.txt").write_text(
        CMAKE.format(
            name=name,
            found=found,
            linked=linked,
            programs=" ".join(programs),
            members=MEMBERS_CMAKE.format(names=" ".join(members)) if members else "",
            own=(
                "find_package(Threads REQUIRED)\nadd_subdirectory(rdmashared)\n"
                if args.sources
                else "")))
    (folder / "README.md").write_text(
        README.format(
            name=name, stem=lesson.stem, found=found, linked=linked,
            own=OWN_README if args.sources else "", module=MODULE_README if has_module else "",
            run=_commands(lesson, programs, has_new)))
    print(f"made {folder} from {origin.relative_to(ROOT)}; {folder}/README.md says how to build it")
    return 0


def _without_links(text: str) -> str:
    """The targets of relative links are not in the copy."""
    return re.sub(
        r"\[([^\]]*)\]\((?!https?:|#)[^)]*\)", r"\1",
        re.sub(r"^<!-- .* -->\n", "", text, flags=re.M))


def _copy_library(folder: Path) -> None:
    for part in ("include", "src"):
        shutil.copytree(ROOT / "rdmashared" / part, folder / part)
    shutil.copy(ROOT / "LICENSE", folder)
    sources = sorted(path.name for path in (folder / "src").glob("*.cpp"))
    (folder / "meson.build").write_text(
        OWN_MESON.format(sources="\n".join(f"    'src/{name}'," for name in sources)))
    (folder / "CMakeLists.txt").write_text(OWN_CMAKE)


def _commands(lesson, programs: list[str], has_new: bool) -> str:
    """What the README shows under "Run"."""
    if lesson.kind == "kernel":
        return f"build/{programs[0]}"
    server, client = (
        ("server", "client") if has_new else lesson.sides or (lesson.program, lesson.program))
    if not lesson.is_pair or not {server, client} <= set(programs):
        return "\n".join(
            f"build/{program} --help" if lesson.is_pair else f"build/{program}"
            for program in programs)
    lines = [
        (f"build/{server}", "the server"),
        (f"build/{client} --host ADDRESS", "the client; ADDRESS is the server's"),
    ]
    if has_new:
        lines.append(
            (f"build/{client} --join numbers", "a second client, over the connection of the first"))
    return "\n".join(f"{command:34} # {what}" for command, what in lines)
