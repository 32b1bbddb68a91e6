"""Configuration of the documentation site: ``sphinx-build -W docs docs/_build``."""

from importlib import metadata

project = "clhist"
author = copyright = "The clhist developers"
release = version = metadata.version("clhist")

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "sphinxext.opengraph",
]
exclude_patterns = ["_build", "results/claims.md"]
source_suffix = {".md": "myst-nb", ".ipynb": "myst-nb"}
nb_execution_mode = "off"  # a test runs them, and compares what they print

ogp_site_url = "https://clhist.readthedocs.io/"
ogp_image = "_static/card.png"
ogp_image_alt = "clhist: histograms, group-by and scatter-add on any OpenCL device"

myst_heading_anchors = 3
myst_enable_extensions = ["colon_fence"]

autodoc_mock_imports = ["torch", "jax"]  # gigabytes
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
