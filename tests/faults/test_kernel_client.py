# SPDX-License-Identifier: MIT
"""The module of lesson 31 and what can go wrong with it, by the kernel that ./lab boots."""
import kernel_client_cases

kernel_client_cases.need_module()
from kernel_client_cases import Midway, Never  # noqa: E402, F401: unittest finds them here

if __name__ == "__main__":
    import unittest

    unittest.main(verbosity=2)
