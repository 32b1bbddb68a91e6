"""Comparison of the public interface, name by name with its parameters, with the record: changes are made on purpose.

``python .ci/public_api.py`` from the root of the repository fails where the public interface differs from
`.ci/public_api.txt`, and shows the difference; ``--write`` records what there is now. Public is what the API reference
has (docs/stability.md). Sources are read, not imported.
"""

from __future__ import annotations

import argparse
import re
import shutil
import sys
import tomllib
from collections.abc import Iterator
from difflib import unified_diff
from pathlib import Path
from tempfile import TemporaryDirectory

import griffe

RECORD = Path(".ci/public_api.txt")
DOCUMENTED = re.compile(r"^\.\. auto(?:class|function|module|exception|data):: (\S+)", re.MULTILINE)


def parameter(one: griffe.Parameter) -> str:
    """Return `one` as a signature has it, with its default, but without its type, which may become more exact."""
    star = {griffe.ParameterKind.var_positional: "*", griffe.ParameterKind.var_keyword: "**"}.get(one.kind, "")
    return f"{star}{one.name}" + (f"={one.default}" if one.default is not None and not star else "")


def signature(function: griffe.Function) -> str:
    """Return the parameters of `function`."""
    found, before = [], None
    for one in function.parameters:
        if one.name in ("self", "cls") and not found:
            continue
        kinds = griffe.ParameterKind
        if one.kind is kinds.keyword_only and before not in (kinds.keyword_only, kinds.var_positional):
            found.append("*")
        if before is kinds.positional_only and one.kind is not before:
            found.append("/")
        found.append(parameter(one))
        before = one.kind
    return f"({', '.join(found)})"


def members(thing: griffe.Module | griffe.Class) -> Iterator[griffe.Object]:
    """Yield the public members of a module or class, those that it inherits from classes of the package included."""
    for name, member in sorted(thing.all_members.items() if thing.is_class else thing.members.items()):
        if member.is_alias and (not thing.is_class and not member.is_exported):
            continue
        found = member.final_target if member.is_alias else member
        if (name == "__call__" or not name.startswith("_")) and not found.is_module:
            yield found


def lines(name: str, thing: griffe.Object) -> Iterator[str]:
    """Yield a line for `thing`, called `name`, and for each of its public members."""
    if thing.is_function:
        yield name + signature(thing)
    elif thing.is_class:
        made = thing.all_members.get("__init__")
        fields = signature(made) if made is not None and made.is_function else ""
        bases = [str(base) for base in thing.bases if "Generic" not in str(base)]
        yield f"class {name}{fields}" + (f" of {', '.join(bases)}" if bases else "")
        for member in members(thing):
            yield from lines(f"{name}.{member.name}", member)
    elif thing.is_module:
        for member in members(thing):
            yield from lines(f"{name}.{member.name}", member)
    else:
        yield name


def copy_package(folder: Path) -> None:
    """Copy the package into `folder` as it is installed: with the folders that lie beside it in a checkout."""
    places = tomllib.loads(Path("pyproject.toml").read_text())["tool"]["setuptools"]["package-dir"]
    for name, path in places.items():  # the package itself is the first of them
        shutil.copytree(path, folder.joinpath(*name.split(".")))


def public() -> list[str]:
    """Return a line for each public name."""
    with TemporaryDirectory() as folder:
        copy_package(Path(folder))
        package = griffe.load("clhist", search_paths=[folder], try_relative_path=False, resolve_aliases=True)
    names = set()
    for page in sorted(Path("docs/api").glob("*.md")):
        names.update(DOCUMENTED.findall(page.read_text()))
    found: list[str] = []
    for name in sorted(names):
        thing = package[name.removeprefix("clhist.")]
        found += lines(name, thing.final_target if thing.is_alias else thing)
    return found


def main() -> int:
    """Compare, or record."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--write", action="store_true", help="record the interface as it is now")
    now = "\n".join(public()) + "\n"
    if parser.parse_args().write:
        RECORD.write_text(now)
        return 0
    before = RECORD.read_text() if RECORD.exists() else ""
    if now == before:
        print(f"{now.count(chr(10))} public names are as recorded in {RECORD}")
        return 0
    sys.stdout.writelines(unified_diff(before.splitlines(True), now.splitlines(True), str(RECORD), "the sources", n=0))
    print("\nThe public interface changed. If so meant: a line in CHANGELOG.md, then python .ci/public_api.py --write")
    return 1


if __name__ == "__main__":
    sys.exit(main())
