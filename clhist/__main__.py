"""``python -m clhist`` is the command ``clhist``."""

from clhist.cli.main import run

run()
