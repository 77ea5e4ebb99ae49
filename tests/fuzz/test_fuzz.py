# SPDX-License-Identifier: MIT
"""Fuzzes everything that reads what somebody else wrote, with libFuzzer (clang), under the address
and undefined-behaviour sanitizers.

Each fuzzer first runs all inputs of its folder in corpus/, and then new ones for half a minute;
LAB_FUZZ_SECONDS=3600 makes that an hour. Two run at a time. The output of a run is enough to repeat
it: LAB_FUZZ_SEED sets the seed. An input that fails is kept in the build folder. Fix the bug, and
copy the input into the corpus.

`test_fuzz.py --keep FUZZER` fuzzes one, and copies the inputs that reach new code into the corpus.
"""
import os
import random
import re
import subprocess
import sys
import tempfile
import unittest
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import skipping
from lab.paths import ROOT

HERE = Path(__file__).resolve().parent
BUILD = Path(os.environ.get("LAB_BUILD", ROOT / "build"))
TOP = BUILD / "other" / "fuzz"
SECONDS = int(os.environ.get("LAB_FUZZ_SECONDS", "30"))
SEED = int(os.environ.get("LAB_FUZZ_SEED", random.randrange(1, 1 << 31)))
AT_ONCE = 2
# Fuzzer -> its sources beside its own, in rdmacommon/src, rdmashared/src and here.
FUZZERS = {
    "exchange_line": "exchange handles options resolve device processes wait_for check hints",
    "private_data": "description wire immediate requests handles check hints",
    "run_messages": "wire immediate requests device handles check hints lesson_messages",
    "sender_link": "members memory processes wait_for check hints",
}
FLAGS = [
    "-std=c++20",
    "-O1",
    "-g",
    "-fno-omit-frame-pointer",
    "-fno-sanitize-recover=undefined",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-Wno-missing-field-initializers",
    *(
        f"-I{ROOT / folder}"
        for folder in (
            "rdmacommon/include", "rdmacommon/src", "rdmashared/include", "rdmashared/src",
            "examples/08_datagrams", "examples/14_multicast", "examples/30_device_memory")),
]
SANITIZERS = "-fsanitize=fuzzer-no-link,address,undefined"


def run(argv, **options):
    result = subprocess.run(
        argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        errors="replace", **options)
    if result.returncode:
        raise AssertionError(f"{' '.join(map(str, argv))}:\n{result.stdout[-6000:]}")
    return result.stdout


def source(name):
    folders = (HERE, ROOT / "rdmacommon/src", ROOT / "rdmashared/src")
    return next(folder / f"{name}.cpp" for folder in folders if (folder / f"{name}.cpp").exists())


def compile_one(name):
    run(
        ["clang++", *FLAGS, SANITIZERS, "-c", str(source(name)), "-o", str(TOP / f"{name}.o")],
    )


def build(fuzzers):
    """Each source once, however many fuzzers it belongs to."""
    TOP.mkdir(parents=True, exist_ok=True)
    names = sorted({name for fuzzer in fuzzers for name in [fuzzer, *FUZZERS[fuzzer].split()]})
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(compile_one, names))
        list(pool.map(link, fuzzers))


def link(fuzzer):
    objects = [str(TOP / f"{name}.o") for name in [fuzzer, *FUZZERS[fuzzer].split()]]
    run(
        ["clang++", SANITIZERS.replace("-no-link", ""), *objects, "-o", str(TOP / fuzzer)]
        + ["-libverbs", "-lrdmacm"])


def fuzz(fuzzer, new):
    """@param new a folder for inputs that reach new code. @return what libFuzzer said at the end"""
    found = TOP / "found"
    found.mkdir(exist_ok=True)
    output = run(
        [
            str(TOP / fuzzer), f"-seed={SEED}", f"-max_total_time={SECONDS}", "-timeout=20",
            "-max_len=2048", "-print_final_stats=1", f"-artifact_prefix={found}/{fuzzer}-",
            str(new), str(HERE / "corpus" / fuzzer)],
        env={**os.environ, "UBSAN_OPTIONS": "print_stacktrace=1"})
    executed = int(re.search(r"stat::number_of_executed_units: (\d+)", output)[1])
    covered = re.findall(r" cov: (\d+) ft: (\d+) corp: (\d+)", output)[-1]
    return executed, covered


def why_not():
    """Debian's clang has libFuzzer in a package of its own."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "none.cpp"
        file.write_text('extern "C" int LLVMFuzzerTestOneInput(const char *, int) { return 0; }')
        argv = ["clang++", "-fsanitize=fuzzer", str(file), "-o", f"{folder}/none"]
        result = subprocess.run(argv, capture_output=True, text=True)
    return result.stderr and f"clang++ has no libFuzzer here: {result.stderr.splitlines()[0]}"


class Fuzz(unittest.TestCase):
    def test_all(self):
        build(FUZZERS)
        print(f"LAB_FUZZ_SEED={SEED} LAB_FUZZ_SECONDS={SECONDS}", flush=True)
        with tempfile.TemporaryDirectory() as new, ThreadPoolExecutor(AT_ONCE) as pool:
            for fuzzer in FUZZERS:
                (Path(new) / fuzzer).mkdir()
            runs = {fuzzer: pool.submit(fuzz, fuzzer, Path(new) / fuzzer) for fuzzer in FUZZERS}
            for fuzzer, one in runs.items():
                with self.subTest(fuzzer):
                    executed, (covered, features, inputs) = one.result()
                    print(
                        f"{fuzzer}: {executed} inputs, {covered} places of the code,"
                        f" {features} features, {inputs} inputs kept",
                        flush=True)
                    self.assertGreater(executed, 100)


def keep(fuzzer):
    build([fuzzer])
    corpus = HERE / "corpus" / fuzzer
    corpus.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as new:
        print(*fuzz(fuzzer, new))
        # The inputs that are there stay: they are cases that once failed.
        run([str(TOP / fuzzer), "-merge=1", str(corpus), str(new)])


if __name__ == "__main__":
    if sys.argv[1:2] == ["--keep"]:
        keep(sys.argv[2])
    elif reason := why_not():
        skipping.skip(reason)
    else:
        unittest.main(verbosity=2)
