"""Examples in docstrings, run as doctest does."""

import doctest
from importlib import import_module
from inspect import unwrap
from pathlib import Path

import numpy as np

import clhist

ROOT = Path(clhist.__file__).parents[1]
FOLDERS = {"clhist": "clhist", "cases": "clhist.cases", "strategies": "clhist.strategies"}  # the packages in them


# Modules that need packages which other tests do not: each is run where that is installed.
OF_TENSORS, OF_ENGINES = (".torch", ".jax"), (".boosting.", ".pyfai", ".trajectories")


def modules_with_examples(*of):
    """Return the names of modules whose docstrings have examples: those with one of these parts, or without any."""
    return [name for name in _modules() if any(part in name for part in of or OF_TENSORS + OF_ENGINES) == bool(of)]


def _modules():
    return [
        ".".join((package, *file.relative_to(ROOT / folder).with_suffix("").parts))
        for folder, package in FOLDERS.items()
        for file in sorted((ROOT / folder).rglob("*.py"))
        if _has_examples(file.read_text(encoding="utf-8"))
    ]


def _has_examples(text):
    """Tell whether at least one example of a source text runs: those of a cluster's processes are all skipped."""
    return any(">>>" in line and "doctest: +SKIP" not in line for line in text.splitlines())


class _Finder(doctest.DocTestFinder):
    """Finds the examples of decorated functions as well, whose wrappers belong to another module."""

    def _from_module(self, module, object):
        return super()._from_module(module, unwrap(object))


def run_examples(name):
    """Run the examples of a module, with `clhist` and `np` at hand, and return how many there were."""
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS)
    for test in _Finder().find(import_module(name), extraglobs={"clhist": clhist, "np": np}):
        runner.run(test)
    assert not runner.failures
    return runner.tries
