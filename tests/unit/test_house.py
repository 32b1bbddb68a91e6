"""Rules of the house that no linter knows: how long a file is, and what may be imported by name."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("clhist", "cases", "strategies", "cli", "benchmarks", "soak", "kernels_cl", "tests", ".ci")
FILES = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*")) if path.is_file()]
CODE = [path for path in FILES if path.suffix in (".py", ".mako", ".c", ".h")]
LONGEST = 600  # lines
# Of what is imported when it is first used, in the package whose names these are.
LAZY = {"clhist/__init__.py", "clhist/hist/__init__.py", "clhist/rdf/__init__.py"}


def test_there_are_files():
    assert len(CODE) > 500
    assert {path.suffix for path in CODE} == {".py", ".mako", ".c", ".h"}


def test_no_file_is_long():
    lengths = {str(path.relative_to(ROOT)): len(path.read_text(encoding="utf-8").splitlines()) for path in CODE}
    assert {name: length for name, length in lengths.items() if length > LONGEST} == {}


OURS = r"\bclhist\b|__name__|__package__"


def own_imports(text):
    """Return the lines that import a module of ours by a function."""
    found = []
    if not re.search("import_module|__import__", text):  # parsing all files takes two seconds
        return found
    for node in ast.walk(ast.parse(text)):
        name = ast.unparse(node.func).split(".")[-1] if isinstance(node, ast.Call) else ""
        if name in ("import_module", "__import__") and re.search(OURS, ast.unparse(node)):
            found.append(node.lineno)
    return found


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("import_module('numpy')", []),
        ("x = 1\nimport_module('clhist.dask').x", [2]),
        ("importlib.import_module(f'clhist.{name}')", [1]),
        ("__import__(__name__ + name)", [1]),
        ("import_module('.a', __package__)", [1]),
    ],
)
def test_imports_by_name_are_seen(text, lines):
    assert own_imports(text) == lines


def test_no_module_of_ours_is_imported_by_name():
    """It would hide an arrow from the import contract."""
    found = {}
    installed = (ROOT / folder for folder in ("clhist", "cases", "strategies", "cli"))
    for path in (path for folder in installed for path in sorted(folder.rglob("*.py"))):
        name = str(path.relative_to(ROOT))
        if name not in LAZY and (lines := own_imports(path.read_text(encoding="utf-8"))):
            found[name] = lines
    assert found == {}


MODULES = {"scikit-learn": "sklearn", "pillow": "PIL", "pytest-xdist": "xdist"}  # import names of packages


def declared(extra, groups):
    """Return the modules of the packages that an extra installs."""
    modules = set()
    for requirement in groups[extra]:
        name = re.match(r"[\w-]+", requirement)[0]
        inner = re.search(r"\[(.*)\]", requirement)
        if name == "clhist":
            modules.update(*(declared(part, groups) for part in inner[1].split(",")))
        else:
            modules.add(MODULES.get(name, name).replace("-", "_"))
    return modules


def imported(path):
    """Return the modules that a file imports outside functions."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield node.module.split(".")[0]


def test_quick_tests_import_what_their_extra_installs():
    """An environment in which one develops has more, and would hide a module that a user lacks."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    groups = {**project["optional-dependencies"], "": project["dependencies"]}
    installed = declared("test", groups) | declared("", groups) | sys.stdlib_module_names
    ours = {"clhist", "cases", "strategies", "benchmarks", "soak", "emulated"}
    tests = ROOT / "tests"
    support = {path.stem: path for path in (*(tests / "support").glob("*.py"), *(ROOT / ".ci").glob("*.py"))}
    files = [path for folder in ("unit", "device", "smoke") for path in (tests / folder).glob("*.py")]
    beside = {path.stem for path in files}
    seen, missing = set(), {}
    while files:
        path = files.pop()
        seen.add(path)
        for name in set(imported(path)) - installed - ours - beside:
            if name in support:
                files.extend({support[name]} - seen)
            else:
                missing.setdefault(str(path.relative_to(ROOT)), set()).add(name)
    assert missing == {}
