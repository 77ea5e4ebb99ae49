# SPDX-License-Identifier: MIT
"""Troubleshooting is complete: each hint of a program leads to an entry, and what the lessons break
has one."""
import re
import unittest

from lab import examples
from lab.pages import headings
from lab.paths import ROOT

PAGE = ROOT / "lessons/troubleshooting.md"
ROWS = headings.symptom_rows(PAGE.read_text())
ANCHORS = {headings.slug(heading) for _, heading, _ in ROWS}
SEEN = "\n".join(sees for _, _, sees in ROWS)
# A row of hints.cpp: what it is about, and how it ends, the strings in between perhaps in pieces.
ROW = re.compile(
    r'^    \{((?:"[\w(): ]*", E\w+)|IBV_WC_\w+|RDMA_CM_EVENT_\w+, -?\d+),(.*?)\},?$', re.M | re.S)

# Entries to which no hint leads that an example or a test prints, and no rule of the checker: the
# file that shows what the reader sees, and words of it.
SHOWN = {
    "wrong-device": ("tests/faults/test_wrong_choices.py", "the devices are"),
    "skipped": ("tests/doubles/test_doubles.py", "skipped: this device has no atomics"),
    "it-does-not-end": (
        "examples/06_completions/expected.txt",
        "ibv_destroy_cq: waits, since an event is not acknowledged"),
    "cm-route": (
        "tests/faults/test_connecting.py", "ROUTE_ERROR: it came instead of ROUTE_RESOLVED"),
    "cm-rejected": ("tests/faults/test_connecting.py", "with reason 28, consumer reject"),
    "no-completion": ("examples/02_send_recv/break/no_receive.txt", "no completion within 5 s"),
    "cq-error": ("examples/06_completions/expected.txt", "CQ error"),
    "lost-datagrams": (
        "examples/08_datagrams/break/no_resend.txt", "acknowledged 4 of 12 messages"),
    "lossy-ethernet": ("tests/two_hosts/test_wire_faults.py", "test_transfer_survives_loss"),
    "it-hangs-after-connecting": (
        "tests/two_hosts/test_wire_faults.py", "test_cut_ends_in_retry_exceeded"),
    "slow-long-messages": ("tests/two_hosts/test_pairs.py", "test_hosts_with_different_mtus"),
    "byte-order": (
        "examples/03_send_variants/break/host_order.txt", "its number or its length is wrong"),
    "overwritten": ("examples/03_send_variants/expected.txt", "then changed the buffer"),
    "no-provider": ("tests/lab/test_doctor.py", "the provider library for"),
    "other-namespace": ("tests/lab/test_doctor.py", "is in another network namespace"),
    "two-devices-one-subnet": ("tests/lab/test_doctor.py", "test_two_interfaces_in_one_subnet"),
    "two-softroce-devices": (
        "tests/faults/test_host_setup.py", "test_two_softroce_devices_of_one_host"),
    "softroce-on-a-vlan": ("tests/faults/test_host_setup.py", "test_softroce_takes_no_vlan"),
    "small-dev-shm": (
        "tests/faults/test_host_setup.py", "test_a_small_dev_shm_fails_at_the_first_use_of_a_page"),
    "no-kernel-headers": ("tests/lab/test_kernel_module.py", "newer kernel by now. Then remove"),
    "module-refused": ("tests/faults/test_kernel_client.py", "could not insert module"),
    "kernel-complains": ("tests/lab/test_kernel_module.py", "blocked for more than 120 seconds"),
}
# Entries that nothing in this project reaches, and why.
OUT_OF_REACH = {
    "after-a-reboot-or-an-update": "no test reboots the host; each line names a command",
    "cm-disconnected": "each example waits for this event, or a failed completion comes first",
    "old-names": "rdma-core never had these functions",
    "slow-on-the-other-socket": "the emulated machine has one socket",
    "slow-by-polling-or-sleeping": "a latency, which no test can promise",
    "slow-with-many-cqs": "a rate, which no test can promise",
    "pfc-missing": "SoftRoCE has no PFC",
    "callback-never-called": "the module's completion would be lost in the kernel of the tests",
}


def sources() -> dict:
    return {
        path: path.read_text()
        for folder in ("rdmacommon", "rdmashared", "examples")
        for path in (ROOT / folder).rglob("*.?pp")
    }


def arguments(text: str, start: int) -> list:
    """The arguments of the call whose opening parenthesis is at `start`."""
    depth, at, result, string = 0, start, [""], False
    while True:
        char = text[at]
        if string:
            string = char != '"' or text[at - 1] == "\\"
        elif char == '"':
            string = True
        elif char in "([{":
            depth += 1
        elif char in ")]}":
            depth -= 1
        if not depth:
            return [argument.strip("( \n") for argument in result]
        if char == "," and depth == 1 and not string:
            result.append("")
        else:
            result[-1] += char
        at += 1


