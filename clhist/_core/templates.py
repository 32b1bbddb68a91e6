"""The templates of `kernels_cl` and their cache: OpenCL C from a template and its values. Pure."""

from __future__ import annotations

import os
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from hashlib import sha256
from importlib import resources
from pathlib import Path
from typing import Any

import platformdirs

from clhist.files.regular import replaced
from clhist.files.sealed import is_sealed_python, make_older, sealed_python
from clhist.operators.c_types import c_name, declare, element_name
from clhist.operators.halves import loaded, stored


def render(name: str, **values: object) -> str:
    """Return the rendered template with empty lines between functions and sections, and where a macro ends, only."""
    # An empty line behind a backslash ends a macro, so it stays.
    text = re.sub(r"(?<!\\)\n\s*\n+", "\n", text_of(name, **values)).strip() + "\n"
    text = re.sub(r"^}\n(?!#endif|$)", "}\n\n", text, flags=re.MULTILINE)
    return re.sub(r"\n(?=( {4}){1,2}// (Bins|Update|End|Store): )", "\n\n", text)


_FALSE = ("n", "no", "f", "false", "off", "0")  # as PyOpenCL reads its variable


def text_of(name: str, **values: object) -> Any:
    """Return the rendered template as it is."""
    return _template(name).render(
        declare=declare, c_name=c_name, element_name=element_name, loaded=loaded, stored=stored, **values
    )


def _template(name: str) -> Any:
    try:
        is_kept = os.environ.get("PYOPENCL_NO_CACHE", "false").lower() in _FALSE
        return _lookup(is_kept).get_template(name)
    except OSError:  # of the cache: read-only, full
        return _lookup(False).get_template(name)


@contextmanager
def _without_pygments() -> Iterator[None]:
    """Let Mako be imported without Pygments, whose lexers take longer than all of Mako.

    They only colour Mako's own HTML pages of errors: who wants these coloured imports `mako.exceptions` before.
    """
    plugin = "mako.ext.pygmentplugin"
    if "mako.exceptions" in sys.modules:  # which has decided already
        yield
        return
    # None makes the import raise ImportError, which Mako takes for missing Pygments.
    sys.modules[plugin] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        # Other users of Mako must be able to import the plugin later.
        sys.modules.pop(plugin, None)


@contextmanager
def _without_bytecode() -> Iterator[None]:
    """Let modules be imported without files of bytecode, which have no seal: a damaged one would run."""
    # One thread at a time: a second one would save, and later restore, the settings of the first.
    with _loading:
        before = sys.dont_write_bytecode, sys.pycache_prefix
        # No file of bytecode exists below the null device.
        sys.dont_write_bytecode, sys.pycache_prefix = True, os.devnull
        try:
            yield
        finally:
            sys.dont_write_bytecode, sys.pycache_prefix = before


_loading = threading.RLock()  # a template may load another


@lru_cache(maxsize=2)
def _lookup(is_kept: bool) -> Any:
    """Return Mako's lookup; Python of compiled templates, 15 ms each, may be kept in the user's cache directory."""
    # Imported here, with the first kernel: Mako takes 20 ms.
    with _without_pygments():
        import mako
        from mako.lookup import TemplateLookup

    class Lookup(TemplateLookup):
        """Templates name others from the folder of all templates, whatever folder they are in."""

        def adjust_uri(self, uri: str, relativeto: str) -> str:
            return uri

    class SealedLookup(Lookup):
        """Templates whose Python is compiled anew where it is not as it was written."""

        def get_template(self, name: str) -> Any:
            # A damaged file becomes older than its template, so that Mako compiles it anew.
            module = Path(self.template_args["module_directory"], f"{name}.py")
            if name in self._collection:
                return super().get_template(name)
            if module.exists() and not is_sealed_python(module, module.name):
                make_older(module)
            with _without_bytecode():
                return super().get_template(name)

    def write_module(source: bytes, path: str) -> None:
        # Another process may read the file meanwhile, so it is replaced as a whole.
        with replaced(path, durable=False) as file:
            file.write(sealed_python(source, Path(path).name))

    folder = resources.files("clhist.kernels_cl")
    folders = [("", folder), *((f"{part.name}/", part) for part in folder.iterdir() if part.is_dir())]
    texts = {
        prefix + item.name: item.read_text(encoding="utf-8")
        for prefix, part in folders
        for item in part.iterdir()
        if item.name.endswith(".mako")
    }
    # Mako caches files of a folder. Templates in a zip archive are compiled from their text.
    if is_kept and isinstance(folder, Path):
        # A directory for each content, since several versions of this package may share it.
        # The version of Mako counts too, since it decides what Python a template becomes.
        content = sha256(repr((mako.__version__, sorted(texts.items()))).encode()).hexdigest()[:16]
        compiled = platformdirs.user_cache_path("clhist") / "template-modules" / content
        return SealedLookup(
            [str(folder)], str(compiled), module_writer=write_module, filesystem_checks=False, strict_undefined=True
        )
    lookup = Lookup(strict_undefined=True)
    for name, text in texts.items():
        lookup.put_string(name, text)
    return lookup
