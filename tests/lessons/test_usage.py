# SPDX-License-Identifier: MIT
"""The usage in a header's first comment is code that compiles."""
import json
import re
import shlex
import subprocess
import unittest

from lab import build
from lab.paths import ROOT

FOLDER = ROOT / "rdmashared/include/rdmashared"
# Header -> what its usage takes for granted.
HEADERS = {
    "caller.hpp": "std::span<const std::byte> bytes",
    "messages.hpp": "rdmashared::Caller caller",
    "metrics.hpp": "const rdmashared::Metrics &metrics",
    "sender.hpp": "",
    "server.hpp": "",
}
FOLDER = ROOT / "rdmashared/include/rdmashared"


def usage(text: str) -> "tuple[str, str]":
    """What stands outside of a function, and what stands in one."""
    lines = re.findall(r"^///     (.*)$", text.split("#pragma once")[0], re.M)
    types = [line for line in lines if line.startswith("struct ")]
    return "\n".join(types), "\n".join(line for line in lines if line not in types)


class Usage(unittest.TestCase):
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

    def compiles(self, header: str, types: str, code: str):
        others = "#include <rdmashared/server.hpp>\n" if header == "messages.hpp" else ""
        source = (
            f"#include <rdmashared/{header}>\n{others}{types}\nvoid use({HEADERS[header]})"
            f" {{\n{code}\n}}\n")
        return subprocess.run(
            [*self.compiler(), "-Wno-unused", "-fsyntax-only", "-x", "c++", "-"], input=source,
            capture_output=True, text=True, cwd=build.directory(), timeout=600)

    def test_each_compiles(self):
        for header in HEADERS:
            with self.subTest(header):
                types, code = usage((FOLDER / header).read_text())
                self.assertIn("(", code)
                result = self.compiles(header, types, code)
                self.assertEqual(result.returncode, 0, result.stderr)

    def test_what_is_not_there_is_found(self):
        types, code = usage((FOLDER / "sender.hpp").read_text())
        self.assertIn(
            "listen", self.compiles("sender.hpp", types, code + '\nsender.listen("name");').stderr)

    def test_every_header_with_a_usage_is_known(self):
        self.assertEqual(
            {path.name for path in FOLDER.glob("*.hpp") if usage(path.read_text())[1]},
            HEADERS.keys())


if __name__ == "__main__":
    unittest.main()
