"""Text and files that are not ours: C goes to the compiler as it is, everything else is data and is never run."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import numpy as np
import pytest

import clhist
from clhist import HistogramKernel, Operator, ProfileError, operators
from clhist._core.devices.profile_files import load_profiles, parse_profile

pytestmark = pytest.mark.usefixtures("without_optimizer")

# What Mako would take for its own at the beginning of a line, or anywhere.
TEMPLATE = r"""
${1/0} ${'$'}{x} $${y}
<% raise SystemExit %> <%! import os %> <%def name="a()"> </%def> <%include file="/etc/passwd"/> <%text>
% if True:
% endif
%% percent
## a comment of Mako
<%doc> gone </%doc>
"""
COMMENT = f"/*{TEMPLATE}*/"


def lines_of(text):
    return [line for line in text.splitlines() if line.strip()]


@pytest.mark.parametrize("update", ["native", "cas", "lock", "private", "sort"])
def test_templates_see_no_text_of_the_caller_s_as_source(update, profile):
    """Wherever text is taken: it reaches the compiler as it was given, and is a comment there."""
    operator = Operator(
        np.int32,
        f"a {COMMENT} + b",
        0,
        "sum ${1/0}",
        accumulator=np.int32,
        lift=f"v {COMMENT}",
        finish=f"a {COMMENT}",
        preamble=COMMENT,
    )
    if update == "native":
        operator = Operator(np.int32, "a + b", 0, "sum ${1/0}", preamble=COMMENT)
    kernel = HistogramKernel(
        None,
        operator,
        arguments="const int *x",
        map=f"{COMMENT} EMIT(x[i], 1)",
        preamble=f"{COMMENT}\n#define FIVE 5",
        profile=profile,
    )
    x = np.arange(1000, dtype=np.int32) % 5
    assert kernel(x, num_bins=5, update=update).tolist() == [200] * 5
    source = kernel.source(kernel.plan(x.size, 5, update=update)).splitlines()
    for line in lines_of(TEMPLATE):
        assert line in source


def test_templates_of_partitioning(gpu_like):
    kernel = HistogramKernel(
        None,
        operators.count(),
        arguments="const int *x",
        map=f"EMIT(x[i], 1); {COMMENT}",
        preamble=COMMENT,
        profile=gpu_like,
    )
    x = np.arange(20_000, dtype=np.int32) % 1000
    assert (kernel(x, num_bins=1000, memory="partitioned") == 20).all()


def test_an_empty_line_still_ends_a_macro():
    """Empty lines of the templates are left out of what compilers see; after a backslash one has a meaning."""
    kernel = HistogramKernel(
        None,
        operators.count(),
        arguments="const int *x",
        map="EMIT(x[i] - ONE, twice(1))",
        preamble="#define ONE \\\n    1 \\\n\n\n\nint twice(int a) { return 2 * a; }",
    )
    assert kernel(np.array([1, 2, 2], np.int32), num_bins=2).tolist() == [2, 4]


@pytest.mark.parametrize(
    "arguments", ["const int *x; int y", "const int *x, int ${y}", "const int *x) { } void f(int y", "int x = 1"]
)
def test_arguments_are_declarations_and_nothing_else(arguments):
    with pytest.raises((TypeError, ValueError), match=r"^arguments: "):
        HistogramKernel(None, operators.count(), arguments=arguments, map="EMIT(0, 1)")


def test_names_are_identifiers():
    pair = np.dtype([("x", np.int32)], align=True)
    for name in ("a; b", "a${b}", "a b", "1a", "a\n"):
        with pytest.raises((TypeError, ValueError)):
            HistogramKernel(None, {name: operators.count()}, arguments="", map="EMIT_a(0, 1)")
        with pytest.raises((TypeError, ValueError)):
            Operator(np.dtype([(name, np.int32)], align=True), "a.x + b.x", (0,))
        with pytest.raises((TypeError, ValueError)):
            HistogramKernel(None, operators.count(), arguments="", map="EMIT(0, 1)", structs={name: pair})


# Files.

PROFILE = """
name = "Device"
kind = "gpu"
level = "vendor"
match = ["Device"]
l2_cache = {{ value = {value}, source = "here" }}
"""


@pytest.mark.parametrize("value", [str(2**63), "1" * 400, "1" * 5000, "1e999", "nan", "[" * 100_000])
def test_numbers_of_profiles(value):
    with pytest.raises(ProfileError, match=r"^there\.toml: "):
        parse_profile(PROFILE.format(value=value), "there.toml")


@pytest.mark.parametrize("value", ["inf", "nan", "-1.0", "true"])
def test_measured_numbers_of_profiles(value):
    measured = f'[measured.copy]\nvalue = {value}\nspread = 0.0\nunit = "s"\nmethod = ""\ndate = ""\ndriver = ""\n'
    with pytest.raises(ProfileError, match=r"^there\.toml: measured\.copy\.value: expected "):
        parse_profile(PROFILE.format(value=1) + measured, "there.toml")


def test_a_profile_that_is_too_large(monkeypatch, tmp_path):
    monkeypatch.setenv("CLHIST_PROFILES", str(tmp_path))
    with (tmp_path / "large.toml").open("wb") as file:
        file.truncate(2**30)  # takes no room on the disk, and would in memory
    with pytest.raises(ProfileError, match=r"large\.toml: expected at most 1048576 bytes, got 1073741824$"):
        load_profiles()


def test_nothing_is_run_or_unpickled():
    """No call in the package can: not of Python's own, and not of NumPy's."""
    forbidden = {"eval", "exec", "compile", "__import__", "system", "popen", "load", "loads"}
    allowed = {("re", "compile"), ("tomllib", "loads"), ("json", "loads"), ("json", "load"), ("np", "load")}
    allowed |= {("Partial", "load")}
    root = Path(clhist.__file__).parent
    folders = root, *(root.parent / name for name in ("cases", "strategies", "cli"))
    files = [path for folder in folders for path in folder.rglob("*.py")]
    assert len(files) > 50
    words = rf"\b({'|'.join(forbidden)}|read_array|fromfile|shell|pickle|marshal|shelve|yaml)\b"
    for file in files:
        text = file.read_text(encoding="utf-8")
        if not re.search(words, text):  # parsing all files takes seconds
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call):
                call = ast.unparse(node.func).split(".")
                keywords = {keyword.arg: keyword.value for keyword in node.keywords}
                assert call[-1] not in forbidden or tuple(call[-2:]) in allowed, f"{file}: {ast.unparse(node)}"
                if call[-1] in ("read_array", "fromfile") or call == ["np", "load"]:
                    assert ast.unparse(keywords["allow_pickle"]) == "False", f"{file}: {ast.unparse(node)}"
                assert "shell" not in keywords, f"{file}: {ast.unparse(node)}"
            if isinstance(node, ast.Import | ast.ImportFrom):
                names = {alias.name for alias in node.names} | {getattr(node, "module", None)}
                checks = {"pickle"} if file.parts[-2:] == ("dask", "tree.py") else set()  # whether something can be
                assert not names & {"pickle", "marshal", "shelve", "yaml"} - checks, f"{file}: {ast.unparse(node)}"
