"""What is pure stays pure: these packages work where PyOpenCL cannot be imported."""

from __future__ import annotations

import ast
import contextlib
import copy
import pickle
import pkgutil
import runpy
import subprocess
import sys
import types
from pathlib import Path

import pytest
from processes import run_python

import clhist

# In the place of clhist/__init__.py, which imports the public classes and with them PyOpenCL. Each layer begins anew.
ALONE = """
import importlib, sys, types
sys.modules["pyopencl"] = None
for layer in {layers!r}:
    for name in [name for name in sys.modules if name.partition(".")[0] == "clhist"]:
        del sys.modules[name]
    sys.modules["clhist"] = types.ModuleType("clhist")
    sys.modules["clhist"].__path__ = {paths!r}
    for name in layer:
        importlib.import_module(name)
    print(len([name for name in layer if name in sys.modules]))
"""


def test_no_opencl_below_the_engine():
    layers = []
    for layer in ("operators", "axes", "_core/devices", "_core/model", "_core/kernels"):
        (folder,) = (path for root in clhist.__path__ if (path := Path(root) / layer).is_dir())
        package = f"clhist.{layer.replace('/', '.')}"
        layers.append([package, *(f"{package}.{module.name}" for module in pkgutil.iter_modules([str(folder)]))])
    assert min(map(len, layers)) > 1
    # A call is prepared without OpenCL, too.
    layers.append([f"clhist._core.runtime.{name}" for name in ("prepared", "prepare", "stages")])
    code = ALONE.format(paths=list(clhist.__path__), layers=layers)
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert run.returncode == 0, run.stderr
    assert list(map(int, run.stdout.split())) == list(map(len, layers))


def test_no_module_depends_on_itself_and_no_import_runs_up():
    root = Path(__file__).parents[2]
    house = runpy.run_path(str(root / ".ci" / "house.py"))
    with contextlib.chdir(root):
        number, circles, up = house["floors"]()
    assert not circles, f"these modules import each other, at once or when a function runs: {', '.join(circles)}"
    assert not up, f"imports from an inner to an outer package (tool.importlinter): {', '.join(up)}"
    assert number <= house["LIMITS"]["floors"]


def test_public_names_are_imported_when_used():
    printed = run_python(
        """
        print(sorted(name for name in sys.modules if name.startswith("clhist.")))
        from clhist import *  # noqa
        import clhist.bincount, clhist.digitize, clhist.histogram  # functions have the names of their modules
        print({type(clhist.__dict__[name]).__name__ for name in ("bincount", "digitize", "histogram")})
        print(set(clhist.__all__) - set(dir(clhist)), [name for name in clhist.__all__ if name not in globals()])
        """
    )
    core = ["clhist._core", *(f"clhist._core.opencl{module}" for module in ("", ".caches", ".icd", ".intel"))]
    assert printed == f"{[*core, 'clhist._version']}\n{{'function'}}\nset() []\n"
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        clhist.nothing  # noqa: B018


def test_the_package_is_pickled_as_modules_are():
    """Dask sends functions that use it by cloudpickle, which knows modules by their exact type."""
    assert copy.deepcopy(clhist) is clhist
    assert pickle.loads(pickle.dumps(clhist)) is clhist


def test_a_module_may_stand_in_for_a_public_name(monkeypatch):
    stand_in = types.ModuleType("bincount")
    monkeypatch.setattr(clhist, "bincount", stand_in)
    assert clhist.bincount is stand_in


def test_the_table_of_public_names_is_what_type_checkers_see():
    tree = ast.parse(Path(clhist.__file__).read_text())
    (block,) = (node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")
    homes = {each.name: node.module for node in block.body for each in node.names}
    modules = {name for name, module in homes.items() if module == "clhist"}
    assert modules | {"dask", "flox", "hist", "jax", "torch"} == set(clhist._SUBMODULES)  # which need extras
    assert {name: f"clhist.{home}" for name, home in clhist._HOMES.items()} == {
        name: module for name, module in homes.items() if name not in modules
    }
    assert {*homes, "__version__"} - {"errors", "typing"} == set(clhist.__all__)


def test_tests_can_replace_the_rule_for_small_inputs():
    """Tests patch `small.pays_off` to force the host or the device; a module that binds the name would escape them."""
    (package,) = (Path(root) for root in clhist.__path__ if (Path(root) / "_core" / "runtime" / "small.py").is_file())
    users = [path for path in package.rglob("*.py") if "pays_off" in path.read_text(encoding="utf-8")]
    assert len(users) > 3
    for path in users:
        nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        names = {alias.name for node in nodes if isinstance(node, ast.ImportFrom) for alias in node.names}
        assert "pays_off" not in names, path


def test_interfaces_of_packages_list_what_others_import_from_them():
    """A name that nobody imports from an `spi` module need not be in it."""
    root = Path(__file__).parents[2]
    listed, imported = {}, {}
    for path in (path for folder in ("clhist", "cases") for path in sorted((root / folder).rglob("*.py"))):
        text = path.read_text(encoding="utf-8")
        if "spi" not in f"{path.name} {text}":  # parsing all files takes seconds
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ImportFrom) and node.module != "__future__":
                names = {alias.name for alias in node.names}
                imported.setdefault(node.module, set()).update(names)
                if path.name in ("spi.py", "host_spi.py"):
                    module = ".".join(path.relative_to(root).with_suffix("").parts)
                    listed.setdefault(module, set()).update(names - {"*"})  # spi has the names of host_spi, too
    assert len(listed) == 7
    for module, names in listed.items():
        users = imported.get(module, set()) | imported.get(module.replace("host_spi", "spi"), set())
        assert not names - users, module
