# SPDX-License-Identifier: MIT
"""The server's side of the benchmark: starts the server of a probe when a client asks for it, and
ends it.

`python3 -m bench.serve OPTIONS`, where the server's device is: OPTIONS is a JSON object. It prints
one line of JSON that says where it is to be reached and with which token. The client names what it
wants by group, case and parameter, never by a command line: a thief of the token can run a
benchmark, and nothing else. It ends when its client has come and gone, or when its standard input
ends, which the process that started it holds open.
"""
from __future__ import annotations

import hmac
import json
import os
import secrets
import socket
import sys
import threading
from typing import Optional

from bench import cases, describe, programs
from lab import process

HELLO_LIMIT = 10  # seconds in which who has connected has to say who it is
BY_ITSELF = 5  # seconds in which a server has to end after its client


class Agent:
    def __init__(self, options: dict):
        self.options = options
        self.probes = {probe.key: probe for probe in cases.probes(options["quick"])}
        self.side = cases.Side(options["device"], describe.gid_index(options["device"]))
        self.token = secrets.token_hex(16)
        self.running: Optional[programs.Program] = None

    def run(self) -> None:
        listener = socket.create_server((self.options["address"], 0))
        threading.Thread(target=self.end_with_input, daemon=True).start()
        machine = describe.machine(self.options["device"]) if self.options["describe"] else None
        where = {
            "address": self.options["address"], "port": listener.getsockname()[1],
            "token": self.token}
        print(json.dumps({"agent": where, "machine": machine}), flush=True)
        listener.settimeout(self.options["wait"])
        try:
            while True:
                connection, _ = listener.accept()
                connection.settimeout(HELLO_LIMIT)
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
                lines = connection.makefile("rw", encoding="utf-8")
                if self.is_ours(lines):
                    connection.settimeout(None)
                    return self.serve(lines)
                lines.close()
                connection.close()
        except socket.timeout:
            print("lab: the client did not come", file=sys.stderr, flush=True)

    def end_with_input(self) -> None:
        while os.read(0, 4096):
            pass
        programs.kill_all()
        os._exit(1)

    def is_ours(self, lines) -> bool:
        """The first line has the token."""
        try:
            return hmac.compare_digest(json.loads(lines.readline(4096))["token"], self.token)
        except (ValueError, KeyError, TypeError, OSError):
            return False

    def serve(self, lines) -> None:
        """What the client asks for, until it is done or gone."""
        try:
            self.answer(lines, {"is_ours": True})
            while line := lines.readline():
                request = json.loads(line)
                if "start" in request:
                    self.answer(lines, self.start(tuple(request["start"])))
                elif "stop" in request:
                    self.answer(lines, self.stop(request["stop"]))
        except (OSError, ValueError) as error:
            print(f"lab: the client went away: {error}", file=sys.stderr, flush=True)
        finally:
            self.stop("failed")

    @staticmethod
    def answer(lines, what: dict) -> None:
        lines.write(json.dumps(what) + "\n")
        lines.flush()

    def start(self, key: tuple) -> dict:
        probe = self.probes.get(key)
        if probe is None:
            return {"failed": f"the server knows of no {'/'.join(map(str, key))}"}
        self.probe = probe
        try:
            self.running, port = programs.start_server(probe, self.side, self.options["build"])
        except programs.Missing as missing:
            return {"missing": str(missing)}
        except programs.Failed as failed:
            return {"failed": f"the server: {failed}"}
        return {"port": port}

    def stop(self, how: str) -> dict:
        """@param how "ended" if the client has ended well, else "failed" """
        running, self.running = self.running, None
        if running is None:
            return {"stopped": ""}
        if how != "ended":
            running.kill()
        elif not self.probe.ends or not running.wait(BY_ITSELF):
            running.terminate()
        return {"stopped": running.last_line()}


if __name__ == "__main__":
    process.prepare()
    try:
        Agent(json.loads(sys.argv[1])).run()
    finally:
        programs.kill_all()
