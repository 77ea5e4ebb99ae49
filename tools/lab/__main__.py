# SPDX-License-Identifier: MIT
from lab.cli import main

main()
