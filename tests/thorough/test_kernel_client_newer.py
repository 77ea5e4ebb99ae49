# SPDX-License-Identifier: MIT
"""What faults/test_kernel_client.py does to a client in the middle of something, by a newer kernel
than Debian 12's: the backports', or that of the distribution itself."""
import kernel_client_cases
import labtest

labtest.choose_newer_kernel()
kernel_client_cases.need_module()
from kernel_client_cases import Midway  # noqa: E402, F401: unittest finds it here

if __name__ == "__main__":
    import unittest

    unittest.main(verbosity=2)
