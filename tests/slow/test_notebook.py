"""The notebook of the documentation runs as it stands, and prints what it shows."""

import contextlib
import io
import json

from documents import ROOT


def test_the_tour(monkeypatch):
    monkeypatch.setenv("MPLBACKEND", "Agg")
    cells = json.loads((ROOT / "docs" / "tour.ipynb").read_text(encoding="utf-8"))["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert len(code) > 7
    scope = {}
    for cell in code:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec("".join(cell["source"]), scope)
        shown = ["".join(output["text"]) for output in cell["outputs"] if output["output_type"] == "stream"]
        assert printed.getvalue() == "".join(shown)
