# SPDX-License-Identifier: MIT
"""Chromium, driven by chromedriver (https://www.w3.org/TR/webdriver2/)."""
import json
import socket
import subprocess
import tempfile
import time
import urllib.request

KEYS = {"Enter": "\ue007", "Escape": "\ue00c"}


class Driver:
    """Starts chromedriver, which starts a browser for each Browser."""

    def __init__(self):
        # It wants the same port for IPv4 and IPv6.
        with socket.create_server(("", 0), family=socket.AF_INET6, dualstack_ipv6=True) as free:
            port = free.getsockname()[1]
        self.process = subprocess.Popen(
            ["chromedriver", f"--port={port}"], stdout=subprocess.PIPE, text=True)
        said = ""
        while "started successfully" not in said:
            line = self.process.stdout.readline()
            if not line:
                raise AssertionError(f"chromedriver did not start:\n{said}")
            said += line
        self.address = f"http://127.0.0.1:{port}/session"

    def close(self):
        self.process.terminate()
        self.process.communicate()


class Browser:
    def __init__(self, driver):
        self.profile = tempfile.TemporaryDirectory()
        self.address = driver.address
        # By a pipe: a bare system has no /etc/hosts, and chromedriver asks it for "localhost".
        arguments = [
            "--headless", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu",
            "--disable-dev-shm-usage", f"--user-data-dir={self.profile.name}",
            "--window-size=1280,1000"]
        self.address += "/" + self.call(
            "", capabilities={
                "alwaysMatch": {
                    "goog:chromeOptions": {"args": arguments},
                    "goog:loggingPrefs": {"browser": "ALL"}}})["sessionId"]

    def close(self):
        self.call("", "DELETE")
        self.profile.cleanup()

    def call(self, path, method="POST", **body):
        request = urllib.request.Request(
            self.address + path, json.dumps(body).encode() if method == "POST" else None,
            {"Content-Type": "application/json"}, method=method)
        with urllib.request.urlopen(request) as answer:
            return json.load(answer)["value"]

    def open(self, address):
        self.call("/url", url=address)

    def devtools(self, command, **params):
        """A command of https://chromedevtools.github.io/devtools-protocol/."""
        self.call("/goog/cdp/execute", cmd=command, params=params)

    def run(self, script, *args):
        """What the body of a function returns that runs in the page."""
        return self.call("/execute/sync", script=script, args=list(args))

    def wait(self, script, *args, limit=120):
        """@return what `script` returns, once that is true. @raises AssertionError after `limit` s
        with the text of the box that was clicked"""
        end = time.monotonic() + limit
        while not (found := self.run(script, *args)):
            if time.monotonic() > end:
                raise AssertionError(
                    f"not within {limit} s: {script}\n"
                    + self.run("return window.box?.innerText ?? ''"))
            time.sleep(0.05)
        return found

    def type(self, text):
        """Presses the keys of `text` where the focus is."""
        actions = [
            {"type": kind, "value": key} for key in text for kind in ("keyDown", "keyUp")]
        self.call("/actions", actions=[{"type": "key", "id": "keyboard", "actions": actions}])

    def console(self):
        """The messages of the page's console since the last call."""
        return [entry["message"] for entry in self.call("/se/log", type="browser")]
