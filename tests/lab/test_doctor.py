# SPDX-License-Identifier: MIT
"""./lab doctor: what each check says of a machine that is as it should be, and of one that is
not. The machines are made of files."""
import contextlib
import io
import ipaddress
import json
import os
import subprocess
import tempfile
import unittest
from pathlib import Path
from unittest import mock

from lab import place
from lab.commands import doctor, progress
from lab.paths import ROOT


class Kernel(unittest.TestCase):
    """A kernel with two RDMA devices, and the two programs that the checks ask."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        for name, netdev in (("mlx5_0", "eth0"), ("mlx5_1", "eth1")):
            for what in ("gids", "gid_attrs/ndevs"):
                (self.folder / "sys" / name / "ports/1" / what).mkdir(parents=True)
            entries = self.folder / "sys" / name / "ports/1/gid_attrs/ndevs"
            (entries / "0").write_text(netdev + "\n")
            (entries / "1").mkdir()  # of an empty entry, nothing can be read
        self.has("ibv_devices", "device node\n mlx5_0 0001\n mlx5_1 0002\n")
        self.addresses(eth0="192.0.2.1/24", eth1="198.51.100.1/24", wlan0="192.0.2.7/24")
        for patch in (
            mock.patch.object(place, "SYSFS", self.folder / "sys"),
            mock.patch.dict(os.environ, PATH=f"{self.folder}:{os.environ['PATH']}"),
        ):
            patch.start()
            self.addCleanup(patch.stop)

    def has(self, program: str, output: str) -> None:
        (self.folder / f"{program}.txt").write_text(output)
        path = self.folder / program
        path.write_text('#!/bin/sh\ncat "$0.txt"\n')
        path.chmod(0o755)

    def addresses(self, **of: str) -> None:
        """Those of this namespace, and the GIDs that they make."""
        for device, netdev in (("mlx5_0", "eth0"), ("mlx5_1", "eth1")):
            gids = ["fe80::1", "::", *(
                f"::ffff:{address.split('/')[0]}" for address in of.get(netdev, "").split())]
            for number, gid in enumerate(gids):
                path = self.folder / "sys" / device / "ports/1/gids" / str(number)
                path.write_text(ipaddress.ip_address(gid).exploded + "\n")
        self.has("ip", json.dumps([
            {"ifname": name, "addr_info": [
                {"local": address.split("/")[0], "prefixlen": int(address.split("/")[1])}
                for address in addresses.split()]}
            for name, addresses in of.items()]))

    def found(self, check) -> "list[doctor.Finding]":
        return list(check(["mlx5_0", "mlx5_1"]))

    def test_as_it_should_be(self):
        for check in (doctor.providers, doctor.namespaces, doctor.subnets):
            self.assertEqual(self.found(check), [], check.__name__)

    def test_a_provider_is_missing(self):
        self.has("ibv_devices", "device node\n mlx5_0 0001\n")
        finding, = self.found(doctor.providers)
        self.assertEqual(finding.state, "missing")
        self.assertEqual(finding.what, "libibverbs: the provider library for mlx5_1")

    def test_a_netdev_is_in_another_namespace(self):
        gids = self.folder / "sys/mlx5_0/ports/1/gids/2"
        gids.write_text("::ffff:203.0.113.1\n")  # there is an eth0 here, and it is another one
        finding, = self.found(doctor.namespaces)
        self.assertEqual(finding.what, "mlx5_0: its netdev, eth0, is in another network namespace")
        gids.unlink()  # InfiniBand has link-local GIDs alone
        self.assertEqual(self.found(doctor.namespaces), [])

    def test_without_the_programs(self):
        with mock.patch.dict(os.environ, PATH="/nonexistent"):
            self.test_as_it_should_be()

    def test_two_interfaces_in_one_subnet(self):
        self.addresses(eth0="192.0.2.1/24", eth1="192.0.2.129/25")
        finding, = self.found(doctor.subnets)
        self.assertEqual(
            finding.what, "eth0 and eth1 have addresses in one subnet, 192.0.2.0/24")
        self.addresses(eth0="192.0.2.1/24 192.0.2.2/24", eth1="192.0.3.129/24")
        self.assertEqual(self.found(doctor.subnets), [])

    def test_each_page_exists(self):
        self.has("ibv_devices", "")
        self.addresses(eth0="192.0.2.1/24", eth1="192.0.2.2/24")
        with mock.patch.object(doctor, "mappings", lambda: [("7", 10**9)]):
            findings = [
                *self.found(doctor.providers), *self.found(doctor.subnets), *doctor.limits()]
        (self.folder / "sys/mlx5_0/ports/1/gids/2").write_text("::ffff:203.0.113.1\n")
        findings += self.found(doctor.namespaces)
        headings = {
            line.strip("# ").lower().replace(" ", "-")
            for line in (ROOT / "lessons/troubleshooting.md").read_text().splitlines()
            if line.startswith("### ")}
        pages = [
            finding.fix.split("#")[1].rstrip(")") for finding in findings if "#" in finding.fix]
        self.assertEqual(len(pages), 5, findings)
        self.assertLessEqual(set(pages), headings)


class Limits(unittest.TestCase):
    def found(self, files: int, mappings: int) -> "list[str]":
        most = int(Path("/proc/sys/vm/max_map_count").read_text())
        with mock.patch("resource.getrlimit", lambda _: (files, files)), \
                mock.patch.object(
                    doctor, "mappings", lambda: [("7", 100), ("8", most * mappings // 100)]):
            return [f"{finding.state} {finding.what}" for finding in doctor.limits()]

    def test_as_they_should_be(self):
        self.assertEqual(
            self.found(1024, 89), ["ok open files: 1024 for each process (ulimit -n)"])

    def test_few_files(self):
        self.assertEqual(
            self.found(256, 89), ["note open files: 256 for each process (ulimit -n)"])

    def test_nearly_all_mappings(self):
        self.assertRegex(self.found(1024, 91)[1], "^note mappings: process 8 has ")

    def test_this_process_has_mappings(self):
        self.assertGreater(dict(doctor.mappings())[str(os.getpid())], 10)


class Device(unittest.TestCase):
    def found(self, *gids: str, kind: str = "RoCE v2") -> "list[str]":
        lines = [
            "1/state:4: ACTIVE", *(f"1/gids/{i}:{gid}" for i, gid in enumerate(gids)),
            *(f"1/gid_attrs/types/{i}:{kind}" for i in range(len(gids)))]
        where = place.Place("device", "", "mlx5_0", "")
        with mock.patch.object(doctor, "ask", lambda where, *argv: "\n".join(lines)):
            return [finding.what for finding in doctor.device(where)]

    def test_gids(self):
        link, ip = "fe80::1", "::ffff:192.0.2.1"
        self.assertIn("no GID", self.found())
        self.assertIn("only link-local GIDs", "".join(self.found(link)))
        self.assertNotIn("link-local", "".join(self.found(link, ip)))
        self.assertNotIn("link-local", "".join(self.found(link, kind="IB/RoCE v1")))


class Output(unittest.TestCase):
    def output(self, found: list, as_json: bool) -> "tuple[int, str]":
        out = io.StringIO()
        with mock.patch.object(doctor, "look", lambda want: found), \
                mock.patch.object(progress, "note"), \
                mock.patch("lab.packages.ensure"), contextlib.redirect_stdout(out):
            return doctor.main(mock.Mock(device=None, json=as_json)), out.getvalue()

    def test_text_and_json(self):
        found = [doctor.Finding("ok", "place: here"), doctor.Finding("note", "wind", "a coat")]
        text = "ok      place: here\nnote    wind\n        -> a coat\n"
        self.assertEqual(self.output(found, False), (0, text))
        status, text = self.output(found, True)
        self.assertEqual(
            (status, json.loads(text)), (0, [
                {"state": "ok", "what": "place: here", "fix": ""},
                {"state": "note", "what": "wind", "fix": "a coat"}]))

    def test_status_without_a_device(self):
        found = [doctor.Finding("ok", "kernel"), doctor.Finding("missing", "a device: none")]
        self.assertEqual(self.output(found, True)[0], 1)

    def test_the_command(self):
        result = subprocess.run(
            [ROOT / "lab", "doctor", "--json"], capture_output=True, text=True, timeout=600)
        found = json.loads(result.stdout)
        self.assertIn("kernel " + os.uname().release, found[0]["what"])
        self.assertEqual({len(finding) for finding in found}, {3})
        self.assertEqual(
            result.returncode == 0, any(item["what"].startswith("place: ") for item in found))


if __name__ == "__main__":
    unittest.main(verbosity=2)
