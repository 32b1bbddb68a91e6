"""Words that may not occur in what users read: README, documentation, `--help`, public docstrings."""

from __future__ import annotations

import importlib.util
import inspect
import io
import re
import tokenize
from functools import cache
from pathlib import Path
from statistics import median

import pytest
from documents import sentences

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / name for name in ("README.md", "AGENTS.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")]
PAGES += sorted((ROOT / "docs").rglob("*.md"))

# Paraphrases of the field's terms, translated idioms, and what a clone has not.
FORBIDDEN = {
    r"\bmended\b": "fixed",
    r"\bbegins? with nothing\b": "starts from the identity element, is initially empty",
    r"\bthe value that changes nothing\b": "identity element",
    r"\bwhat changes nothing\b": "identity element",
    r"\bof (?:one's|your) own\b(?! (?:repository|choice))": "custom, own",
    r"\bas often as\b": "once per",
    r"\bfrom memory\b": "not verified",
    r"\bshared/": "a folder that a clone does not have",
    r"(?:\d|\|) us\b|, us\b|\(us\)": "µs",
    r"\bwhat goes in comes out\b": "results live where the inputs do",
    r"\bdata are\b": "data is",
    r"\b(?:target|goal)s? (?:was|were) missed\b": "nothing: say what is",
    r"\bMissed\b": "nothing: say what is",
    r"\bin vain\b": "without effect",
    r"\b(?:is|are|was|were|when) told\b": "gets, is given, is shown",
    r"\bby (?:itself|themselves)\b": "separately, automatically",
    r"\bof which there (?:is|are)\b": "a sentence of its own",
    r"\b(?:is|are) of use\b": "pays off, is useful",
    r"\bhas no place\b": "is left out, does not apply",
    r"\bnobody looks\b": "without host synchronisation",
    r"\bwhere (?:they|it) lies?\b": "in place",
}
LONGEST = 30  # words of a sentence
# Dates of measurements are in docs/results and in the profiles of devices.
DATE = r"\b20\d\d-\d\d-\d\d\b"


def problems(text: str) -> list[str]:
    """Return the lines with a forbidden word, with what to write instead."""
    found = []
    for line in text.splitlines():
        for pattern, better in FORBIDDEN.items():
            if re.search(pattern, line, re.IGNORECASE if pattern != r"\bMissed\b" else 0):
                found.append(f"{line.strip()!r}: write {better}")
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_pages(page):
    text = page.read_text(encoding="utf-8")
    assert not problems(text)
    assert not re.search(DATE, re.sub(r"^## \[.*", "", text, flags=re.MULTILINE))  # the changelog's releases have one


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_sentences(page):
    long = [text for text in sentences(page.read_text(encoding="utf-8")) if len(text.split()) > LONGEST]
    assert not long


def test_half_of_all_sentences_are_short():
    lengths = [len(text.split()) for page in PAGES for text in sentences(page.read_text(encoding="utf-8"))]
    assert len(lengths) > 1000
    assert median(lengths) <= 16


def test_sentences_are_found():
    text = "# A title\n\nOne `a. b` [link](x. y) is\nhere, 7. Two; three:\n\n- four. Five\n\n    code. code\n\n| a. |\n"
    assert sentences(text) == ["One code [link] is here, 7.", "Two;", "three:", "four.", "Five"]


def test_help():
    from click.testing import CliRunner

    from clhist.cli.main import COMMANDS, main

    for command in ((), *((name,) for name in COMMANDS)):
        text = CliRunner().invoke(main, [*command, "--help"]).output
        assert not problems(text), command
        assert not re.search(DATE, text), command


MODULES = "clhist", "clhist.operators", "clhist.stats", "clhist.ndimage", "clhist.cases"
EXTRAS = {  # which CI's stages have
    "clhist.boosting": "sklearn",
    "clhist.hist": "boost_histogram",
    "clhist.dask": "dask",
    "clhist.flox": "flox",
    "clhist.torch": "torch",
    "clhist.jax": "jax",
}


def public_objects():
    for module in (*MODULES, *(name for name, needed in EXTRAS.items() if importlib.util.find_spec(needed))):
        found = importlib.import_module(module)
        for name in found.__all__:
            yield f"{module}.{name}", getattr(found, name)


def test_public_docstrings():
    for name, each in public_objects():
        if not callable(each):
            continue
        documented = inspect.getdoc(each)
        assert documented, name
        assert not problems(documented), name
        for member, value in vars(each).items() if inspect.isclass(each) else ():
            if callable(value) and (not member.startswith("_") or member == "__call__"):
                text = inspect.getdoc(value) or ""
                assert not problems(text), f"{name}.{member}"


