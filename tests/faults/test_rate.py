# SPDX-License-Identifier: MIT
"""28_measure's rate: a server that dies while its client waits for credits."""
import subprocess
import unittest

import needs_device

# The stopped server's device acknowledges what its receives can take, and then the client waits for
# credits. So no send of the client's can fail when the server dies.
SCRIPT = """
log=$(mktemp)
"$0" "$@" --tcp-port 0 >"$log" & server=$!
until port=$(sed -n 's/listening on TCP port //p' "$log") && [ "$port" ]; do sleep 0.05; done
"$0" "$@" --host "$ADDRESS" --tcp-port "$port" & client=$!
# Until the client has had so many ticks of the CPU. It polls once it is connected, and before
# that it sleeps.
has_run() { until [ "$(cut -d' ' -f14 "/proc/$client/stat")" -ge "$1" ]; do sleep 0.05; done; }
has_run 100
kill -STOP $server
has_run 130 # it has used all credits
kill -KILL $server
wait $client
echo "the client ended with status $?"
rm "$log"
"""


class Rate(unittest.TestCase):
    def test_server_that_dies_owes_credits(self):
        place = needs_device.PLACE
        program = [
            needs_device.program("rate"), "--operation", "write-imm", "--messages", "100000000"]
        run = subprocess.run(
            place.wrap(["env", f"ADDRESS={place.address}", "sh", "-c", SCRIPT, *program]),
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120)
        self.assertIn("the client ended with status 1", run.stdout, run.stderr)
        self.assertIn("error: the server: it has ended", run.stdout + run.stderr)


if __name__ == "__main__":
    needs_device.main()
