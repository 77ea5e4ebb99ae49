# SPDX-License-Identifier: MIT
"""The anchors that code-hosting sites give to headings, and which the links of the lessons are written for."""
import re


def slug(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", re.sub(r"[`*]", "", heading).lower()).strip().replace(" ", "-")
