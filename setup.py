"""What pyproject.toml cannot say: README links become absolute, since package indexes lack the files beside it."""

import re
import tomllib
from pathlib import Path

from setuptools import setup

ROOT = Path(__file__).parent
SOURCE = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["urls"]["Source"]


def absolute(match: re.Match[str]) -> str:
    """Return a link of Markdown, pictures as raw files."""
    kind = "raw" if match[1] else "blob"
    return f"{match[1]}[{match[2]}]({SOURCE}/{kind}/main/{match[3]})"


README = (ROOT / "README.md").read_text(encoding="utf-8")
setup(
    long_description=re.sub(r"(!?)\[([^\]]*)\]\((?!https?:|#)([^)\s]+)\)", absolute, README),
    long_description_content_type="text/markdown",
)
