# SPDX-License-Identifier: MIT
"""A wrong host, port, device or GID index, and too little memory to lock: errors that help."""
import subprocess
import unittest

import needs_device
from lab import examples

PLACE = needs_device.PLACE


def run(*argv):
    result = subprocess.run(
        PLACE.wrap(list(argv)), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, timeout=600)
    return result.returncode, result.stdout


class WrongChoices(unittest.TestCase):
    def fails(self, *argv, says):
        status, output = run(needs_device.program("send_recv"), *argv)
        self.assertEqual(status, 1, output)
        for text in says:
            self.assertIn(text, output)

    def test_device(self):
        self.fails("--device", "mlx5_9", says=["--device mlx5_9: the devices are", PLACE.device])

    def test_port(self):
        self.fails("--port", "2", says=["--port 2: " + PLACE.device + " has the ports 1 ("])

    def test_gid_index(self):
        self.fails("--gid-index", "77", says=["--gid-index 77: ", "GID indices 0 ("])

    def test_more_reads_at_a_time_than_the_device_has(self):
        for program in ("read_write", "rate"):
            outcome = examples.run(
                PLACE, needs_device.BUILD, program, "pair", ["--max-rd-atomic", "255"])
            self.assertEqual(outcome.status, {"server": 1, "client": 1}, outcome.text())
            self.assertIn("ibv_modify_qp(RTS): Invalid argument", outcome.text())

    def test_no_server_for_the_shared_client(self):
        status, output = run(
            needs_device.program("shared_client"), "--host", PLACE.address, "--cm-port", "1",
            "--timeout", "10")
        self.assertEqual((status, output.count("hint: ")), (1, 1), output)

    def test_no_sender_to_attach_to(self):
        status, output = run(needs_device.program("shared_client"), "--attach", "no.such.name")
        self.assertEqual(status, 1, output)
        self.assertIn("Caller::join(no.such.name): Connection refused", output)
        self.assertIn("#no-sender", output)
        self.assertNotIn("TCP", output)

    def test_unknown_host(self):
        self.fails(
            "--host", "no-such-host.invalid", says=["--host no-such-host.invalid", "#unknown-host"])

    def test_closed_port(self):
        self.fails(
            "--host", PLACE.address, "--tcp-port", "1", "--timeout", "1",
            says=[
                f"no server at {PLACE.address} TCP port 1 yet; trying for 1 s", "ECONNREFUSED",
                "#connection-refused"])

    @unittest.skipUnless(
        PLACE.address == "10.77.0.1", "only the lab's own network has an address that nobody has")
    def test_host_that_is_down(self):
        self.fails(
            "--host", "10.77.0.99", "--timeout", "1", says=["ETIMEDOUT", "#connection-timeout"])

    def test_nobody_comes(self):
        self.fails("--tcp-port", "0", "--wait", "1", says=["none came within 1 s", "#no-client"])

    def test_tcp_port_taken(self):
        server = subprocess.Popen(
            PLACE.wrap([needs_device.program("send_recv"), "--tcp-port", "0"]),
            stdout=subprocess.PIPE, text=True)
        port = next(line.split()[-1] for line in server.stdout if "listening" in line)
        try:
            self.fails(
                "--tcp-port", port, says=[f"listen on TCP port {port}: Address already in use"])
        finally:
            server.terminate()
            server.communicate()

    def test_too_little_memory_to_lock(self):
        """Root may lock what it likes, so this runs as nobody; the device's files are open to
        all."""
        status, output = run(
            *needs_device.AS_ANOTHER_USER, "sh", "-c", 'ulimit -l 0 && exec "$0"',
            needs_device.program("send_recv"))
        self.assertEqual(status, 1, output)
        self.assertIn("#memlock", output)

    def test_too_few_file_descriptors(self):
        """stdin, stdout, stderr and two for the open device leave none for the channel. With one
        more, there is none for the socket."""
        for descriptors, call in (5, "ibv_create_comp_channel"), (6, "listen on TCP port "):
            with self.subTest(call):
                status, output = run(
                    "sh", "-c", f'ulimit -n {descriptors} && exec "$0"',
                    needs_device.program("completions"))
                self.assertEqual(status, 1, output)
                self.assertIn(call, output)
                self.assertIn("#too-many-open-files", output)

    def test_wrong_option(self):
        status, output = run(needs_device.program("hello_device"), "--devise", "x")
        self.assertEqual((status, output.count("\n")), (2, 1), output)
        self.assertIn("did you mean --device?", output)


if __name__ == "__main__":
    needs_device.main()
