"""Pictures of a report as SVG text, without any library."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from math import ceil, floor, log10
from typing import Any

COLOURS = (
    "#4477aa",
    "#ee6677",
    "#228833",
    "#aa3377",
    "#66ccee",
    "#ccbb44",
    "#888888",
    "#bb5566",
    "#004488",
    "#117733",
    "#882255",
    "#dd9900",
)
_WIDTH, _HEIGHT, _LEFT, _RIGHT, _BOTTOM = 680, 340, 64, 40, 46


def line_chart(lines: Mapping[str, Sequence[tuple[float, float]]], *, x_label: str, y_label: str) -> str:
    """Return lines over logarithmic axes, with a legend below as HTML."""
    points = [point for line in lines.values() for point in line]
    if not points:
        return "<p>Nothing was measured.</p>"
    # Axes begin and end at powers of ten.
    x_range, y_range = ((floor(log10(min(v))), ceil(log10(max(v)))) for v in zip(*points, strict=True))

    def place(x: float, y: float) -> tuple[float, float]:
        (x0, x1), (y0, y1) = x_range, y_range
        # Points within one power of ten may have a range without extent.
        across = (log10(x) - x0) / max(1, x1 - x0) * (_WIDTH - _LEFT - _RIGHT)
        up = (log10(y) - y0) / max(1, y1 - y0) * (_HEIGHT - _BOTTOM - 16)
        return _LEFT + across, _HEIGHT - _BOTTOM - up

    title = f"<title>{escape(y_label)} over {escape(x_label)}</title>"
    parts = [f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" class="chart">{title}']
    for power in range(x_range[0], x_range[1] + 1):
        x, bottom = place(10.0**power, 10.0 ** y_range[0])
        parts.append(f'<path class="grid" d="M{x:.1f} 16V{bottom:.1f}"/>')
        parts.append(f'<text x="{x:.1f}" y="{bottom + 18:.1f}" text-anchor="middle">{_power(power)}</text>')
    for power in range(y_range[0], y_range[1] + 1):
        left, y = place(10.0 ** x_range[0], 10.0**power)
        parts.append(f'<path class="grid" d="M{left:.1f} {y:.1f}H{_WIDTH - _RIGHT}"/>')
        parts.append(f'<text x="{left - 8:.1f}" y="{y + 4:.1f}" text-anchor="end">{_seconds(power)}</text>')
    parts.append(f'<text x="{(_WIDTH + _LEFT) / 2}" y="{_HEIGHT - 6}" text-anchor="middle">{escape(x_label)}</text>')
    for number, (label, line) in enumerate(lines.items()):
        colour = COLOURS[number % len(COLOURS)]
        placed = [place(*point) for point in sorted(line)]
        path = "L".join(f"{x:.1f} {y:.1f}" for x, y in placed)
        parts.append(f'<path d="M{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        for (x, y), (bins, seconds) in zip(placed, sorted(line), strict=True):
            tip = f"{escape(label)}: {bins:,} bins, {seconds * 1e3:,.4g} ms"
            parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{colour}"><title>{tip}</title></circle>')
    return "".join([*parts, "</svg>", legend({label: COLOURS[n % len(COLOURS)] for n, label in enumerate(lines)})])


def plan_map(plans: Sequence[Mapping[str, Any]], colours: Mapping[str, str]) -> str:
    """Return a map of plans: race factors upward, bins to the right, copies and passes in the cells."""
    bins = sorted({plan["num_bins"] for plan in plans})
    factors = sorted({plan["race_factor"] for plan in plans}, reverse=True)
    rows = []
    for factor in factors:
        cells = [f"<th>{factor}</th>"]
        for number in bins:
            plan = next((p for p in plans if (p["num_bins"], p["race_factor"]) == (number, factor)), None)
            if plan is None:
                cells.append("<td></td>")
                continue
            tip = ", ".join(f"{key} {plan[key]}" for key in ("strategy", "update", "memory", "copies", "passes"))
            shown = f"M {plan['copies']:,}" + (f"<br>S {plan['passes']}" if plan["passes"] > 1 else "")
            style = f"background:{colours[kind_of(plan)]};color:white"
            cells.append(f'<td style="{style}" title="{tip}">{shown}</td>')
        rows.append(f"<tr>{''.join(cells)}</tr>")
    head = "".join(f"<th>{_short(number)}</th>" for number in bins)
    return f'<div class="wide"><table class="map">{"".join(rows)}<tr><th>RF / H</th>{head}</tr></table></div>'


def kind_of(plan: Mapping[str, Any]) -> str:
    """Return the kind by which a cell of the map is coloured."""
    return f"{plan['strategy']}, {plan['update']}"


def legend(colours: Mapping[str, str]) -> str:
    """Return the names beside their colours."""
    entries = (f'<li><span style="background:{c}"></span>{escape(label)}</li>' for label, c in colours.items())
    return f'<ul class="legend">{"".join(entries)}</ul>'


def _power(power: int) -> str:
    return f"{10**power:,}" if 0 <= power < 7 else f"10^{power}"


def _seconds(power: int) -> str:
    scale, unit = next(((s, u) for s, u in ((0, "s"), (-3, "ms"), (-6, "µs")) if power >= s), (-9, "ns"))
    return f"{10 ** (power - scale)} {unit}"


def _short(number: int) -> str:
    for unit, size in (("M", 2**20), ("K", 2**10)):
        if number >= size:
            return f"{number // size}{unit}"
    return str(number)
