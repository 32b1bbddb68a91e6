"""The templates of `kernels_cl`: OpenCL C from a template and its values. Pure."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from importlib import resources
from typing import Any

from clhist.operators.c_types import c_name, declare, element_name
from clhist.operators.halves import loaded, stored


def render(name: str, **values: object) -> str:
    """Return the rendered template with empty lines between functions and sections, and where a macro ends, only."""
    # An empty line behind a backslash ends a macro, so it stays.
    text = re.sub(r"(?<!\\)\n\s*\n+", "\n", text_of(name, **values)).strip() + "\n"
    text = re.sub(r"^}\n(?!#endif|$)", "}\n\n", text, flags=re.MULTILINE)
    return re.sub(r"\n(?=( {4}){1,2}// (Bins|Update|End|Store): )", "\n\n", text)


def text_of(name: str, **values: object) -> Any:
    """Return the rendered template as it is."""
    return (
        _lookup()
        .get_template(name)
        .render(declare=declare, c_name=c_name, element_name=element_name, loaded=loaded, stored=stored, **values)
    )


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


@lru_cache(maxsize=1)
def _lookup() -> Any:
    """Return Mako's lookup, which compiles a template, 15 ms each, when it is first used."""
    # Imported here, with the first kernel: Mako takes 20 ms.
    with _without_pygments():
        from mako.lookup import TemplateLookup

    folder = resources.files("clhist.kernels_cl")

    class Lookup(TemplateLookup):
        """Templates from the folder of all templates, or from a zip archive, whatever folder others name them from."""

        def adjust_uri(self, uri: str, relativeto: str) -> str:
            return uri

        def get_template(self, name: str) -> Any:
            if name not in self._collection:
                self.put_string(name, folder.joinpath(name).read_text(encoding="utf-8"))
            return self._collection[name]

    return Lookup(strict_undefined=True)
