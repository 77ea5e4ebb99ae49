# SPDX-License-Identifier: MIT
"""Serves a folder to a browser."""
import functools
import http.server
import threading


class SiteServer(http.server.ThreadingHTTPServer):
    """Serves until close(), in a thread of its own; `url` is its address."""

    def __init__(self, folder):
        super().__init__(("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder)))
        self.url = f"http://127.0.0.1:{self.server_port}"
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def close(self):
        self.shutdown()
        self.server_close()

    def handle_error(self, *_):
        """The browser may close a page before it has all of it."""


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass
