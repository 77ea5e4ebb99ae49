# SPDX-License-Identifier: MIT
"""The machine in the page (./lab docs --play): in Chromium, as a reader uses it, and in
qemu-system-i386."""
import contextlib
import json
import re
import shlex
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

import skipping
from lab import ladder, listening, normalise
from lab.commands import docs
from play import page_machine as machine, site
from site_server import SiteServer
from webdriver import KEYS, Browser, Driver

BOXES = """return [...document.querySelectorAll('.play')].map((box) =>
  [box.querySelector('button')?.ariaLabel ?? '', box.innerText])"""
CLICK = "window.box = document.querySelectorAll('.play')[arguments[0]];" \
    " box.querySelector('button').click()"
ENDED = "return box.querySelector('button').textContent == 'Run' &&" \
    " box.querySelector('[role=status]').textContent"
PACKETS = """return [...box.querySelectorAll('.left, .right')].map((row) =>
  [row.className, row.textContent])"""
MEGABYTES = 8


class Page(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temp = tempfile.TemporaryDirectory(prefix="lab site ")
        cls.html = docs.make(Path(cls.temp.name) / "docs").parent
        began = time.monotonic()
        site.make(cls.html)
        cls.runs = json.loads((cls.html / "play/play.json").read_text())["runs"]
        print(f"the machine and its programs took {time.monotonic() - began:.0f} s")
        cls.server = SiteServer(cls.html)
        cls.driver = Driver()

    @classmethod
    def tearDownClass(cls):
        cls.driver.close()
        cls.server.close()
        cls.temp.cleanup()

    @contextlib.contextmanager
    def page(self, stem, before=""):
        browser = Browser(self.driver)
        try:
            browser.devtools("Page.addScriptToEvaluateOnNewDocument", source=before)
            browser.open(f"{self.server.url}/page_lessons_{stem}.html")
            browser.wait(
                "return document.querySelector('.play-terminal') ||"
                " /no WebAssembly/.test(document.body.innerText)")
            yield browser
            self.assertEqual(browser.console(), [])
        finally:
            browser.close()

    def test_each_command_of_each_lesson(self):
        """Each prints what is recorded, with one machine for a page."""
        first = {}  # lesson -> seconds from the first click to the first line
        for lesson in ladder.read():
            wanted = re.findall(
                r"^(\./lab (?:run|trace|capture) .*?) *$", lesson.file.read_text(), re.M)
            if not wanted:
                continue
            with self.page(lesson.stem) as browser:
                boxes = browser.run(BOXES)
                for number, (line, (name, text)) in enumerate(zip(wanted, boxes, strict=True)):
                    with self.subTest(line):
                        if "31_kernel_client" in line or "--device" in line:
                            self.assertIn("on a Linux machine only", text)
                            continue
                        self.assertEqual(name, f"Run: {line}")
                        began = time.monotonic()
                        browser.run(CLICK, number)
                        browser.wait("return box.querySelector('pre').textContent")
                        first.setdefault(lesson.stem, time.monotonic() - began)
                        said = browser.wait(ENDED)
                        its = self.runs[line]
                        if "expected" in its:
                            self.assertEqual(said, "as recorded")
                        else:
                            self.assertRegex(said, "^ended")
                        is_pair = len(its["commands"]) == 2
                        self.assertEqual(bool(browser.run(PACKETS)), its["two_hosts"] and is_pair)
        times = sorted(first.values())
        print(f"first line after {times[len(times) // 2]:.2f} s, at most {times[-1]:.2f} s")

    def test_download_is_small(self):
        loaded = sum(
            path.stat().st_size for path in (self.html / "play").iterdir()
            if path.is_file() and path.name != "licences.html")
        loaded += (self.html / "play/files/send_recv.gz").stat().st_size
        print(f"{loaded / 1e6:.2f} MB")
        self.assertLess(loaded, MEGABYTES * 1e6)

    def test_shows_the_packets_between_two_hosts(self):
        with self.page("02_send_recv") as browser:
            lines = [line for line, _ in browser.run(BOXES)]
            browser.run(CLICK, lines.index("Run: ./lab trace 02_send_recv"))
            browser.wait(ENDED)
            # One that is sent again, since its acknowledgement is late, counts once.
            shown = [
                (side, line.split(" · "))
                for side, line in dict.fromkeys(map(tuple, browser.run(PACKETS)))]
            requests = [(side, words) for side, words in shown if words[0] == "SEND Only"]
            answers = [(side, words) for side, words in shown if words[0] == "Acknowledge"]
            self.assertEqual(sorted(shown), sorted(requests + answers))
            self.assertEqual([side for side, _ in requests], ["left", "right"])  # client, server
            self.assertEqual([side for side, _ in answers], ["right", "left"])
            for (_, request), (_, answer) in zip(requests, answers, strict=True):
                self.assertEqual(request[3:], ["64 B", "acknowledgement requested"])
                self.assertEqual(answer[3:], ["ACK"])
                self.assertEqual(request[2], answer[2])  # the PSN
            self.assertEqual(requests[0][1][1], answers[1][1][1])  # the server's QP

    def test_stop(self):
        with self.page("02_send_recv") as browser:
            browser.run(CLICK, 1)  # no_receive takes 5 s
            browser.wait("return /peer/.test(box.innerText)")
            browser.run("box.querySelector('button').click()")
            self.assertEqual(browser.wait(ENDED), "stopped")

    def test_keyboard_and_terminal(self):
        with self.page("02_send_recv") as browser:
            browser.run("document.querySelector('.play-terminal').focus()")
            browser.type([KEYS["Enter"]])
            rows = "return document.querySelector('.xterm-rows')?.innerText"
            browser.wait(rows + ".includes('#')")
            browser.type([*"ibv_devices", KEYS["Enter"]])
            browser.wait(rows + ".includes('rxe0')")
            browser.type([KEYS["Escape"]])
            self.assertEqual(browser.run("return document.activeElement.textContent"), "Terminal")

    def test_fits_a_phone(self):
        with self.page("02_send_recv") as browser:
            browser.devtools(
                "Emulation.setDeviceMetricsOverride", width=390, height=844, deviceScaleFactor=2,
                mobile=True)
            browser.run(CLICK, 0)
            browser.wait(ENDED)
            self.assertLessEqual(browser.run("return box.getBoundingClientRect().right"), 390)
            self.assertLessEqual(browser.run("return document.documentElement.scrollWidth"), 390)
            height = "return box.querySelector('button').getBoundingClientRect().height"
            self.assertGreaterEqual(browser.run(height), 44)  # a finger

    def test_compares_as_lab_run_does(self):
        with self.page("02_send_recv") as browser:
            texts = [path.read_text() for path in (docs.ROOT / "examples").rglob("*.txt")]
            lines = sorted({line for text in texts for line in text.splitlines()})
            normalised = browser.run(
                "return import('./play/page.js').then((page) => arguments[0].map(page.normalised))",
                lines)
            self.assertEqual(normalised, [normalise.normalise(line, "rxe0") for line in lines])
            difference = "return import('./play/page.js').then((page) =>" \
                " page.difference(...arguments[0]) ?? null)"
            one = {"server": ["a", "b"], "client": ["c"]}
            self.assertIsNone(browser.run(difference, [one, one]))
            for other in (
                {**one, "client": ["d"]}, {"server": ["a", "b"]}, {**one, "server": ["b", "a"]},
                {**one, "": ["more"]}
            ):
                self.assertTrue(browser.run(difference, [one, other]), other)

    def test_without_webassembly(self):
        with self.page("02_send_recv", before="delete window.WebAssembly") as browser:
            self.assertIn("on a Linux machine only", browser.run("return document.body.innerText"))
            self.assertEqual(browser.run(BOXES), [])


class Qemu:
    """The same kernel and init in qemu-system-i386, with the programs by 9p. Talks to page_init.sh
    as page_machine.mjs does."""

    def __init__(self, image, root, files):
        self.temp = tempfile.TemporaryDirectory()
        initrd = Path(self.temp.name) / "initrd"
        initrd.write_bytes(root)
        self.process = subprocess.Popen(
            [
                "qemu-system-i386", "-m", "128", "-nodefaults", "-display", "none", "-no-reboot",
                "-kernel", image, "-initrd", initrd, "-append", machine.command_line(),
                # The option ROM is in another package.
                "-device", "virtio-net-pci,romfile=",
                "-serial", f"file:{self.temp.name}/console", "-serial", "stdio", "-virtfs",
                f"local,path={files},mount_tag=host9p,security_model=none,readonly=on"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for line in self.process.stdout:
            if line == "ready\n":
                return
        raise AssertionError((Path(self.temp.name) / "console").read_text())

    def close(self):
        self.process.kill()
        self.process.communicate()
        self.temp.cleanup()

    def run(self, commands):
        """@return what each side has printed"""
        running, roles = {}, {}

        def start(role, command):
            number = str(time.monotonic_ns())
            running[number] = role
            self.process.stdin.write(f"{number} {shlex.join(command)}\n")
            self.process.stdin.flush()

        names = ["server", "client"] if len(commands) == 2 else [""]
        start(names[0], commands[0])
        while running:
            number, kind, text = re.match(r"(\d+)([:=])(.*)", next(self.process.stdout)).groups()
            if kind == "=":
                del running[number]
                continue
            roles.setdefault(running[number], []).append(text)
            ready = listening.LISTENING.match(text)
            if ready and names[-1] not in running.values() and len(commands) == 2:
                start(names[1], [word.replace("{port}", ready[1]) for word in commands[1]])
        return roles


class ThirtyTwoBits(unittest.TestCase):
    def test_prints_what_is_recorded(self):
        root, image = machine.debian(), machine.linux()
        folder = machine.programs(root)  # with -Dwerror
        qemu = Qemu(image, machine.initramfs(machine.files(root)), folder / "examples")
        self.addCleanup(qemu.close)
        for line, its in site.runs(folder, site.versions(image, root)).items():
            if "expected" not in its:
                continue
            with self.subTest(line):
                roles = qemu.run(its["commands"])
                self.assertEqual(normalise.compare(its["expected"], roles, "rxe0"), [])


if __name__ == "__main__":
    if not site.is_possible():
        skipping.skip("the machine in the page is made of Debian's packages")
    unittest.main(verbosity=2)
