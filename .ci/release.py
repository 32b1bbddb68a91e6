"""Check that a tag may become a release: ``python .ci/release.py v1.2.3`` prints what is missing, changing nothing."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PLACEHOLDER = "github.com/OWNER/"
_KEEPING = (".ci/release.py", ".ci/owner", "tests/unit/test_release.py")  # files that are about the placeholder


def problems(tag: str, root: Path = ROOT) -> Iterator[str]:
    """Yield what stops a release of the checkout `root` under the name `tag`."""
    match = re.fullmatch(r"v(\d+\.\d+\.\d+(?:(?:a|b|rc)\d+)?)", tag)
    if match is None:
        yield f"tag: expected vMAJOR.MINOR.PATCH, with aN, bN or rcN before a release, got {tag!r}"
        return
    version = match[1]
    for name, stated in versions(root).items():
        if stated != version:
            yield f"{name}: has version {stated}, the tag says {version}"
    changelog = (root / "CHANGELOG.md").read_text(encoding="utf-8")
    entry = re.search(rf"^## \[{re.escape(version)}\] - \d{{4}}-\d\d-\d\d\n(.*?)(?=^## |\Z)", changelog, re.M | re.S)
    if entry is None:
        yield f"CHANGELOG.md: expected a section '## [{version}] - YYYY-MM-DD'"
    elif not entry[1].strip():
        yield f"CHANGELOG.md: the section of {version} is empty"
    changed = git(root, "status", "--porcelain").splitlines()
    if changed:
        yield f"the tree is dirty: {', '.join(line[3:] for line in changed[:5])}"
    if git(root, "rev-parse", "HEAD") != git(root, "rev-parse", f"{tag}^{{commit}}"):
        yield f"tag: {tag} is not at the commit that is checked out"
    for path in git(root, "grep", "-l", "-F", PLACEHOLDER).splitlines():
        if path not in _KEEPING:
            yield f"{path}: {PLACEHOLDER} stands for the owner of the repository; .ci/owner writes it"


def versions(root: Path) -> dict[str, str]:
    """Return the version that each file states."""
    citation = (root / "CITATION.cff").read_text(encoding="utf-8")
    recipe = (root / "conda" / "recipe.yaml").read_text(encoding="utf-8")
    code = (root / "clhist" / "_version.py").read_text(encoding="utf-8")
    return {
        "clhist/_version.py": found(r'__version__ = "([^"]+)"', code),
        "CITATION.cff": found(r"^version: (\S+)$", citation),
        "conda/recipe.yaml": found(r'^  version: "([^"]+)"$', recipe),
    }


def found(pattern: str, text: str) -> str:
    """Return what `pattern` has in its parentheses, or "none"."""
    match = re.search(pattern, text, re.M)
    return match[1] if match else "none"


def git(root: Path, *arguments: str) -> str:
    """Return what git prints, nothing where it fails."""
    return subprocess.run(["git", "-C", root, *arguments], capture_output=True, text=True).stdout.rstrip()


def main() -> int:
    """Print what stops the release; 1 if anything does."""
    if len(sys.argv) != 2:
        print("usage: python .ci/release.py vMAJOR.MINOR.PATCH", file=sys.stderr)
        return 2
    stopping = list(problems(sys.argv[1]))
    print("\n".join(stopping) or f"{sys.argv[1]} can be released")
    return bool(stopping)


if __name__ == "__main__":
    sys.exit(main())
