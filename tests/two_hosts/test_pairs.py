# SPDX-License-Identifier: MIT
"""Every example with two sides works between two hosts, whatever the GID index is on each."""
import os
import subprocess
import unittest
import unittest.mock

import two_hosts
from lab import examples, ladder, normalise, pair, variants
from lab.commands import lint
from two_hosts import A, B, on

BUILD = two_hosts.BUILD


def run(program, kind="pair"):
    return examples.run(A, BUILD, program, kind, client_place=B)


def gid_index(host, address):
    for line in on(host, "ibv_devinfo", "-v").splitlines():
        if f"::ffff:{address}," in line:
            return int(line.split("[")[1].split("]")[0])
    raise AssertionError(f"host {host} has no GID of {address}")


class Pairs(unittest.TestCase):
    def test_all_print_what_the_lessons_show(self):
        for lesson in ladder.read():
            if lesson.is_pair:
                with self.subTest(lesson.stem):
                    outcome = run(lesson.program, lesson.kind)
                    self.assertEqual(outcome.status, {"server": 0, "client": 0}, outcome.text())
                    roles = {role: outcome.of(role) for role in outcome.status}
                    expected = variants.expected(examples.expected_file(lesson.stem), A).read_text()
                    self.assertEqual(normalise.differences(expected, roles, A.device), [])

    @unittest.mock.patch.dict(os.environ, {"RDMA_TIMEOUT": "5"})  # as in test_examples
    def test_changes_fail_as_on_one_host(self):
        for name in ("no_receive", "wrong_psn"):
            with self.subTest(name):
                outcome = run(f"send_recv.{name}")
                roles = {role: outcome.of(role) for role in outcome.status}
                expected = variants.expected(
                    examples.expected_file("02_send_recv", name), A
                ).read_text()
                self.assertEqual(normalise.differences(expected, roles, A.device), [])

    def test_hosts_with_different_mtus(self):
        """b can take packets of 4096 bytes, and a only 1024: both use what a can take, in both
        directions."""
        self.addCleanup(on, "b", "ip", "link", "set", "lab0", "mtu", "1500")
        on("b", "ip", "link", "set", "lab0", "mtu", "9000")
        for server, client in ((A, B), (B, A)):
            outcome = examples.run(
                server, BUILD, "write_with_imm", client_place=client, kind="pair")
            self.assertEqual(outcome.status, {"server": 0, "client": 0}, outcome.text())
        outcome = run("send_recv")
        told = {
            role: [line.rsplit(":")[-1] for line in outcome.of(role) if line.startswith("me ")]
            for role in outcome.status}
        self.assertEqual(told, {"server": ["1024"], "client": ["4096"]})

    def test_by_the_lab_command(self):
        result = two_hosts.lab("run", "--two-hosts", "02_send_recv")
        self.assertIn('[client] received "hello from the server"', result.stdout)

    def test_different_gid_indices(self):
        """b gets another address below its own in the table. The two sides need not agree on an
        index."""
        self.assertEqual(gid_index("a", A.address), gid_index("b", B.address))

        def addresses(*what):
            on("b", "sh", "-c", "; ".join(f"ip address {which} dev lab0" for which in what))

        self.addCleanup(addresses, f"del {B.address}/24", "del 10.78.0.2/24", f"add {B.address}/24")
        addresses(f"del {B.address}/24", "add 10.78.0.2/24", f"add {B.address}/24")
        index = gid_index("b", B.address)
        self.assertNotEqual(gid_index("a", A.address), index)
        # By itself b has a free choice between two IPv4 GIDs; named, it is the one that a can
        # reach.
        program = str(BUILD / "examples/send_recv")
        server = subprocess.Popen(A.wrap([program]), stdout=subprocess.PIPE, text=True)
        self.addCleanup(server.kill)
        port = next(line.split()[-1] for line in server.stdout if line.startswith("listening"))
        client = subprocess.run(
            B.wrap([program, "--gid-index", str(index), "--host", A.address, "--tcp-port", port]),
            capture_output=True, text=True, timeout=600)
        self.assertEqual(client.returncode, 0, client.stdout + client.stderr)
        self.assertIn('received "hello from the client"', server.communicate(timeout=600)[0])
        self.assertEqual(server.returncode, 0)

    def test_lint_reports_a_gid_that_has_changed(self):
        for wrong in (True, False):
            with self.subTest(wrong=wrong):
                collector = lint.Collector(lambda role, text: None, lambda finding: None)
                argv = [
                    str(BUILD / "tests/lint/lint_cases"), "--device", B.device,
                    "--case", "gid-changed", *(["--wrong"] * wrong)]
                outcome = pair.run(B, [*lint.under(B, BUILD), *argv], show=collector.show)
                collector.end(outcome)
                text = outcome.text() + "\n".join(f.text() for f in collector.findings)
                self.assertEqual(outcome.status, {"": 0}, text)
                found = {finding.rule.name for finding in collector.findings}
                self.assertEqual("gid-changed" in found, wrong, text)


if __name__ == "__main__":
    two_hosts.main()
