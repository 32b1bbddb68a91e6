"""The page of `clhist reproduce`: tables and pictures of a source's numbers beside those of this device."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

from clhist.cli.paper_table import UPDATES
from clhist.cli.report.charts import line_chart
from clhist.cli.report.page import document, rows_of
from clhist.cli.reproduce.claims import futhark_ratios
from clhist.cli.reproduce.published import RACE_FACTORS, TABLE_3, futhark_seconds
from clhist.cli.reproduce.sc20 import OURS, SORT

VERDICTS = {None: "not measured", True: "holds", False: "does not hold"}


def page(results: Mapping[str, Any]) -> str:
    """Return the page for what the command found."""
    sections = {"Claims": _claims(results)}
    if results["source"] == "sc20":
        sections |= {"Table I": _table_1(results), "Figure 7": _figure_7(results), "Table II": _table_2(results),
                     "Table III": _table_3(results)}  # fmt: skip
    else:
        sections["Times"] = rows_of(
            ((escape(name), escape(data_name), _milliseconds(seconds) if seconds else escape(f"{state}: {note}"))
             for name, data_name, state, seconds, note in results["times"]),
            ("strategy", "input", "ms"),
        )  # fmt: skip
    head = f"{results['source']} on {results['device']}"
    facts = (
        f"{results['num_elements']:,} elements; {results['platform']}; clhist {results['clhist']}, {results['date']}"
    )
    return document(head, facts, sections)


def _claims(results: Mapping[str, Any]) -> str:
    rows = (
        (
            escape(verdict.where),
            escape(verdict.claim),
            "" if verdict.found is None else f"{verdict.found:,.3g}",
            f'<span class="{"good" if verdict.holds else "bad"}">{VERDICTS[verdict.holds]}</span>'
            if verdict.holds is not None
            else VERDICTS[None],
            escape(verdict.note),
        )
        for verdict in results["claims"]
    )
    return rows_of(rows, ("where", "claim", "here", "", "of what"))


def _table_1(results: Mapping[str, Any]) -> str:
    rows = (
        (
            entry.published.memory,
            f"{entry.published.update}, RF {entry.published.race_factor}",
            f"{entry.published.num_bins:,}",
            f"{entry.published.copies},{entry.published.passes}",
            "{},{}".format(*entry.computed) + ("" if entry.is_equal else " <span class='bad'>differs</span>"),
            "{},{}".format(*entry.here),
        )
        for entry in results["model"]
    )
    return "<p>Copies and passes M,S: published, by the model for the same device, and for this one.</p>" + rows_of(
        rows, ("memory", "update", "bins", "published", "computed", "here")
    )


def _figure_7(results: Mapping[str, Any]) -> str:
    parts = [
        "<p>Time of the kernels over bins. The paper's Auto is CUB's time of its Table II by the published ratio.</p>"
    ]
    for update in UPDATES:
        for factor in RACE_FACTORS:
            lines: dict[str, list[tuple[float, float]]] = {}
            for point in results["points"]:
                if (point.update, point.race_factor) == (update, factor) and point.seconds is not None:
                    name = f"{point.choice}, {point.memory}" if point.memory else point.choice
                    lines.setdefault(name, []).append((point.num_bins, point.seconds))
            # The paper's line has only numbers of bins that were measured here.
            measured = {point.num_bins for point in results["points"]}
            lines["Auto of the paper, RTX 2080 Ti"] = [
                pair for pair in futhark_seconds(update, factor).items() if pair[0] in measured
            ]
            chart = line_chart(lines, x_label="bins", y_label="time of the kernels")
            parts.append(f"<h3>{update}, RF {factor}</h3>{chart}")
    return "".join(parts)


def _table_2(results: Mapping[str, Any]) -> str:
    sorting = {point[:4]: point.seconds for point in results["points"] if point.choice == SORT}
    rows = []
    for point, ratio in futhark_ratios(results["points"]):
        by_sort = sorting.get(point[:4])
        rows.append(
            (
                f"{point.update}, RF {point.race_factor}",
                f"{point.num_bins:,}",
                _milliseconds(point.seconds),
                f"{by_sort / point.seconds:.1f}" if by_sort and point.seconds else "–",
                f"{ratio:.1f}",
            )
        )
    text = (
        f"<p>What {OURS} takes, and how many times as long: sorting by bin and adding up neighbours here, as CUB does "
        "for CAS and XCG; and Futhark on the paper's device with 50 million elements.</p>"
    )
    return text + rows_of(rows, ("", "bins", "ms", "sorting here", "Futhark there"))


def _table_3(results: Mapping[str, Any]) -> str:
    published = {application.name: application for application in TABLE_3}
    rows = (
        (
            escape(row.name),
            _milliseconds(published[row.name].other),
            _milliseconds(published[row.name].futhark),
            "–" if row.seconds is None else _milliseconds(row.seconds),
            f"<code>{escape(row.command)}</code>",
            escape(row.note),
        )
        for row in results["applications"]
    )
    text = "<p>Milliseconds, published of an RTX 2080 Ti. k-means and registration have inputs of their own.</p>"
    return text + rows_of(rows, ("", "compared with", "Futhark", "here", "command", "input"))


def _milliseconds(seconds: float | None) -> str:
    return "–" if seconds is None else f"{seconds * 1e3:,.3g}"
