"""What faults/test_kernel_client.py does to a client in the middle of something, by the backports' kernel."""
import os

import kernel_client_cases
import labtest

os.environ["LAB_KERNEL"] = labtest.ENVIRONMENT["LAB_KERNEL"] = "bookworm-backports"
kernel_client_cases.need_module()
from kernel_client_cases import Midway  # noqa: E402, F401: unittest finds it here

if __name__ == "__main__":
    import unittest
    unittest.main(verbosity=2)
