# SPDX-License-Identifier: MIT
"""./lab bench: measures the examples side by side with what others have written, and says what it
found.

What measures is tools/bench, and runs where the device is: an agent on the server's side, an engine
on the client's. This here builds, starts the two, and makes files of what they say.
"""
from __future__ import annotations

import argparse
import json
import os
import random
import shlex
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import Iterator, List, Optional

from bench import cases, describe, plots, results, table
from lab import build, packages, place
from lab.errors import LabError, UsageError, nearest
from lab.machine import machine
from lab.paths import ROOT

COME_LIMIT = 600  # seconds in which the engine has to come to the agent
RESULTS = ROOT / "results"


def add_parser(subparsers) -> None:
    parser = subparsers.add_parser(
        "bench",
        help="measure the examples side by side with others' programs",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description=(
            "Measures the examples side by side with perftest, UCX, libfabric, rsockets and TCP,"
            " on whatever device there is.\nIt takes one to two hours, or 2 minutes with --quick,"
            " and writes results.csv, runs.csv, ratios.csv, machine.json and plots.\nA pair that"
            " is decided after 15 or 30 repeats is not run any more.\nGroups:"
            f" {', '.join(cases.GROUPS)}."),
        epilog=(
            "Between two machines: ./lab bench --server HOST, with a checkout at the same path"
            " there."))
    parser.add_argument(
        "--quick", action="store_true",
        help="one size each, and few iterations: to see that it works")
    parser.add_argument(
        "--only", metavar="GROUP[,GROUP]", default="",
        help="only these groups, or cases of them: latency,rate/ib_write_bw")
    parser.add_argument(
        "--repeats", type=int, metavar="N",
        help="of each pair, at most, after a warm-up [60, or 2 with --quick]")
    parser.add_argument(
        "--seed", type=int, default=random.randrange(2**32),
        help="of the order in which they run [another one each time]")
    parser.add_argument(
        "--results", type=Path, metavar="FOLDER", help="where to write [results/DATE-TIME]")
    parser.add_argument(
        "--device",
        help="the RDMA device, where there are several; on the server's side LAB_DEVICE says which")
    parser.add_argument(
        "--time-limit", type=float, default=60, metavar="SECONDS",
        help="of one run, after which its case has failed [60]")
    sides = parser.add_mutually_exclusive_group()
    sides.add_argument(
        "--server", metavar="HOST",
        help="the servers run there, by ssh (BENCH_SSH is another command for that)")
    sides.add_argument(
        "--two-hosts", action="store_true",
        help="the servers on host a, the clients on host b (./lab hosts)")
    parser.add_argument(
        "--server-dir", metavar="FOLDER", default=str(ROOT),
        help="the checkout on the server's side [as here]")
    parser.add_argument(
        "--publish", action="store_true",
        help="refresh the pictures and tables of the lesson by what was measured")
    # The option with which --server starts the agent on the other machine.
    parser.add_argument("--agent", action="store_true", help=argparse.SUPPRESS)
    parser.set_defaults(main=main)


def main(args) -> int:
    only = check(args)
    folder = args.results or RESULTS / time.strftime("%Y%m%d-%H%M%S")
    if not args.agent:
        make(folder)
    prepare(args, only)
    if args.agent:
        return serve_alone(args)
    found, described = results.Results(args.repeats), {}
    try:
        described = measure(args, only, found)
    finally:
        if found.runs or found.broken():  # what there is, if it was interrupted, too
            found.write(folder, {**machine_json(args, only, found), **described})
            plots.draw_all(folder, folder)
    if args.publish:
        from bench import publish

        publish.publish(folder)
    print(table.table(found))
    print(f"lab: {folder} has the figures", file=sys.stderr)
    return verdict(found)


def check(args) -> List[str]:
    only = [word for word in args.only.split(",") if word]
    for word in only:
        if word not in cases.names():
            raise UsageError(f"there is no {word} to measure" + nearest(word, cases.names()))
    if args.repeats is None:
        args.repeats = 2 if args.quick else results.LOOKS[-1]
    if args.repeats < 1 or args.time_limit <= 0:
        raise UsageError("--repeats and --time-limit are more than 0")
    return only


def make(folder: Path) -> None:
    """Before anything is measured. @raises LabError"""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise LabError(f"cannot make the folder {folder}: {error.strerror}") from error


def prepare(args, only: List[str]) -> None:
    names = cases.programs(cases.probes(args.quick, tuple(only)))
    needed = ["build", *(["device", "machine"] if args.two_hosts else place.groups(args.device))]
    peers_too = not args.agent and not set(names) <= cases.OURS.keys()
    try:
        packages.ensure(*needed, *(["bench"] if peers_too else []))
    except LabError as error:
        packages.need(*needed)
        print(f"lab: {error}", file=sys.stderr)  # a peer that is not installed is skipped, by name
    build.build(*(f"{cases.OURS[name]}/{name}" for name in names if name in cases.OURS))


