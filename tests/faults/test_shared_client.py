# SPDX-License-Identifier: MIT
"""23_shared_client on one host."""
import unittest

import needs_device
import shared_client_cases
from shared_client_cases import Faults, Liars, Modes  # noqa: F401 (the cases)

shared_client_cases.use(needs_device.BUILD, needs_device.PLACE)

if __name__ == "__main__":
    unittest.main(verbosity=2)
