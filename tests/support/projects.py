# SPDX-License-Identifier: MIT
"""For the tests of ./lab new: projects that are built outside the tree, and what they do."""
import copies
import needs_device
from copies import FAST, run
from lab import examples, pair
from lab.paths import ROOT


class Projects(copies.Copies):
    def meson(self, project, *targets, as_subproject=False):
        """Builds it by Meson. @return what starts a program of it"""
        if as_subproject:
            (project / "subprojects").mkdir()
            (project / "subprojects/rdma-by-example").symlink_to(ROOT)
            run(["meson", "setup", "build", "--unity=subprojects", *FAST], project)
        else:
            run(
                ["meson", "setup", "build", *FAST], project,
                PKG_CONFIG_PATH=str(self.installed / "lib/pkgconfig"))
            self.assertFalse((project / "subprojects").exists())
        run(["ninja", "-C", "build", *targets], project)
        return [] if as_subproject else ["env", f"LD_LIBRARY_PATH={self.installed}/lib"]

    def sends_and_receives(self, project, *prefix):
        argv = [*prefix, str(project / "build/send_recv")]
        outcome = examples.run_pair(needs_device.PLACE, argv, argv)
        self.assertEqual(outcome.status, {"server": 0, "client": 0}, outcome.text())
        self.assertIn('received "hello from the server"', outcome.of("client"))

    def serves_and_is_joined(self, project, *prefix):
        outcome = pair.run(
            needs_device.PLACE,
            [
                *prefix, "python3", "-I", "-S", str(ROOT / "tests/thorough/joining.py"),
                str(project / "build"), needs_device.PLACE.address])
        self.assertRegex(
            outcome.text(),
            r"""^client: get: nothing
client: put: 42 in place of nothing
client: put: 0 is no key
client: client --join numbers .*
joined: get: 42
joined: put: 42 in place of 42
joined: put: 0 is no key
ended: 0 0 0
$""",
        )
