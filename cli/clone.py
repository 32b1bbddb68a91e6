"""Parts of a clone that an installed package lacks: benchmarks, random calls, the emulator."""

from __future__ import annotations

import sys
import tomllib
from importlib import import_module
from pathlib import Path
from types import ModuleType

import clhist
from clhist.cli.console import InputError


def from_clone(module: str, request: str, *, folder: str = ".") -> ModuleType:
    """Import a module of the repository that is not installed.

    Parameters
    ----------
    module : str
        Such as ``benchmarks.command``.
    request : str
        What needs it, for the message.
    folder : str
        Of the repository, in which the module's package is.

    Raises
    ------
    InputError
        If clhist was not imported from a clone, and neither the current folder nor one above it is one.
    """
    current = Path.cwd()
    places = (Path(clhist.__file__).resolve().parents[1], current, *current.parents)
    package = module.partition(".")[0]
    root = next((place for place in places if _is_clone(place) and (place / folder / package).is_dir()), None)
    if root is None:
        raise InputError(
            f"{request}: expected a clone of clhist's repository as the current folder, got {current}\n"
            "git clone https://github.com/OWNER/clhist && cd clhist"
        )
    where = str((root / folder).resolve())
    if where != str(root) and where not in sys.path:
        # At the end: modules of the clone must not hide installed packages.
        sys.path.append(where)
    before = list(sys.path)
    sys.path.insert(0, str(root))
    try:
        return import_module(module)
    finally:
        # At the end as well, for processes that this one starts: they import clhist as it is installed.
        sys.path[:] = before if str(root) in before else [*before, str(root)]


def _is_clone(folder: Path) -> bool:
    """Whether `folder` is the root of a clone of clhist's repository."""
    try:
        return tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]["name"] == "clhist"
    except (OSError, ValueError, KeyError, TypeError):
        return False
