# SPDX-License-Identifier: MIT
"""02_send_recv talks to the stock ibv_rc_pingpong, as its server and as its client."""
import random
import subprocess
import unittest

import needs_device

PLACE = needs_device.PLACE


def gid_index() -> str:
    """The index that send_recv chooses; ibv_rc_pingpong has to be told."""
    output = subprocess.run(
        PLACE.wrap([needs_device.program("hello_device"), "--device", PLACE.device]),
        capture_output=True, text=True, check=True).stdout
    return output.split("examples use GID index ")[1].split()[0]


def start(*argv):
    # Through stdbuf, since the stock tool keeps what it prints into a pipe until it ends.
    return subprocess.Popen(
        PLACE.wrap(["stdbuf", "-oL", *argv]), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True)


class RcPingpong(unittest.TestCase):
    def setUp(self):
        self.pingpong = [
            "ibv_rc_pingpong", "-d", PLACE.device, "-g", gid_index(), "-n", "1", "-s", "64"]

    def finish(self, process):
        output, _ = process.communicate(timeout=600)
        self.assertEqual(process.returncode, 0, output)
        return output

    def test_as_its_server(self):
        server = start(needs_device.program("send_recv"), "--tcp-port", "0")
        port = next(line.split()[-1] for line in server.stdout if "listening" in line)
        client = start(*self.pingpong, "-p", port, PLACE.address)
        self.assertIn("1 iters in", self.finish(client))
        output = self.finish(server)
        self.assertIn('received "{', output)  # what ibv_rc_pingpong fills its buffer with
        self.assertIn("sent", output)

    def test_as_its_client(self):
        port = str(random.randrange(20000, 30000))  # it cannot choose a free one by itself
        server = start(*self.pingpong, "-p", port)
        client = start(
            needs_device.program("send_recv"), "--host", PLACE.address, "--tcp-port", port,
            "--stock-peer")
        output = self.finish(client)
        self.assertIn('sent "hello from the client"', output)
        self.assertIn("received", output)
        self.assertIn("1 iters in", self.finish(server))


if __name__ == "__main__":
    needs_device.main()
