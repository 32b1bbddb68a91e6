"""What stops a release (.ci/release.py): each reason in a repository made for it."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SPEC = importlib.util.spec_from_file_location("release", ROOT / ".ci" / "release.py")
release = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(release)


@pytest.fixture
def repository(tmp_path):
    """A repository of version 1.2.3 with its tag."""
    for name, text in {
        "clhist/_version.py": '__version__ = "1.2.3"\n',
        "CITATION.cff": "cff-version: 1.2.0\nversion: 1.2.3\n",
        "conda/recipe.yaml": 'context:\n  version: "1.2.3"\n',
        "CHANGELOG.md": "# Changelog\n\n## [Unreleased]\n\n## [1.2.3] - 2027-01-31\n\n- All new.\n",
    }.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    run(tmp_path, "init", "-q")
    commit(tmp_path)
    run(tmp_path, "tag", "v1.2.3")
    return tmp_path


def run(root, *arguments):
    subprocess.run(["git", "-C", root, "-c", "user.name=a", "-c", "user.email=a@b", *arguments], check=True)


def commit(root):
    run(root, "add", "-A")
    run(root, "commit", "-qm", "all")


def test_a_complete_one_can_be_released(repository):
    assert list(release.problems("v1.2.3", repository)) == []


@pytest.mark.parametrize("tag", ["1.2.3", "v1.2", "v1.2.3-rc1", "latest"])
def test_tags_of_another_form(repository, tag):
    assert [text.partition(":")[0] for text in release.problems(tag, repository)] == ["tag"]


def test_another_version_than_the_files_state(repository):
    run(repository, "tag", "v1.2.4")
    stopping = list(release.problems("v1.2.4", repository))
    assert [text.partition(":")[0] for text in stopping] == [
        "clhist/_version.py", "CITATION.cff", "conda/recipe.yaml", "CHANGELOG.md",
    ]  # fmt: skip
    assert "has version 1.2.3, the tag says 1.2.4" in stopping[0]


def test_a_tag_that_is_not_there_or_elsewhere(repository):
    (repository / "more").write_text("more")
    commit(repository)
    assert list(release.problems("v1.2.3", repository)) == ["tag: v1.2.3 is not at the commit that is checked out"]


@pytest.mark.parametrize(
    "changelog", ["# Changelog\n", "## [1.2.3] - 2027-01-31\n\n## [1.2.2] - 2027-01-01\n\n- old\n"]
)
def test_no_entry_in_the_changelog(repository, changelog):
    (repository / "CHANGELOG.md").write_text(changelog)
    commit(repository)
    run(repository, "tag", "-f", "v1.2.3")
    (stopping,) = release.problems("v1.2.3", repository)
    assert stopping.startswith("CHANGELOG.md: ")


def test_a_dirty_tree_and_an_owner_that_is_not_known(repository):
    (repository / "README.md").write_text("git clone https://github.com/OWNER/clhist\n")
    assert "the tree is dirty: README.md" in list(release.problems("v1.2.3", repository))
    commit(repository)
    run(repository, "tag", "-f", "v1.2.3")
    (stopping,) = release.problems("v1.2.3", repository)
    assert stopping.startswith("README.md: github.com/OWNER/ stands for the owner")


AUTHOR, EMAIL = "Ada Lovelace & Co.", "ada@example.org"


def copied(folder):
    """Return a folder with the repository's files as they are, committed."""
    files = subprocess.run(
        ["git", "-C", ROOT, "ls-files", "-z", "--cached"], capture_output=True, text=True, check=True
    ).stdout.split("\0")
    for name in filter(None, files):
        if name.startswith(("tests/", "kernels_cl/", "devices/")) and name != "tests/unit/test_release.py":
            continue
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    run(folder, "init", "-q")
    commit(folder)
    return folder


@pytest.fixture(scope="module")
def unchanged(tmp_path_factory):
    """Such a folder, which no test changes."""
    return copied(tmp_path_factory.mktemp("copy"))


def owner(root, *arguments):
    return subprocess.run([root / ".ci" / "owner", *arguments], capture_output=True, text=True)


def test_one_command_writes_owner_and_author(tmp_path):
    copy = copied(tmp_path)
    assert any("OWNER" in text for text in release.problems("v1.2.3", copy))
    done = owner(copy, "octocat", AUTHOR, EMAIL)
    assert done.returncode == 0, done.stderr
    assert not any("OWNER" in text for text in release.problems("v1.2.3", copy))
    project = tomllib.loads((copy / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["authors"] == [{"name": AUTHOR, "email": EMAIL}]
    assert project["urls"]["Source"] == "https://github.com/octocat/clhist"
    for name in ("CITATION.cff", "paper/paper.md"):
        text = (copy / name).read_text(encoding="utf-8")
        assert f'  - name: "{AUTHOR}"\n' in text
        assert "The clhist developers" not in text


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("octocat",),
        ("octo/cat", AUTHOR, EMAIL),
        ("octocat", "", EMAIL),
        ("octocat", AUTHOR, "ada"),
        ("octocat", 'A "B"', EMAIL),
    ],
)
def test_an_owner_that_is_none(arguments, unchanged):
    done = owner(unchanged, *arguments)
    assert done.returncode == 2
    assert done.stderr.startswith("usage: ")
    assert subprocess.run(["git", "-C", unchanged, "diff", "--quiet"]).returncode == 0
