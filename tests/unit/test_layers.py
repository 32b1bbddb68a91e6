"""What is pure stays pure: operators, hardware, planning and code generation work where PyOpenCL cannot be imported."""

from __future__ import annotations

import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import clhist

# In the place of clhist/__init__.py, which imports the public classes and with them PyOpenCL.
ALONE = """
import importlib, sys, types
sys.modules["pyopencl"] = None
package = types.ModuleType("clhist")
package.__path__ = {paths!r}
sys.modules["clhist"] = package
for name in {names!r}:
    importlib.import_module(name)
"""


@pytest.mark.parametrize("layer", ["operators", "hardware", "planning", "codegen"])
def test_no_opencl_below_the_engine(layer):
    (folder,) = (path for root in clhist.__path__ if (path := Path(root) / layer).is_dir())
    names = [f"clhist.{layer}"] + [f"clhist.{layer}.{module.name}" for module in pkgutil.iter_modules([str(folder)])]
    assert len(names) > 1
    code = ALONE.format(paths=list(clhist.__path__), names=names)
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert run.returncode == 0, run.stderr
