# SPDX-License-Identifier: MIT
"""The pictures' one visual language, as a small library that writes SVG.

Colours have a fixed meaning: a server, a client, a NIC, memory, and everything else. Full arrows
are RDMA packets or what follows from them, dashed ones go over TCP. A picture follows the reader's
light or dark theme by itself.
"""
from __future__ import annotations

from html import escape

# role -> (line on light, fill on light, line on dark, fill on dark)
COLOURS = {
    "server": ("#1668a8", "#e3f0fa", "#6cb6f0", "#173247"),
    "client": ("#a8570f", "#fbeedd", "#f0a860", "#432c14"),
    "nic": ("#2c7a3d", "#e4f4e7", "#78cf8b", "#193a20"),
    "memory": ("#7a3fa0", "#f2e8f8", "#c795ea", "#37214a"),
    "plain": ("#57606a", "#f6f8fa", "#9aa4af", "#22272e"),
    "bad": ("#b3261e", "#fbe9e7", "#f28b82", "#4a1d1a"),
}


def _style() -> str:
    def rules(line: int, fill: int, text: str, faint: str, page: str) -> str:
        css = f"text{{fill:{text}}}.faint{{fill:{faint}}}.halo{{stroke:{page}}}"
        for role, values in COLOURS.items():
            css += (
                f".b-{role}{{stroke:{values[line]};fill:{values[fill]}}}"
                f".l-{role}{{stroke:{values[line]}}}.t-{role}{{fill:{values[line]}}}")
        return css

    return (
        "<style>text{font:14px system-ui,-apple-system,'Segoe UI','DejaVu Sans',sans-serif}"
        ".code{font-family:ui-monospace,'DejaVu Sans"
        " Mono',monospace;font-size:13px}.bold{font-weight:600}.small{font-size:12px}"
        ".halo{paint-order:stroke;stroke-width:4px;stroke-linejoin:round}"
        ".box{stroke-width:1.5}.line{fill:none;stroke-width:1.6}.dash{stroke-dasharray:5 4}"
        + rules(0, 1, "#1f2328", "#57606a", "#fff")
        + "@media(prefers-color-scheme:dark){"
        + rules(2, 3, "#e6edf3", "#9aa4af", "#0d1117")
        + "}</style>")


class Picture:
    """Coordinates are pixels at a width of 800, unless another is given; y grows downwards."""

    def __init__(self, height: int, title: str, description: str, width: int = 800):
        self.width, self.height, self.title, self.description = width, height, title, description
        self.parts: list[str] = []

    def box(self, x, y, width, height, role="plain", title="", lines=(), code=False) -> None:
        """A box with a bold title and lines of text below it."""
        self.parts.append(
            f'<rect class="box b-{role}" x="{x}" y="{y}" width="{width}" height="{height}" rx="6"/>'
        )
        if title:
            self.text(x + 10, y + 21, title, style="bold")
        for number, line in enumerate(lines):
            self.text(
                x + 10, y + (42 if title else 22) + 19 * number, line, style="code" if code else "")

    def text(self, x, y, text, style="", anchor="start", role="") -> None:
        classes = " ".join(filter(None, [style, f"t-{role}" if role else ""]))
        self.parts.append(
            f'<text x="{x}" y="{y}" text-anchor="{anchor}"'
            + (f' class="{classes}"' if classes else "")
            + f">{escape(text)}</text>")

    def line(self, x1, y1, x2, y2, role="plain", dashed=False) -> None:
        self.parts.append(
            f'<path class="line l-{role}{" dash" if dashed else ""}" d="M{x1} {y1}L{x2} {y2}"/>')

    def under(self, svg: str) -> None:
        """Puts an element below everything that has been drawn."""
        self.parts.insert(0, svg)

    def arrow(self, x1, y1, x2, y2, role="plain", dashed=False, label="", above=6) -> None:
        """A straight arrow; its label stands over its middle."""
        self.line(x1, y1, x2, y2, role, dashed)
        length = ((x2 - x1) ** 2 + (y2 - y1) ** 2) ** 0.5
        ux, uy = (x2 - x1) / length, (y2 - y1) / length
        left = (x2 - 9 * ux + 4.5 * uy, y2 - 9 * uy - 4.5 * ux)
        right = (x2 - 9 * ux - 4.5 * uy, y2 - 9 * uy + 4.5 * ux)
        points = " ".join(f"{x:.1f},{y:.1f}" for x, y in ((x2, y2), left, right))
        self.parts.append(f'<polygon class="t-{role}" points="{points}"/>')
        if label:
            self.text((x1 + x2) / 2, (y1 + y2) / 2 - above, label, style="halo", anchor="middle")

    def svg(self) -> str:
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}"'
            f' width="{self.width}" height="{self.height}" role="img" aria-labelledby="title'
            f' desc"><title id="title">{escape(self.title)}</title><desc'
            f' id="desc">{escape(self.description)}</desc>'
            + _style()
            + "\n"
            + "\n".join(self.parts)
            + "\n</svg>\n")
