# SPDX-License-Identifier: MIT
"""Plots in the pictures' one visual language: lines on logarithmic axes, and groups of bars.

In a plot a colour has no meaning: it tells lines apart, and a program and the one that it is
compared with have the same. Full lines and markers are this project's programs, dashed lines and
pale markers are the others'. A thin bar has the middle half of the runs. A row that is not valid
has no point; `missing()` names it and says why.
"""
from __future__ import annotations

import math
from dataclasses import dataclass

from bench.measured import Row, figure, is_peer, name_of
from drawing.picture import Picture
from lab.wire.timeline_svg import wrapped

LEFT, RIGHT = 80, 600  # of the plotted area; the names of the lines stand to its right
NAMES = 622
STEP = 16  # between two lines of small text
# Around 0, 0. A pale one is larger, so that it can be seen behind a full one.
MARKERS = {
    "circle": '<circle r="3.2"/>',
    "square": '<rect x="-3" y="-3" width="6" height="6"/>',
    "triangle": '<path d="M0 -4.4l4.2 7.4h-8.4z"/>',
    "diamond": '<path d="M0 -4.4l4.4 4.4l-4.4 4.4l-4.4 -4.4z"/>',
}


@dataclass
class Line:
    """One case: `points` by their place on the horizontal axis, valid ones only."""

    case: str
    role: str
    marker: str
    points: dict[float, Row]

    @property
    def name(self) -> str:
        return name_of(self.case)


def lines_of(rows: list[Row], cases, place=lambda row: float(row.parameter)) -> list[Line]:
    """Of those cases, each (name, colour, marker), which have something valid to show."""
    found = [
        Line(
            name, role, marker,
            {place(row): row for row in rows if row.case == name and row.is_ok})
        for name, role, marker in cases]
    return [line for line in found if line.points]


def missing(rows: list[Row], cases, words=str) -> list[str]:
    """One line for each case, state and reason: what has no point."""
    found: dict[tuple[str, str, str], list[str]] = {}
    for row in rows:
        if not row.is_ok and row.case in cases:
            found.setdefault((row.case, row.state, row.why), []).append(words(row.parameter))
    notes = []
    for (case, state, why), places in found.items():
        everywhere = len(places) == len([row for row in rows if row.case == case])
        notes.append(
            f"Not shown: {name_of(case)}"
            + ("" if everywhere else f" at {', '.join(places)}")
            + f": {state}"
            + (f" ({why})" if why else ""))
    return notes


def in_words(line: Line, words=str) -> str:
    """A line for those who cannot see it: its ends."""
    points = [line.points[x] for x in sorted(line.points)]
    ends = [points[0]] if len(points) == 1 else [points[0], points[-1]]
    return f"{line.name}: " + " to ".join(
        f"{figure(row.median)} at {words(row.parameter)}" for row in ends)