def test_public_functions_and_classes_have_examples():
    named = [
        (name, each)
        for name, each in public_objects()
        if inspect.isclass(each) or inspect.isroutine(inspect.unwrap(each))
    ]
    assert [name for name, each in named if ">>>" not in (inspect.getdoc(each) or "")] == []


# What comments and docstrings may not say either: paraphrases that stood there, and what they say now.
IN_COMMENTS = {
    r"\bmended\b": "fixed",
    r"\bbegins? with nothing\b": "is initialised to the identity element, is initially empty",
    r"\bas often as\b": "once per",
    r"\bin vain\b": "without effect",
    r"\b(?:is|are|was|were|when) told\b(?! apart)": "gets, is given, is shown",
    r"\bwhere (?:they|it) lies?\b": "in place",
    r"\b(?:are|is) of use\b": "pays off, is useful",
    r"\bare dealt(?: out)?\b": "are cyclic, are distributed",
    r"\bmust know of all\b": "facts about",
    r"\bstands for several\b": "name the commands",
    r"\bhalf of what there was\b": "at most half the previous budget",
    r"\bwhat is given alike\b": "with the same signature",
    r"\bpassed all checks\b": "validated",
    r"\bthat is emitted can be outside\b": "in range by construction",
    r"\bworth launching\b": "resident at once",
}
FOLDERS = ("clhist", "cases", "strategies", "cli", "benchmarks", "soak", "kernels_cl")


def prose(path: Path) -> str:
    """Return the comments and docstrings of a file, a comment of several lines as one."""
    if path.suffix == ".mako":
        return " ".join(re.findall(r"(?:##|//)(.*)", path.read_text(encoding="utf-8")))
    said = [string.lstrip("# ") for _, string, _ in tokens_of(path) if string.startswith(("#", '"""'))]
    return re.sub(r"\s+", " ", " ".join(said))


@cache
def tokens_of(path: Path) -> list[tuple[int, str, int]]:
    """Return the `tokens` of a file, which is parsed once for several tests."""
    return tokens(path.read_text(encoding="utf-8"))


def tokens(text: str) -> list[tuple[int, str, int]]:
    """Return the type, text and line of comments, strings and names that are participles."""
    return [
        (token.type, token.string, token.start[0])
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type in (tokenize.COMMENT, tokenize.STRING) or token.string in PARTICIPLES
    ]


@pytest.mark.parametrize("folder", FOLDERS)
def test_comments(folder):
    paths = [path for path in sorted((ROOT / folder).rglob("*")) if path.suffix in (".py", ".mako")]
    assert paths
    wrong = []
    for path in paths:
        text = path.read_text(encoding="utf-8")
        # A docstring begins with a noun or a verb.
        wrong += [(path, line) for line in re.findall(r'^ *"""(?:What|Of) .*', text, re.MULTILINE)]
        said = prose(path)
        wrong += [(path, found[0], IN_COMMENTS[pattern]) for pattern in IN_COMMENTS if (found := search(pattern, said))]
    assert wrong == []


def search(pattern: str, said: str) -> re.Match[str] | None:
    return re.search(pattern, said, re.IGNORECASE)


def test_comments_are_found():
    said = prose(Path(__file__))
    assert "a comment of several lines as one" in said
    assert "What comments and docstrings may not say either" in said


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("It takes 120 us.", 1),
        ("Please send us the file.", 0),
        ("This was mended.", 1),
        ("An operator of your own is mended.", 2),
        ("10 bins that begin with nothing", 1),
    ],
)
def test_the_list_finds_what_it_is_for(text, count):
    assert len(problems(text)) == count


# Identifiers that say how a thing came about, not what it is: `plan`, `edges` or `kernel` says more.
PARTICIPLES = {"found", "given", "each", "known", "taken", "asked", "held", "kept", "apart"}
MOST_LINES = 14  # of the package and the command line that have one; it may only fall


def lines_with_participles(tokens: list[tuple[int, str, int]]) -> set[int]:
    """Return the numbers of the lines with such an identifier; strings and comments have none."""
    return {line for kind, string, line in tokens if kind == tokenize.NAME and string in PARTICIPLES}


def test_identifiers_are_nouns():
    paths = [
        path for folder in ("clhist", "cases", "strategies", "cli") for path in sorted((ROOT / folder).rglob("*.py"))
    ]
    lines = {str(path.relative_to(ROOT)): len(lines_with_participles(tokens_of(path))) for path in paths}
    number, where = sum(lines.values()), {path: count for path, count in lines.items() if count}
    names = ", ".join(sorted(PARTICIPLES))
    assert number <= MOST_LINES, (
        f"{number} lines, {MOST_LINES} allowed: give new identifiers other names than {names}; {where}"
    )


def test_identifiers_of_strings_do_not_count():
    text = 'found = 1  # each\nname = "given"\nkept.known = found_words\n'
    assert lines_with_participles(tokens(text)) == {1, 3}
