# SPDX-License-Identifier: MIT
"""The index of verbs: each call in the code has its phrase, and each phrase a call and a man
page."""
import re
import subprocess
import unittest
from pathlib import Path
from unittest import mock

from lab.pages import verbs

HEADERS = [Path("/usr/include/infiniband/verbs.h"), Path("/usr/include/rdma/rdma_cma.h")]
MAN = Path("/usr/share/man/man3")


def without_phrase(source: str, declared: set) -> set:
    """Calls in C++ source that the index does not know. A name that a header declares counts
    also where it is not called."""
    names, called = verbs.words(source)
    return ((names & declared) | called) - verbs.CALLS.keys()


def declared() -> set:
    """The functions of libibverbs and librdmacm, by their headers; none where these are not
    installed."""
    text = "\n".join(path.read_text() for path in HEADERS if path.exists())
    return set(
        re.findall(r"^(?:[\w *]*[ *])?((?:ibv|rdma)_\w+)\(", verbs.NO_CODE.sub(" ", text), re.M))


def rdma_core() -> int:
    """Its version: the third number of libibverbs 1.14.44.0."""
    version = subprocess.run(
        ["pkg-config", "--modversion", "libibverbs"], capture_output=True, text=True, check=True
    ).stdout
    return int(version.split(".")[2])


class Verbs(unittest.TestCase):
    def test_every_call_has_a_phrase(self):
        functions = declared()
        for paths in verbs.sources().values():
            for path in paths:
                self.assertEqual(without_phrase(path.read_text(), functions), set(), path)

    def test_every_phrase_has_a_call(self):
        self.assertEqual([name for name, where in verbs.uses().items() if not where], [])
        self.assertLessEqual({*verbs.MAN, *verbs.LESSON}, verbs.CALLS.keys())

    def test_a_call_without_a_phrase_is_found(self):
        functions = {"ibv_resize_cq", "ibv_unimport_dm"}
        self.assertEqual(without_phrase("x = ibv_resize_cq(cq, 5);", set()), {"ibv_resize_cq"})
        self.assertEqual(
            without_phrase("p(dm, ibv_unimport_dm); ibv_dm *dm;", functions), {"ibv_unimport_dm"})
        self.assertEqual(
            without_phrase(
                '// ibv_resize_cq(cq)\nf("ibv_resize_cq()"); /* ibv_resize_cq() */', functions),
            set())
        self.assertEqual(
            without_phrase("void rdma_read(ibv_qp *qp) {}\n  rdma_read(qp);", functions), set())
        self.assertEqual(without_phrase("ibv_qp *qp; ibv_sge what{};", functions), set())
        for header in HEADERS:
            if header.exists():
                self.assertLessEqual(
                    (
                        {"ibv_reg_mr", "ibv_post_send", "ibv_start_poll"}
                        if "verbs" in header.name
                        else {"rdma_connect", "rdma_get_src_port"}),
                    declared())

    def test_a_phrase_without_a_call_is_found(self):
        with mock.patch.dict(verbs.CALLS, {"ibv_no_such": "x"}):
            self.assertEqual(verbs.uses()["ibv_no_such"], {})

    def test_man_pages_are_there(self):
        pages = {path.name.split(".")[0] for path in MAN.glob("*.3*")}
        if "ibv_reg_mr" not in pages:
            self.skipTest("the man pages of libibverbs-dev are not installed")
        known = {name for name in verbs.CALLS if verbs.manual(name)}
        self.assertEqual({name for name in known if verbs.manual(name) not in pages}, set())
        # A call that is said to have none, or to be in another's, has none of its own, unless this
        # rdma-core is new enough.
        newer = {name for name, since in verbs.MAN_SINCE.items() if rdma_core() >= since}
        self.assertEqual(
            {name for name in verbs.MAN if name in pages}, {"ibv_reg_mr_iova"} & pages | newer)

    def test_lesson_is_one_that_has_it(self):
        used = verbs.uses()
        for name, number in {
            "ibv_alloc_pd": "02",
            "ibv_poll_cq": "02",
            "ibv_req_notify_cq": "06",
            "rdma_connect": "12",
        }.items():
            self.assertEqual(verbs.lesson_of(name, used[name]).number, number, name)


if __name__ == "__main__":
    unittest.main(verbosity=2)