def anchors_of(text: str, is_table: bool = False) -> "tuple[set, list]":
    """The anchors that the hints in a source end in, and those of its hints that end in none."""
    found, without = set(re.findall(r"troubleshooting\.md#([a-z][\w-]*)", text)), []
    for match in re.finditer(r"\b(?:throw |rdmacommon::|: )+Error\(", text):
        given = arguments(text, match.end() - 1)
        if (
            len(given) > 2
            # A place in the third position is the other constructor's: that error has no hint.
            and not re.match(r'hint\w*\(|why\b|""$|(options\.)?where_?$', given[2])
            and "troubleshooting.md#" not in given[2]
        ):
            without.append(given[2])
    for match in re.finditer(r'\bhint\("', text):
        given = arguments(text, match.end() - 2)
        anchor = re.fullmatch(r'"([a-z-]+)"', given[-1]) if len(given) == 2 else None
        if anchor:
            found.add(anchor[1])
        else:
            without.append(" ".join(given))
    if is_table:
        for about, rest in ROW.findall(text):
            # The text, which may be the name of one, and the anchor.
            anchor = re.fullmatch(r'\s*(?:(?:\s*"(?:\\.|[^"\\])*")+|\w+),\s*"([a-z-]+)"', rest)
            if anchor:
                found.add(anchor[1])
            else:
                without.append(about)
    return found, without


class Troubleshooting(unittest.TestCase):
    def test_every_hint_has_its_entry(self):
        named = set()
        for path, text in sources().items():
            found, without = anchors_of(text, path.name == "hints.cpp")
            self.assertEqual(without, [], path)
            self.assertEqual(found - ANCHORS, set(), path)
            named |= found
        self.assertGreater(len(named), 35)

    def test_the_table_of_hints_is_read_whole(self):
        text = (ROOT / "rdmacommon/src/hints.cpp").read_text()
        rows = re.findall(r'^    \{', text, re.M)
        self.assertEqual(len(ROW.findall(text)), len(rows))

    def test_a_hint_without_an_anchor_is_found(self):
        self.assertEqual(
            anchors_of('throw Error("a, b", f(1, 2), hint("do", "flush"));'), ({"flush"}, []))
        self.assertEqual(
            anchors_of('throw Error("a", "b", hint_for_errno(call, error));'), (set(), []))
        self.assertEqual(anchors_of('throw Error("a", "b", "just do it");')[1], ['"just do it"'])
        self.assertEqual(anchors_of('throw Error("a", "b", hint("do it", ""));')[1], ['"do it" ""'])
        self.assertEqual(
            anchors_of('    {IBV_WC_X, "do"\n     "it", "flush"},\n', True), ({"flush"}, []))
        self.assertEqual(anchors_of('    {"call", EX, do_it, "flush"},\n', True), ({"flush"}, []))
        self.assertEqual(anchors_of('    {IBV_WC_X, "do"\n     "it"},\n', True)[1], ["IBV_WC_X"])
        self.assertEqual(anchors_of('    {"call", EX, do_it},\n', True)[1], ['"call", EX'])
        self.assertEqual(anchors_of('    {"call", EX, "do it", ""},\n', True)[1], ['"call", EX'])

    def test_hints_that_were_printed(self):
        for path in examples.recorded():
            for line in re.findall(r"hint: .*", path.read_text()):
                self.assertRegex(line, r"; see lessons/troubleshooting\.md#[a-z-]+$", path.name)
                self.assertIn(line.rpartition("#")[2], ANCHORS, path.name)

    def test_every_failure_that_the_examples_show_has_an_entry(self):
        """Statuses of completions, events, calls that fail: also where no hint is printed."""
        for path in examples.recorded():
            text = path.read_text()
            for status in set(re.findall(r"\bstatus (\d+), [A-Za-z]", text)):
                self.assertRegex(SEEN, rf"status {status}\b", path.name)
            for event in set(re.findall(r"\bevent: ([A-Za-z ]+);", text)):
                self.assertIn(event, SEEN, path.name)
            for call, error in set(
                re.findall(r"error: ((?:ibv|rdma)_\w+)[^:]*: ([A-Z][a-z ]+),", text)
            ):
                self.assertTrue(
                    any(call in sees for _, _, sees in ROWS), f"{path.name}: {call}: {error}")
            for event in set(re.findall(r"error: (?:[\w ]+: )?([A-Z_]{8,}): ", text)):
                self.assertIn(event, SEEN, path.name)

    def test_a_program_reaches_each_entry(self):
        """As a hint that an example or a test prints, by a rule of the checker, or as SHOWN."""
        texts = [path.read_text() for path in examples.recorded()]
        texts += [
            path.read_text()
            for path in (ROOT / "tests").rglob("test_*.*")
            if path.suffix in (".py", ".cpp") and path.parent != ROOT / "tests/lessons"]
        texts.append((ROOT / "tools/lint/rules.def").read_text())  # test_lint has a program of each
        reached = set(re.findall(r"""(?:troubleshooting\.md|["'])#([a-z-]+)""", "\n".join(texts)))
        for anchor, (path, words) in SHOWN.items():
            self.assertIn(words, (ROOT / path).read_text(), anchor)
        left = ANCHORS - reached
        self.assertEqual(left, SHOWN.keys() | OUT_OF_REACH.keys())
        self.assertEqual(SHOWN.keys() & OUT_OF_REACH.keys(), set())

    def test_symptoms(self):
        self.assertEqual(len(ANCHORS), len(ROWS))
        self.assertEqual(
            headings.symptom_rows("## G\n\n### A b\n\n**You see** `x. y`,\nor z.\nMore.\n"),
            [("G", "A b", "`x. y`, or z")])
        with self.assertRaisesRegex(ValueError, "A b"):
            headings.symptom_rows("## G\n\n### A b\n\nMore.\n")


if __name__ == "__main__":
    unittest.main(verbosity=2)
