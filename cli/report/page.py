"""The page of `clhist report`: HTML that refers to nothing outside itself."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from clhist._core.devices.profile_files import PARAMETERS
from clhist.cli.report.charts import COLOURS, kind_of, legend, line_chart, plan_map
from clhist.cli.tables import bytes_text

_STYLE = """
:root { color-scheme: light dark; --line: #8884; --soft: #8881; }
* { box-sizing: border-box; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 0 auto; padding: 1rem; }
body { overflow-wrap: break-word; }
h1 { margin-bottom: 0; } h2 { margin-top: 2.2rem; border-bottom: 1px solid var(--line); }
nav a { margin-right: 1rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: .9rem; } td, th { padding: .25rem .6rem; text-align: left; }
td, th { border-bottom: 1px solid var(--line); vertical-align: top; }
.map td { text-align: center; border: 1px solid var(--line); font-size: .75rem; min-width: 3.4rem; }
.chart { width: 100%; height: auto; max-width: 680px; } .chart text { font-size: 12px; fill: currentColor; }
.grid { stroke: var(--line); } .bad { background: #c33; color: white; } .good { color: #2a8a3a; font-weight: 600; }
.legend { list-style: none; padding: 0; display: flex; flex-wrap: wrap; gap: .2rem 1.2rem; font-size: .9rem; }
.legend span { display: inline-block; width: .9rem; height: .9rem; margin-right: .4rem; border-radius: 2px; }
"""
_SECTIONS = {"device": "Device", "profile": "Profile", "selftest": "Self-test", "speed": "Speed", "plans": "Plans"}


def page(findings: Mapping[str, Any]) -> str:
    """Return the page for what `clhist.cli.report.findings` found, by the names of the steps."""
    device = findings["device"]
    bodies = {
        "device": _device(device),
        "profile": _profile(device),
        "selftest": _checks(findings["self-test"]),
        "speed": "".join(_times(times) for key, times in findings.items() if key.startswith("times of ")),
        "plans": _plans(findings["plans"]),
    }
    return document(
        f"clhist on {device['name']}", device["platform_version"], {_SECTIONS[k]: v for k, v in bodies.items()}
    )


def document(title: str, facts: str, sections: Mapping[str, str]) -> str:
    """Return a page of sections: HTML by their titles."""
    names = {heading: heading.lower().replace(" ", "-") for heading in sections}
    links = "".join(f'<a href="#{name}">{heading}</a>' for heading, name in names.items())
    bodies = "".join(f'<h2 id="{names[heading]}">{heading}</h2>{body}' for heading, body in sections.items())
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head><body>"
        f"<h1>{escape(title)}</h1><p>{escape(facts)}</p><nav>{links}</nav>{bodies}"
        "</body></html>\n"
    )


def rows_of(rows: Iterable[Sequence[str]], head: Sequence[str] = ()) -> str:
    """Return rows of HTML cells as a table that scrolls where it is too wide."""
    top = f"<tr>{''.join(f'<th>{cell}</th>' for cell in head)}</tr>" if head else ""
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    return f'<div class="wide"><table>{top}{body}</table></div>'


def _device(device: Mapping[str, Any]) -> str:
    rows = [
        ("platform", device["platform"]),
        ("driver", device["driver_version"]),
        ("OpenCL", device["version"]),
        ("kind", f"{device['kind'].upper()}, {device['compute_units']} compute units"),
        ("global memory", bytes_text(device["global_memory"])),
        *device["versions"].items(),
    ]
    atomics: dict[str, list[str]] = {}
    for atomic in device["native_atomics"]:
        if atomic["memory"] == "global":
            atomics.setdefault(atomic["operation"], []).append(atomic["dtype"])
    listed = [(escape(operation), escape(", ".join(dtypes))) for operation, dtypes in atomics.items()]
    features = ", ".join(name for name, has in device["features"].items() if has)
    return (
        rows_of((escape(key), escape(str(value))) for key, value in rows)
        + f"<h3>Hardware atomics in global memory</h3>{rows_of(listed)}<p>Features: {escape(features) or 'none'}</p>"
    )


def _profile(device: Mapping[str, Any]) -> str:
    rows = []
    for key, number in device["parameters"].items():
        letter, _, meaning = PARAMETERS[key].partition(": ")
        value = bytes_text(number["value"]) if "bytes" in PARAMETERS[key] else f"{number['value']:,}"
        rows.append((escape(letter), escape(meaning), escape(value), escape(number["source"])))
    matched = ", then ".join(f"{profile['name']} ({profile['level']})" for profile in device["profiles"])
    return rows_of(rows, ("", "number", "value", "source")) + f"<p>Profiles: {escape(matched)}</p>"


def _checks(results: Mapping[str, Any]) -> str:
    verdict = f'<p class="good">All checks hold ({results["seconds"]:.0f} s).</p>'
    if results["wrong"]:
        listed = rows_of((escape(check["check"]), escape(check["words"])) for check in results["wrong"])
        verdict = f'<p class="bad">{len(results["wrong"])} checks are wrong.</p>{listed}'
    rows = []
    for row, cells in results["cells"].items():
        shown = [f"<th>{escape(row)}</th>"]
        for column in results["columns"]:
            cell = cells.get(column)
            if cell is None:
                shown.append("<td></td>")
            elif cell["wrong"]:
                shown.append('<td class="bad">FAILS</td>')
            else:
                shown.append(f"<td>{cell['holds'] or '–'}</td>")
        rows.append(f"<tr>{''.join(shown)}</tr>")
    head = "".join(f"<th>{escape(column)}</th>" for column in results["columns"])
    note = "<p>A number: checks that hold; –: the device lacks it; blank: not checked.</p>"
    return f'{verdict}<div class="wide"><table><tr><th></th>{head}</tr>{"".join(rows)}</table></div>{note}'


def _times(times: Mapping[str, Any]) -> str:
    title = f"<h3>{escape(times['operation'])}, {times['num_elements']:,} elements: time per call</h3>"
    chart = line_chart(times["lines"], x_label="bins", y_label="time per call")
    return title + chart


def _plans(results: Mapping[str, Any]) -> str:
    kinds = dict.fromkeys(kind_of(plan) for plans in results["maps"].values() for plan in plans)
    colours = {kind: COLOURS[n % len(COLOURS)] for n, kind in enumerate(kinds)}
    maps = "".join(f"<h3>{escape(name)}</h3>{plan_map(plans, colours)}" for name, plans in results["maps"].items())
    return (
        f"<p>Plans for {results['num_elements']:,} elements: H bins to the right, race factor RF upward; M copies, and "
        f"S passes where there are several.</p>{legend(colours)}{maps}"
    )
