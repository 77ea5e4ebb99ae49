"""The largest that an example takes."""
import unittest

import needs_device
from lab import examples


class Large(unittest.TestCase):
    def test_a_gigabyte_in_fragments(self):
        outcome = examples.run(needs_device.PLACE, needs_device.BUILD, "write_with_imm", "pair",
                               ["--size", str(1 << 30), "--run", "16"], time_limit=600)
        self.assertFalse(outcome.failed, outcome.text())
        self.assertIn(f"received {1 << 30} bytes in {1 << 18} fragments, {1 << 14} messages, checksum right", outcome.text())


if __name__ == "__main__":
    needs_device.main()
