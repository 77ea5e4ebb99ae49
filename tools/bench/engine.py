# SPDX-License-Identifier: MIT
"""The client's side of the benchmark: runs the probes in pairs and says what they measured.

`python3 -m bench.engine OPTIONS`, where the client's device is: OPTIONS is a JSON object. What it
finds it prints as lines of JSON. A repeat runs all pairs that are not decided yet. The order of the
pairs, and of the two in a pair, is drawn anew each time, so that nothing that changes with time
favours one of them. The first repeat is a warm-up and not counted.
"""
from __future__ import annotations

import json
import random
import socket
import sys
import time
from typing import Dict, List, Tuple

from bench import cases, describe, goals, programs, results
from bench.cases import Probe, Sample, Side
from bench.goals import Pair
from lab import process

WITHOUT_GOAL = 5  # repeats of a probe that no goal names


class Server:
    """The agent on the server's side, which starts and ends servers."""

    def __init__(self, address: str, port: int, token: str):
        self.connection = socket.create_connection((address, port), timeout=30)
        self.connection.settimeout(None)
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self.lines = self.connection.makefile("rw", encoding="utf-8")
        self.ask({"token": token})

    def ask(self, what: dict) -> dict:
        self.lines.write(json.dumps(what) + "\n")
        self.lines.flush()
        line = self.lines.readline()
        if not line:
            raise ConnectionError("the server's side has ended")
        return json.loads(line)

    def start(self, probe: Probe) -> int:
        """@return the port where the probe's server listens"""
        answer = self.ask({"start": probe.key})
        if "missing" in answer:
            raise programs.Missing(f"{answer['missing']} on the server's side")
        if "failed" in answer:
            raise programs.Failed(answer["failed"])
        return answer["port"]

    def stop(self, how: str) -> str:
        """@return the last line that the server printed"""
        return self.ask({"stop": how})["stopped"]


class Engine:
    def __init__(self, options: dict, server: Server):
        self.options, self.server = options, server
        self.device, self.gid_index = options["device"], describe.gid_index(options["device"])
        self.found = results.Results(options["repeats"])
        self.number = 0  # of runs
        # us_per_request of each case of the timetable, in its last run at the highest rate
        self.highest: Dict[str, float] = {}

    def say(self, event: dict) -> None:
        self.found.take(event)
        print(json.dumps(event), flush=True)

    def run(self) -> None:
        self.say({"machine": {**describe.machine(self.device), "seed": self.options["seed"]}})
        chance = random.Random(self.options["seed"])
        pairs = goals.pairs(cases.probes(self.options["quick"], tuple(self.options["only"])))
        looks = results.looks(self.options["repeats"])
        for repeat in range(-1, looks[-1]):
            began = time.monotonic()
            for pair in chance.sample(pairs, len(pairs)):
                order = chance.sample(pair.probes, len(pair.probes))
                # the highest rate first: the others need it
                for probe in sorted(order, key=lambda probe: probe.pace > 0):
                    self.run_probe(probe, pair, repeat)
            took = time.monotonic() - began
            done = repeat + 1
            pairs = [pair for pair in pairs if not self.is_done(pair, done, looks)]
            if not pairs:
                return
            next_look = min(look for look in looks if look > done)
            print(
                (
                    f"lab: {done} of {next_look} repeats, {len(pairs)} pairs;"
                    f" {took * (next_look - done) / 60:.0f} minutes to go, or"
                    f" {took * (looks[-1] - done) / 60:.0f} if nothing is decided"),
                file=sys.stderr,
                flush=True)

    def is_done(self, pair: Pair, repeats: int, looks: List[int]) -> bool:
        if repeats == looks[-1] or (not pair.goals and repeats == WITHOUT_GOAL):
            return True
        return repeats in looks and all(
            ratio.state != "undecided" for ratio in self.found.ratios(pair.goals))

    def run_probe(self, probe: Probe, pair: Pair, repeat: int) -> None:
        if self.found.is_given_up(probe.key):
            return
        self.number += 1
        state, why, samples = self.measure(probe)
        if state:
            for case, parameter in probe.measures:
                self.say(
                    {
                        "state": state,
                        "group": probe.group,
                        "case": case,
                        "parameter": parameter,
                        "why": why,
                    })
        elif repeat >= 0:
            self.say(
                {
                    "number": self.number,
                    "pair": pair.name,
                    "group": probe.group,
                    "repeat": repeat,
                    "samples": samples,
                })

    def measure(self, probe: Probe) -> Tuple[str, str, List[Sample]]:
        """One run. @return state and why, if it came to nothing; and what was measured"""
        if probe.skip:
            return "skipped", probe.skip, []
        try:
            programs.resolve(
                Side(self.device, self.gid_index).command(probe.client), self.options["build"])
            port = self.server.start(probe) if probe.server else 0
        except programs.Missing as missing:
            return "skipped", f"{missing} is not installed", []
        except programs.Failed as failed:
            return "failed", str(failed), []
        how = "failed"
        try:
            if probe.pace and probe.case not in self.highest:
                raise programs.Failed("its highest rate is not known")
            every = round(probe.pace * self.highest[probe.case]) if probe.pace else 0
            side = Side(self.device, self.gid_index, self.options["host"], port, every)
            said = programs.run_client(probe, side, self.options["build"], self.options["limit"])
            samples = probe.parse(said, probe)
            how = "ended"
            if probe.key == ("timetable", probe.case, cases.HIGHEST):
                self.highest[probe.case] = next(
                    value for *_, metric, value in samples if metric == "us_per_request")
            return "", "", samples
        except (programs.Failed, cases.Unreadable) as failed:
            return "failed", str(failed), []
        finally:
            last = self.server.stop(how) if probe.server else ""
            if how == "failed" and last:
                print(
                    f"lab: {probe.case} {probe.parameter}: the server's last line: {last}",
                    file=sys.stderr,
                    flush=True,
                )


def main() -> None:
    process.prepare()
    options = json.loads(sys.argv[1])
    try:
        server = Server(options["host"], options["port"], options["token"])
    except OSError as error:
        sys.exit(f"lab: the agent at {options['host']}: {error}")
    try:
        Engine(options, server).run()
    finally:
        programs.kill_all()


if __name__ == "__main__":
    main()
