"""What a clone of the repository has and an installed package has not: benchmarks, random calls, the emulator."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

import clhist
from clhist.cli.console import InputError


def from_clone(module: str, asked: str, *, folder: str = ".") -> ModuleType:
    """Import a module of the repository that is not installed.

    Parameters
    ----------
    module : str
        Such as ``benchmarks.command``.
    asked : str
        What needs it, for the message.
    folder : str
        Of the repository, in which the module's package is.

    Raises
    ------
    InputError
        If clhist was not imported from a clone.
    """
    root = Path(clhist.__file__).resolve().parents[1]
    where = root / folder
    if not ((root / "pyproject.toml").is_file() and (where / module.partition(".")[0]).is_dir()):
        raise InputError(
            f"{asked}: expected a clone of clhist's repository, got {root}\n"
            "git clone https://github.com/OWNER/clhist && pip install -e ./clhist"
        )
    if str(root) not in sys.path:
        sys.path.insert(0, str(root))
    if str(where.resolve()) not in sys.path:
        sys.path.append(str(where.resolve()))  # at the end: what is there must not hide packages
    return import_module(module)