def verdict(found: results.Results) -> int:
    """Peers may fail, and goals may be missed; what is ours has to run."""
    ours = {
        probe.key
        for probe in cases.probes(True) + cases.probes(False)
        if probe.client.split()[0] in cases.OURS
    }
    bad = sorted(
        f"{key[0]}/{key[1]} {key[2]}: {whys[0]}"
        for key, whys in found.failures.items()
        if key in ours)
    for line in bad:
        print(f"lab: {line}", file=sys.stderr)
    return 1 if bad or not found.machine else 0


# ---- the two sides


def command(where: place.Place, module: str, options: dict) -> List[str]:
    # Without site (-S), which looks through all packages that are installed: under emulation that
    # takes seconds.
    return where.wrap(
        [
            "env", f"PYTHONPATH={ROOT / 'tools'}", sys.executable, "-S", "-m", f"bench.{module}",
            json.dumps(options)])


def agent_command(args, where: place.Place, describe: bool) -> List[str]:
    options = {
        "device": where.device, "address": where.address, "build": str(build.directory()),
        "quick": args.quick, "wait": COME_LIMIT, "describe": describe}
    return command(where, "serve", options)


def engine_command(args, only: List[str], where: place.Place, agent: dict) -> List[str]:
    options = {
        "device": where.device, "build": str(build.directory()), "quick": args.quick, "only": only,
        "repeats": args.repeats, "seed": args.seed, "limit": args.time_limit,
        "host": agent["address"], "port": agent["port"], "token": agent["token"]}
    return command(where, "engine", options)


@contextmanager
def running(argv: List[str], what: str) -> Iterator[subprocess.Popen]:
    """A process whose output is read here. Its standard input is held open as long as it is
    wanted."""
    try:
        process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    except OSError as error:
        raise LabError(f"{what}: {argv[0]}: {error.strerror}") from error
    try:
        yield process
    finally:
        process.stdin.close()
        try:
            process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            process.terminate()
            process.wait()
        process.stdout.close()


def hello(process: subprocess.Popen, what: str) -> dict:
    """The agent's first line. @raises LabError if there is none"""
    for line in process.stdout:
        try:
            said = json.loads(line)
            if "agent" in said:
                return said
        except ValueError:  # a login shell that greets
            continue
    raise LabError(f"{what} did not start; it ended with status {process.wait()}")


def take(process: subprocess.Popen, found: results.Results) -> int:
    """All that it says, to the end. @return its exit status"""
    for line in process.stdout:
        found.take(json.loads(line))
    return process.wait()


def measure(args, only: List[str], found: results.Results) -> dict:
    """@return what is to be said of the server's machine"""
    if args.two_hosts:
        servers, clients = place.find_hosts()
    else:
        servers = clients = place.find_place(args.device)
    print(f"lab: {clients.why}", file=sys.stderr)
    if args.server:
        words = ["./lab", "bench", "--agent"] + (["--quick"] if args.quick else [])
        argv = [
            *shlex.split(os.environ.get("BENCH_SSH", "ssh")), args.server,
            f"cd {shlex.quote(args.server_dir)} && {shlex.join(words)}"]
        what = f"the agent on {args.server}"
    else:
        argv, what = agent_command(args, servers, args.two_hosts), "the agent"
    with running(argv, what) as agent:
        said = hello(agent, what)
        # The server's device has no address of its own.
        if said["agent"]["address"].startswith("127.") and args.server:
            said["agent"]["address"] = args.server
        with running(engine_command(args, only, clients, said["agent"]), "the engine") as client:
            status = take(client, found)
    if status == machine.CRASHED:
        raise LabError("the emulated machine is gone")
    if status:
        raise LabError(f"the engine ended with status {status}")
    return {"server": said["machine"]} if said["machine"] else {}


def serve_alone(args) -> int:
    """The server's side of --server: until its input ends, which is when the other side goes."""
    where = place.find_place(args.device)
    print(f"lab: {where.why}", file=sys.stderr)
    return machine.end_like(subprocess.run(agent_command(args, where, True)).returncode)


# ---- what it was measured on


def machine_json(args, only: List[str], found: results.Results) -> dict:
    """Of the client."""
    client = dict(found.machine)
    if client.get("emulated") == "yes":
        status = machine.status("b" if args.two_hosts else "")
        client["emulated"] = "KVM" if status and "kvm" in status.get("accelerator", "") else "TCG"
        client["emulated_by"] = describe.cpu_model()
    return {
        "date": time.strftime("%Y-%m-%d %H:%M:%S %z"),
        **client,
        "commit": commit(),
        "options": {
            "quick": args.quick,
            "only": only,
            "repeats": args.repeats,
            "server": args.server,
            "two_hosts": args.two_hosts,
        },
    }


def commit() -> Optional[str]:
    """Of the tree, with a + if it has been changed since; None where that is not known."""
    try:
        said = [
            subprocess.run(
                ["git", "-C", str(ROOT), *words], capture_output=True, text=True
            ).stdout.strip()
            for words in (
                ["rev-parse", "--short=12", "HEAD"],
                ["status", "--porcelain", "--untracked-files=no"])
        ]
    except OSError:
        return None
    return (said[0] + ("+" if said[1] else "")) or None
