"""Each command that README and documentation name exists, with the options that they give it."""

from __future__ import annotations

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
