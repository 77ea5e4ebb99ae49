"""The client's side of the benchmark: runs the probes by turns and says what they measured.

`python3 -m bench.engine OPTIONS`, where the client's device is: OPTIONS is a JSON object. What it finds it prints as lines
of JSON, or sends to the agent, if the options say "report": then the agent's starter gets them.
All arms of a round are run one after the other, and that as often as there are repeats: what disturbs the machine for a
while disturbs all of them. The first turn is a warm-up and not counted.
"""
from __future__ import annotations

import json
import socket
import sys
import time
from typing import Callable, List, Tuple

from bench import arms, describe, programs
from bench.arms import Probe, Sample, Side
from lab import process

NO_AGENT = 75  # exit status: nobody is there, or not who we look for
TURN_LIMIT = 24 * 3600  # seconds until it is our turn


class Server:
    """The agent on the server's side, which starts and ends servers."""

    def __init__(self, address: str, port: int, token: str, client: int):
        self.connection = socket.create_connection((address, port), timeout=30)
        self.connection.settimeout(TURN_LIMIT)
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self.lines = self.connection.makefile("rw", encoding="utf-8")
        self.ask({"token": token, "client": client})

    def ask(self, what: dict) -> dict:
        self.tell(what)
        line = self.lines.readline()
        if not line:
            raise ConnectionError("the server's side has ended")
        return json.loads(line)

    def tell(self, what: dict) -> None:
        self.lines.write(json.dumps(what) + "\n")
        self.lines.flush()

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
    def __init__(self, options: dict, server: Server, say: Callable[[dict], None]):
        self.options, self.server, self.say = options, server, say
        self.device, self.gid_index = options["device"], describe.gid_index(options["device"])

    def run(self) -> None:
        self.say({"machine": describe.machine(self.device)})
        rounds = arms.rounds(self.options["quick"], tuple(self.options["only"]))
        began = time.monotonic()
        for number, round_ in enumerate(rounds, 1):
            self.run_round(round_)
            print(f"lab: {number} of {len(rounds)} rounds, {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)

    def run_round(self, round_: List[Probe]) -> None:
        out = set()
        for repeat in range(-1, self.options["repeats"]):
            for probe in round_:
                if probe.key in out:
                    continue
                state, why, samples = self.measure(probe)
                if state:
                    out.add(probe.key)  # whatever hangs would do so each time, and take its whole time limit
                    for arm, parameter in probe.measures:
                        self.say({"state": state, "group": probe.group, "arm": arm, "parameter": parameter, "why": why})
                elif repeat >= 0:
                    self.say({"group": probe.group, "repeat": repeat, "samples": samples})

    def measure(self, probe: Probe) -> Tuple[str, str, List[Sample]]:
        """One run. @return state and why, if it came to nothing; and what was measured"""
        if probe.skip:
            return "skipped", probe.skip, []
        try:
            programs.resolve(Side(self.device, self.gid_index).command(probe.client), self.options["build"])
            port = self.server.start(probe)
        except programs.Missing as missing:
            return "skipped", f"{missing} is not installed", []
        except programs.Failed as failed:
            return "failed", str(failed), []
        how = "failed"
        try:
            said = programs.run_client(probe, Side(self.device, self.gid_index, self.options["host"], port), self.options["build"],
                                       self.options["limit"])
            samples = probe.parse(said, probe)
            how = "ended"
            return "", "", samples
        except (programs.Failed, arms.Unreadable) as failed:
            why = str(failed)
            return "failed", why, []
        finally:
            last = self.server.stop(how)
            if how == "failed" and last:
                print(f"lab: {probe.arm} {probe.parameter}: the server's last line: {last}", file=sys.stderr, flush=True)


def main() -> int:
    process.prepare()
    options = json.loads(sys.argv[1])
    try:
        server = Server(options["host"], options["port"], options["token"], options["client"])
    except OSError as error:
        print(f"lab: the agent at {options['host']}: {error}", file=sys.stderr)
        return NO_AGENT

    def say(event: dict) -> None:
        if options["report"]:
            server.tell({"event": event})
        else:
            print(json.dumps(event), flush=True)

    try:
        Engine(options, server, say).run()
        server.tell({"done": True})
    finally:
        programs.kill_all()
    return 0


if __name__ == "__main__":
    sys.exit(main())
