"""`clhist` without its optional dependencies: all that looks at a module works, and says what to install."""

from __future__ import annotations

import pytest
from processes import run_python

# Optional dependencies by the module of clhist that cannot do without; those that import without any are not here.
NEEDED = {"dask": "dask", "flox": "flox", "jax": "jax", "torch": "torch"}
HIDDEN = [*NEEDED.values(), "scipy", "pandas", "xarray", "hist", "boost_histogram", "MDAnalysis", "pyarrow", "polars"]
HIDE = f"""
import sys, importlib.abc

class Hide(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {HIDDEN!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Hide())
"""


@pytest.fixture(scope="module")
def printed():
    """What a process without the dependencies prints: a line for each that it looks at."""
    return run_python(
        """
        import inspect, pydoc
        members = dict(inspect.getmembers(clhist))
        print(sorted(name for name in dir(clhist) if name not in members))
        print("reduce_by_index" in pydoc.plain(pydoc.render_doc(clhist)))
        for name in clhist._SUBMODULES:
            module = members[name]
            dir(module), repr(module), inspect.getmembers(module), pydoc.render_doc(module)
            assert not hasattr(module, "_repr_html_") and inspect.ismodule(module)
            try:
                module.bincount
            except ImportError as error:
                print(f"{name}: {error}")
            except AttributeError:
                pass
        try:
            import clhist.dask
        except ModuleNotFoundError as error:
            print(error.name)
        """,
        before=HIDE,
    ).splitlines()


def test_all_members_can_be_looked_at(printed):
    assert printed[:2] == ["[]", "True"]


@pytest.mark.parametrize("name", NEEDED)
def test_a_missing_module_says_what_to_install(printed, name):
    said = f'{name}: clhist.{name} needs {NEEDED[name]}, which is not installed: pip install "clhist[{name}]"'
    assert said in printed


def test_an_import_still_fails(printed):
    assert printed[-1] == "dask"


def test_modules_of_clhist_that_are_missing_are_errors(monkeypatch):
    import clhist

    monkeypatch.setattr(clhist, "_SUBMODULES", ("nowhere",))
    with pytest.raises(ModuleNotFoundError, match=r"clhist\.nowhere"):
        clhist.nowhere  # noqa: B018
