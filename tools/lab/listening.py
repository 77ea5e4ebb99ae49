# SPDX-License-Identifier: MIT
"""The line by which every server of ours says that clients may come."""
import re

LISTENING = re.compile(r"listening on (?:TCP|rdma_cm) port (\d+)")
