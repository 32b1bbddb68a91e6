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


def page(found: Mapping[str, Any]) -> str:
    """Return the page for what the command found."""
    sections = {"Claims": _claims(found)}
    if found["source"] == "sc20":
        sections |= {"Table I": _table_1(found), "Figure 7": _figure_7(found), "Table II": _table_2(found),
                     "Table III": _table_3(found)}  # fmt: skip
    else:
        sections["Times"] = rows_of(
            ((escape(name), escape(given), _milliseconds(seconds) if seconds else escape(f"{state}: {note}"))
             for name, given, state, seconds, note in found["times"]),
            ("strategy", "input", "ms"),
        )  # fmt: skip
    head = f"{found['source']} on {found['device']}"
    facts = f"{found['num_elements']:,} elements; {found['platform']}; clhist {found['clhist']}, {found['date']}"
    return document(head, facts, sections)


def _claims(found: Mapping[str, Any]) -> str:
    rows = (
        (
            escape(each.where),
            escape(each.claim),
            "" if each.found is None else f"{each.found:,.3g}",
            f'<span class="{"good" if each.holds else "bad"}">{VERDICTS[each.holds]}</span>'
            if each.holds is not None
            else VERDICTS[None],
            escape(each.note),
        )
        for each in found["claims"]
    )
    return rows_of(rows, ("where", "claim", "here", "", "of what"))


def _table_1(found: Mapping[str, Any]) -> str:
    rows = (
        (
            each.published.memory,
            f"{each.published.update}, RF {each.published.race_factor}",
            f"{each.published.num_bins:,}",
            f"{each.published.copies},{each.published.passes}",
            "{},{}".format(*each.computed) + ("" if each.is_equal else " <span class='bad'>differs</span>"),
            "{},{}".format(*each.here),
        )
        for each in found["model"]
    )
    return "<p>Copies and passes M,S: published, by the model for the same device, and for this one.</p>" + rows_of(
        rows, ("memory", "update", "bins", "published", "computed", "here")
    )


def _figure_7(found: Mapping[str, Any]) -> str:
    parts = [
        "<p>Time of the kernels over bins. The paper's Auto is CUB's time of its Table II by the published ratio.</p>"
    ]
    for update in UPDATES:
        for factor in RACE_FACTORS:
            lines: dict[str, list[tuple[float, float]]] = {}
            for point in found["points"]:
                if (point.update, point.race_factor) == (update, factor) and point.seconds is not None:
                    name = f"{point.choice}, {point.memory}" if point.memory else point.choice
                    lines.setdefault(name, []).append((point.num_bins, point.seconds))
            measured = {point.num_bins for point in found["points"]}
            lines["Auto of the paper, RTX 2080 Ti"] = [
                each for each in futhark_seconds(update, factor).items() if each[0] in measured
            ]
            chart = line_chart(lines, x_label="bins", y_label="time of the kernels")
            parts.append(f"<h3>{update}, RF {factor}</h3>{chart}")
    return "".join(parts)


def _table_2(found: Mapping[str, Any]) -> str:
    sorting = {point[:4]: point.seconds for point in found["points"] if point.choice == SORT}
    rows = []
    for point, ratio in futhark_ratios(found["points"]):
        by_sort = sorting.get(point[:4])
        rows.append(
            (
                f"{point.update}, RF {point.race_factor}",
                f"{point.num_bins:,}",
                _milliseconds(point.seconds),
                f"{by_sort / point.seconds:.1f}" if by_sort else "–",
                f"{ratio:.1f}",
            )
        )
    text = (
        f"<p>What {OURS} takes, and how many times as long: sorting by bin and adding up neighbours here, as CUB does "
        "for CAS and XCG; and Futhark on the paper's device with 50 million elements.</p>"
    )
    return text + rows_of(rows, ("", "bins", "ms", "sorting here", "Futhark there"))


def _table_3(found: Mapping[str, Any]) -> str:
    published = {each.name: each for each in TABLE_3}
    rows = (
        (
            escape(row.name),
            _milliseconds(published[row.name].other),
            _milliseconds(published[row.name].futhark),
            "–" if row.seconds is None else _milliseconds(row.seconds),
            f"<code>{escape(row.command)}</code>",
            escape(row.note),
        )
        for row in found["applications"]
    )
    text = "<p>Milliseconds, published of an RTX 2080 Ti. k-means and registration have inputs of their own.</p>"
    return text + rows_of(rows, ("", "compared with", "Futhark", "here", "command", "input"))


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1e3:,.3g}"
