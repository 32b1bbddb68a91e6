"""Each command that README and documentation name exists, with the options that they give it; and each file."""

from __future__ import annotations

import re

import pytest
from click import Context
from documents import ROOT, mentioned, pages, pasted

from clhist.cli.main import COMMANDS, main

NAMED = [(page, arguments) for page in pages() for arguments in (*pasted(page), *mentioned(page))]


def test_the_pages_name_every_command():
    assert {arguments[0] for _, arguments in NAMED} >= set(COMMANDS)


@pytest.mark.parametrize("page", sorted({page for page, _ in NAMED}), ids=lambda page: str(page.relative_to(ROOT)))
def test_each_has_these_options(page):
    for arguments in (arguments for where, arguments in NAMED if where == page):
        name, *rest = arguments
        if name == "COMMAND":  # any of them
            name = "info"
        if name.startswith("-"):
            name, rest, command = "clhist", arguments, main
        else:
            assert name in COMMANDS, arguments
            command = main.get_command(Context(main), name)
        context = Context(command, info_name=name)
        known = {option for parameter in command.get_params(context) for option in parameter.opts}
        given = {each.partition("=")[0] for each in rest if each.startswith("-") and not each[1:2].isdigit()}
        assert given <= known, arguments


FOLDERS = (
    "clhist",
    "kernels_cl",
    "cli",
    "cases",
    "strategies",
    "soak",
    "benchmarks",
    "devices",
    "docs",
    "tests",
    ".ci",
)
ARCHITECTURE = [ROOT / "docs" / "ARCHITECTURE.md", *sorted((ROOT / "docs" / "architecture").glob("*.md"))]


@pytest.mark.parametrize("page", [*ARCHITECTURE, ROOT / "CONTRIBUTING.md"], ids=lambda page: page.name)
def test_files_that_contributors_read_of_exist(page):
    there = {"/" + str(path.relative_to(ROOT)) for folder in FOLDERS for path in (ROOT / folder).rglob("*")}
    there |= {f"/{folder}" for folder in FOLDERS} | {f"/{path.name}" for path in ROOT.iterdir()}
    named = set(re.findall(r"`([\w./-]+(?:\.(?:py|mako|toml|md|csv)|/))`", page.read_text("utf-8")))
    named = {name for name in named if not re.search(r"\b(?:X|NAME)\b", name)}  # which stand for a name
    lacking = [name for name in sorted(named) if not any(path.endswith("/" + name.rstrip("/")) for path in there)]
    assert not lacking, f"{page.name} names files that do not exist: {lacking}"
