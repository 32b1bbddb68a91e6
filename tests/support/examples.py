"""Examples in docstrings, run as doctest does."""

import doctest
from importlib import import_module
from pathlib import Path

import numpy as np

import clhist

PACKAGE = Path(clhist.__file__).parent


def modules_with_examples():
    """Return the names of modules of the package whose docstrings have examples."""
    files = sorted(file for file in PACKAGE.rglob("*.py") if ">>>" in file.read_text(encoding="utf-8"))
    return [".".join(("clhist", *file.relative_to(PACKAGE).with_suffix("").parts)) for file in files]


def run_examples(name):
    """Run the examples of a module, with `clhist` and `np` at hand, and return how many there were."""
    flags = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
    found = doctest.testmod(import_module(name), extraglobs={"clhist": clhist, "np": np}, optionflags=flags)
    assert not found.failed
    return found.attempted
