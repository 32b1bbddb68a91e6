"""Draw the results of devices beside this file, and write the table of claims: ``python docs/results/draw.py``.

Each ``*-sc20.json`` is what ``clhist reproduce sc20 --json`` wrote, its points as rows of `columns`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import matplotlib

from clhist.cli.reproduce.published import futhark_seconds

matplotlib.use("Agg")
from matplotlib import pyplot as plt

HERE = Path(__file__).parent
COLOURS = ("#4477aa", "#ee6677", "#228833", "#aa3377")
UPDATES = {"HDW": "HDW: int32 sums", "CAS": "CAS: saturating sums", "XCG": "XCG: argmax"}


def main() -> None:
    """Read all files, draw one picture and write one table."""
    files = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(HERE.glob("*-sc20.json"))]
    figure, grid = plt.subplots(2, 3, figsize=(11, 6.2), sharex=True, sharey=True, layout="constrained")
    for row, factor in zip(grid, (1, 63), strict=True):
        for axes, (update, title) in zip(row, UPDATES.items(), strict=True):
            for colour, found in zip(COLOURS, files, strict=False):
                for choice, style in (("clhist", "-"), ("Auto", ":")):
                    line = times(found, update, factor, choice)
                    axes.loglog(*zip(*line, strict=True), style, color=colour, label=f"{name_of(found)}: {choice}")
            published = futhark_seconds(update, factor)
            there = [seconds / 50e6 * 1e9 for seconds in published.values()]
            axes.loglog(list(published), there, "--", color="#888888", label="RTX 2080 Ti, published")
            axes.set_title(f"{title}, RF {factor}", fontsize="medium")
            axes.grid(alpha=0.3)
    for axes in grid[1]:
        axes.set_xlabel("bins")
    for axes in grid[:, 0]:
        axes.set_ylabel("ns for an element")
    figure.legend(*grid[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False)
    plt.rcParams["svg.hashsalt"] = "clhist"
    figure.savefig(HERE / "sc20.svg", metadata={"Date": None})
    (HERE / "claims.md").write_text(table(files), encoding="utf-8")


def name_of(found: dict[str, Any]) -> str:
    """Return a device's name for people."""
    return found.get("label", found["device"])


def times(found: dict[str, Any], update: str, factor: int, choice: str) -> list[tuple[int, float]]:
    """Return bins and nanoseconds for an element; of a choice in two memories the better."""
    best: dict[int, float] = {}
    for values in found["points"]:
        point = dict(zip(found["columns"], values, strict=True))
        if (point["update"], point["race_factor"], point["choice"]) == (update, factor, choice):
            bins, each = point["num_bins"], point["seconds"] / found["num_elements"] * 1e9
            best[bins] = min(best.get(bins, each), each)
    return sorted(best.items())


def table(files: list[dict[str, Any]]) -> str:
    """Return the claims, a column for each device."""
    lines = [f"| where | claim | {' | '.join(map(name_of, files))} |", "|---|---|" + "---|" * len(files)]
    for claims in zip(*(found["claims"] for found in files), strict=True):
        cells = [
            "–" if each["holds"] is None else f"{each['found']:,.3g}, {'holds' if each['holds'] else 'does not hold'}"
            for each in claims
        ]
        lines.append(f"| {claims[0]['where']} | {claims[0]['claim']} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
