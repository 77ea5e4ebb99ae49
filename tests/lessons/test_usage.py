"""The usage in a header's first comment is code that compiles."""
import json
import re
import shlex
import subprocess
import unittest

from lab import build
from lab.paths import ROOT

# Header -> what its usage takes for granted.
HEADERS = {
    "caller.hpp": "std::span<const std::byte> bytes",
    "sender.hpp": "std::vector<rdmacommon::Link> links",
    "server.hpp": "const ServerOptions &options, const rdmacommon::CmOptions &where, int signals",
}
FOLDER = ROOT / "examples/19_shared_client"


def usage(text: str) -> str:
    first = text.split("#pragma once")[0]
    return "\n".join(re.findall(r"^//     (.*)$", first, re.M))


class Usage(unittest.TestCase):
    def compiler(self) -> list:
        """What compiles shared_client.cpp, but for its own input and output."""
        commands = json.loads((build.directory() / "compile_commands.json").read_text())
        command = next(entry["command"] for entry in commands if entry["file"].endswith("19_shared_client/shared_client.cpp"))
        words = shlex.split(command)
        return [words[0], *(word for word in words[1:] if word.startswith(("-I", "-D", "-std", "-f", "-W")) and word != "-Winvalid-pch")]

    def compiles(self, header: str, code: str):
        source = f'#include "{header}"\nnamespace shared_client {{ void use({HEADERS[header]}) {{\n{code}\n}} }}\n'
        return subprocess.run([*self.compiler(), "-Wno-unused", "-fsyntax-only", "-I", str(FOLDER), "-x", "c++", "-"], input=source,
                              capture_output=True, text=True, cwd=build.directory(), timeout=600)

    def test_each_compiles(self):
        for header in HEADERS:
            with self.subTest(header):
                code = usage((FOLDER / header).read_text())
                self.assertIn("(", code)
                result = self.compiles(header, code)
                self.assertEqual(result.returncode, 0, result.stderr)

    def test_what_is_not_there_is_found(self):
        code = usage((FOLDER / "sender.hpp").read_text()) + '\nsender.listen("name");'
        self.assertIn("listen", self.compiles("sender.hpp", code).stderr)


if __name__ == "__main__":
    unittest.main()
