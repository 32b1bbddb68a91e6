"""``python -m clhist`` is the command ``clhist``."""

from clhist.cli.main import main

main(prog_name="clhist")
