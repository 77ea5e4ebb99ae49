# SPDX-License-Identifier: MIT
"""Where the device is: the two programs of `./lab new --from 23_shared_client`, and a second
client, which joins the first one.

joining.py FOLDER ADDRESS: where the programs are, and the device's address. Prints what the clients
print, and how all three ended."""
import signal
import subprocess
import sys

FOLDER, ADDRESS = sys.argv[1:]
running = []


def start(*argv):
    running.append(
        subprocess.Popen(
            [f"{FOLDER}/{argv[0]}", *argv[1:]], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            text=True))
    return running[-1]


def main():
    server = start("server", "--cm-port", "0")
    port = server.stdout.readline().split()[-1]
    client = start("client", "--host", ADDRESS, "--cm-port", port)
    for line in client.stdout:
        print("client:", line, end="")
        if "--join" in line:
            break
    joined = start("client", "--join", "numbers")
    for line in joined.stdout:
        print("joined:", line, end="")
    joined.wait()
    client.communicate("\n")
    server.send_signal(signal.SIGTERM)
    server.communicate()
    print("ended:", server.returncode, client.returncode, joined.returncode)


signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
try:
    main()
finally:
    for process in running:
        process.kill()
