# SPDX-License-Identifier: MIT
"""The examples in the documentation of the libraries' headers compile, and each class is in one."""
import json
import re
import shlex
import subprocess
import unittest

from lab import build
from lab.paths import ROOT

HEADERS = [
    path for name in ("rdmacommon", "rdmashared")
    for path in sorted((ROOT / name / "include" / name).glob("*.hpp"))]
# The headers and the names that the examples use.
BEFORE = "".join(f"#include <{path.parent.name}/{path.name}>\n" for path in HEADERS) + """
#include <sys/epoll.h>
#include <algorithm>
#include <array>
#include <cstdio>
namespace program {
using namespace std::chrono_literals;
extern const rdmacommon::PairOptions options;
extern const rdmacommon::Port port;
extern const rdmacommon::unique_pd pd;
extern const rdmacommon::unique_cq cq;
extern const rdmacommon::unique_qp qp;
extern const rdmacommon::Link parent;
extern const std::chrono::seconds timeout;
extern const uint32_t clients, depth, psn;
extern const int access;
extern int argc;
extern char **argv;
extern const ibv_device_attr attr;
extern const ibv_mr *const mr;
extern const ibv_send_wr request;
extern const ibv_wc wc;
extern rdma_cm_id *const id;
extern const rdma_cm_event *const event;
extern const rdmacommon::Description received;
extern const std::span<const std::byte> bytes;
extern rdmashared::Caller caller;
extern const rdmashared::Sender sender;
struct Queue { void push(rdmashared::Request &&request); };
extern Queue queue;
void serve(rdmacommon::Exchange client);
void use(std::span<const std::byte> response);
void work();
}
"""
EXAMPLE = re.compile(r"(?<=///\n)(?: *///     .*\n| *///\n(?= *///     ))+")
# Local classes have no static members, and a function has no other one in it.
OUTSIDE = re.compile(r"^(?:struct|void) .*(?:;|\{\n(?:  .*\n)*\};?)$", re.M)


def examples(text: str) -> "list[tuple[int, str]]":
    """@return the line and the code of each; a drawing has no semicolon"""
    return [
        (text.count("\n", 0, found.start()) + 1, code)
        for found in EXAMPLE.finditer(text)
        for code in [re.sub(r"^ *///(?:     )?", "", found[0], flags=re.M)] if ";" in code]


def function(number: int, line: int, name: str, code: str) -> str:
    outside = "\n".join(OUTSIDE.findall(code))
    return (
        f'namespace program::example_{number} {{\n{outside}\nvoid example() {{\n#line {line}'
        f' "{name}"\n{OUTSIDE.sub(lambda found: re.sub(".", "", found[0]), code)}}}\n}}\n')


class Usage(unittest.TestCase):
    maxDiff = None

    def compiler(self) -> list:
        """What compiles shared_client.cpp, but for its own input and output."""
        commands = json.loads((build.directory() / "compile_commands.json").read_text())
        command = next(
            entry["command"]
            for entry in commands
            if entry["file"].endswith("23_shared_client/shared_client.cpp"))
        words = shlex.split(command)
        return [
            words[0],
            *(
                word
                for word in words[1:]
                if word.startswith(("-I", "-D", "-std", "-f", "-W")) and word != "-Winvalid-pch")]

    def errors(self, texts: "dict[str, str]") -> str:
        """@param texts name of the header -> its text"""
        all_of_them = [
            (line, name, code) for name, text in texts.items() for line, code in examples(text)]
        source = BEFORE + "".join(
            function(number, *example) for number, example in enumerate(all_of_them))
        return subprocess.run(
            [
                *self.compiler(), "-Wno-unused", "-fdiagnostics-color=never", "-fsyntax-only", "-x",
                "c++", "-"],
            input=source, capture_output=True, text=True, cwd=build.directory(), timeout=600
        ).stderr

    def test_all_compile(self):
        self.assertEqual(self.errors({path.name: path.read_text() for path in HEADERS}), "")

    def test_each_class_is_in_one(self):
        missing = []
        for path in HEADERS:
            text = path.read_text()
            code = "\n".join(code for _, code in examples(text))
            missing += [
                f"{path.name}: {name}" for name in re.findall(r"^class (\w+)[^;]*\{$", text, re.M)
                if not re.search(rf"\b{name}\b", code)]
        self.assertEqual(missing, [])

    def test_what_is_not_there_is_found(self):
        text = "\n///\n///     struct Mine { static const int a = 1; };\n///     f(Mine::b);\n"
        self.assertRegex(self.errors({"x.hpp": text}), r"x\.hpp:4:.*: error: .*\bb\b")


if __name__ == "__main__":
    unittest.main(verbosity=2)