def ticks(low: float, high: float) -> list[float]:
    """1, 2 and 5 of each decade; of many decades only 1."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    steps = (1,) if math.log10(high / low) > 3.3 else (1, 2, 5)
    return [
        step * 10.0**decade
        for decade in decades
        for step in steps
        if low <= step * 10.0**decade <= high
    ]


def apart(wanted: list[float], top: float, bottom: float) -> list[float]:
    """Places for names, in the order of `wanted`, a line from each other and as near as that
    allows."""
    order = sorted(range(len(wanted)), key=lambda index: wanted[index])
    places = [0.0] * len(wanted)
    # Names that touch form a block, which stands where its members want to be on average.
    blocks: list[tuple[list[int], float]] = []
    for index in order:
        members, start = [index], wanted[index]
        while True:
            start = min(max(start, top), max(top, bottom - STEP * (len(members) - 1)))
            if not blocks or blocks[-1][1] + STEP * len(blocks[-1][0]) <= start:
                break
            members = blocks.pop()[0] + members
            start = sum(
                wanted[member] - STEP * place for place, member in enumerate(members)
            ) / len(members)
        blocks.append((members, start))
    for members, start in blocks:
        for place, member in enumerate(members):
            places[member] = start + STEP * place
    return places


def marker(p: Picture, shape: str, x: float, y: float, role: str, pale: bool) -> None:
    size = " scale(1.5)" if pale else ""
    p.parts.append(
        f'<g class="{"b" if pale else "t"}-{role}"'
        f' transform="translate({x:.1f} {y:.1f}){size}">{MARKERS[shape]}</g>')


def grid(p: Picture, x1: float, y1: float, x2: float, y2: float) -> None:
    p.parts.append(f'<path class="l-plain" opacity=".3" d="M{x1:.1f} {y1:.1f}L{x2:.1f} {y2:.1f}"/>')


def panel(
    p: Picture, top: float, height: float, title: str, across: dict[float, str], below: str,
    lines: list[Line]
) -> float:
    """Lines on two logarithmic axes. `across`: what stands at which place of the horizontal axis,
    `below`: what it is. @return where the next may begin"""
    p.text(10, top + 14, title, style="bold")
    top, bottom = top + 28, top + 28 + height
    if not lines:
        p.text(LEFT, top + 20, "nothing valid was measured", style="small faint")
        return top + 40
    values = [
        value
        for line in lines
        for row in line.points.values()
        for value in (row.median, row.low, row.high)
        if value
    ]
    low, high = min(values) / 1.15, max(values) * 1.15
    # two ticks at least, and noise does not fill the plot
    wider = max(1.0, (5 * low / high) ** 0.5)
    low, high = low / wider, high * wider
    first, last = math.log(min(across)), math.log(max(across))

    def x_of(place: float) -> float:
        share = (math.log(place) - first) / (last - first) if last > first else 0.5
        return LEFT + 20 + (RIGHT - LEFT - 40) * share

    def y_of(value: float) -> float:
        return bottom - height * math.log(value / low) / math.log(high / low)

    for tick in ticks(low, high):
        grid(p, LEFT, y_of(tick), RIGHT, y_of(tick))
        p.text(
            LEFT - 8, round(y_of(tick) + 4, 1), f"{tick:,.10g}", style="small faint", anchor="end")
    for place, words in across.items():
        grid(p, x_of(place), top, x_of(place), bottom)
        p.text(round(x_of(place), 1), bottom + 18, words, style="small faint", anchor="middle")
    p.text(NAMES, bottom + 18, below, style="small faint")

    order = sorted(across)
    ends = [y_of(line.points[max(line.points)].median) for line in lines]
    names = apart(ends, top + 4, bottom - 4)
    # What is compared with goes below.
    for line, end, name_y in sorted(
        zip(lines, ends, names), key=lambda line: not is_peer(line[0].case)
    ):
        x, pale = x_of(max(line.points)), is_peer(line.case)
        p.parts.append(
            f'<path class="l-{line.role}" fill="none" opacity=".5" stroke-dasharray="1 3" '
            f'd="M{x + 6:.1f} {end:.1f}L{max(x + 6, RIGHT - 8):.1f} {end:.1f}'
            f'L{NAMES - 4} {name_y:.1f}"/>')
        p.text(NAMES, round(name_y + 4, 1), line.name, style="small", role=line.role)
        path, before = "", None
        for place in sorted(line.points):
            # No line over a place where there is no point.
            joined = before is not None and order.index(place) == order.index(before) + 1
            path += (
                f"{'L' if joined else 'M'}{x_of(place):.1f} {y_of(line.points[place].median):.1f}")
            before = place
        p.parts.append(f'<path class="line{" dash" if pale else ""} l-{line.role}" d="{path}"/>')
        for place, row in line.points.items():
            if row.low and row.high:
                p.parts.append(
                    f'<path class="l-{line.role}" d="M{x_of(place):.1f} {y_of(row.low):.1f}'
                    f'V{y_of(row.high):.1f}"/>')
            marker(p, line.marker, x_of(place), y_of(row.median), line.role, pale)
    return bottom + 36


def bars(
    p: Picture, left: float, top: float, width: float, title: str, rows: list[Row], cases,
    places: dict[str, str]
) -> float:
    """Lying bars on a scale of their own that begins with 0: a group for each of `places`,
    parameter -> words. @return where the next may begin"""
    p.text(left, top + 14, title, style="bold")
    by_place = {(row.parameter, row.case): row for row in rows}
    longest = max((row.high or row.median for row in rows if row.is_ok), default=1.0)
    zero = left + 158
    room = left + width - 58 - zero  # a value stands behind each bar
    y = top + 22
    for parameter, words in places.items():
        p.text(left, y + 17, words, style="small faint")
        y += 24
        start = y
        for case, role, _ in cases:
            row = by_place.get((parameter, case))
            if row is None:
                continue
            p.text(zero - 8, y + 13, name_of(case), style="small", anchor="end", role=role)
            if row.is_ok:
                end = zero + room * row.median / longest
                pale = ' stroke-dasharray="5 4"' if is_peer(case) else ""
                p.parts.append(
                    f'<rect class="b-{role}"{pale} x="{zero:.1f}" y="{y + 2:.1f}"'
                    f' width="{end - zero:.1f}" height="14"/>')
                behind = end
                if row.low is not None and row.high is not None:
                    behind = zero + room * row.high / longest
                    ahead = zero + room * row.low / longest
                    p.parts.append(
                        f'<path class="l-{role}" d="M{ahead:.1f} {y + 9:.1f}H{behind:.1f}"/>')
                p.text(round(behind + 6, 1), y + 13, figure(row.median), style="small")
            else:
                p.text(zero + 6, y + 13, row.state, style="small faint")
            y += 18
        p.line(zero, start, zero, y)
        y += 4
    return y + 12


def footer(p: Picture, top: float, notes: list[str]) -> None:
    """Notes below the picture, which ends with them."""
    y = top
    for note in notes:
        for line in wrapped(note, p.width - 60):
            p.text(10, y + 12, line, style="small faint")
            y += STEP
    p.height = round(y + 10)


def key(what: str = "lines") -> str:
    return (
        f"Full {what}: this project's programs; dashed ones: what they are compared with. "
        "A thin bar has the middle half of the runs.")
