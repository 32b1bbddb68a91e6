"""Configuration of the documentation site: ``sphinx-build -W docs docs/_build``."""

from importlib import metadata

project = "clhist"
author = copyright = "The clhist developers"
release = version = metadata.version("clhist")

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
]
exclude_patterns = ["_build"]
source_suffix = {".md": "markdown"}

myst_heading_anchors = 3
myst_enable_extensions = ["colon_fence"]

autodoc_mock_imports = ["torch"]  # gigabytes
autodoc_member_order = "bysource"
autodoc_typehints = "none"  # docstrings name types in words
napoleon_use_rtype = False
default_role = "code"

html_theme = "furo"
html_title = f"clhist {release}"
html_static_path = ["static"]
html_css_files = ["clhist.css"]
html_copy_source = html_show_sourcelink = False
copybutton_exclude = ".linenos, .gp, .go"
suppress_warnings = ["myst.header"]
