"""Docstrings read as they are meant where Sphinx renders them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
WORDS = {word for page in (ROOT / "docs" / "api").glob("*.md") for word in re.findall(r"\w+", page.read_text("utf-8"))}


def documented_properties() -> Iterator[tuple[str, str]]:
    """Yield the properties of classes that the API reference names, with their docstrings."""
    for path in (path for folder in ("clhist", "cases") for path in sorted((ROOT / folder).rglob("*.py"))):
        text = path.read_text("utf-8")
        for owner in ast.walk(ast.parse(text if "property" in text else "")):  # parsing all files takes seconds
            if not isinstance(owner, ast.ClassDef) or not (owner.name in WORDS or "cases" in path.parts):
                continue
            for member in owner.body:
                if isinstance(member, ast.FunctionDef) and "property" in "".join(map(ast.dump, member.decorator_list)):
                    yield f"{path.stem}.{owner.name}.{member.name}", ast.get_docstring(member) or ""


def test_no_property_begins_with_what_reads_as_a_type():
    """Napoleon takes the first line of a property's docstring up to a colon for its type."""
    docstrings = dict(documented_properties())
    assert len(docstrings) > 40
    assert [name for name, text in docstrings.items() if ":" in text.partition("\n")[0].replace("::", "")] == []
