"""Patterns of profiles: what `re` finds, in time that is bounded."""

from __future__ import annotations

import random
import re

import pytest

from clhist._core.devices.patterns import occurs, pattern
from clhist._core.devices.profile_files import load_profiles, parse_profile
from clhist.errors import ProfileError

NAMES = [
    "NVIDIA H100 PCIe",
    "NVIDIA A100-SXM4-40GB MIG 1g.5gb",
    "Radeon RX 6600 XT",
    "AMD Instinct MI250X/MI250",
    "Intel(R) Arc(TM) A770 Graphics",
    "Intel(R) UHD Graphics 630 [0x3e92]",
    "gfx90a:sramecc+:xnack-",
    "radeonsi, navi23, LLVM 15",
    "pthread-skylake-avx512-AMD EPYC 7B13",
    "GenuineIntel cpu family 6 model 143 amx_bf16",
    "Apple M2 Max",
    "",
    "a\nb",
]


def test_shipped_patterns_find_what_re_finds():
    every = {each for file in load_profiles() for each in file.match}
    assert len(every) > 100
    for expression in every:
        plain = re.sub(r"\\(.)|[()?|\[\]^$]", lambda match: match[1] or "", expression)  # about what it looks for
        for name in (*NAMES, plain, f"NVIDIA {plain} Ti", plain.lower(), f"x{plain}x"):
            assert occurs(expression, name) == bool(re.search(expression, name, re.IGNORECASE)), (expression, name)


PARTS = [
    "a",
    "b",
    "A",
    ".",
    "[ab]",
    "[^a]",
    "[0-9a]",
    r"\d",
    r"\W",
    r"\b",
    r"\B",
    "^",
    "$",
    "(a|b)",
    "(?:ab|)",
    "(?!a)",
]
PARTS += ["(?=b.)", "(?<!a)", "(?<=ab)", r"\.", "-", r"[\d\]-]", "{", "(a(b|c)?)"]


def test_random_patterns_find_what_re_finds():
    rng = random.Random(1)
    found = 0
    for _ in range(4000):
        expression = "".join(
            part + rng.choice(["", "", "", "*", "+", "?", "{2}", "{1,3}", "{,2}", "{2,}?"] if is_simple else [""])
            for part in rng.choices(PARTS, k=rng.randrange(1, 6))
            for is_simple in [part not in (r"\b", r"\B", "^", "$", "{") and "(?" not in part]
        )
        if rng.random() < 0.2:
            expression += "|" + rng.choice(PARTS)
        try:
            pattern(expression)
        except ValueError:
            continue
        for _ in range(5):
            text = "".join(rng.choices("abAB1-._{\n", k=rng.randrange(1, 12)))  # of "", versions of `re` differ
            expected = bool(re.search(expression, text, re.IGNORECASE))
            assert occurs(expression, text) == expected, (expression, text)
            found += expected
    assert found > 1000


@pytest.mark.parametrize(
    "expression",
    [
        "(.*.*.*.*.*.*.*)*q",
        "(a+)+b",
        "(a|a)*b",
        "(a*)*b",
        ".*" * 200 + "q",
        "a?" * 100 + "a" * 100 + "b",
        "(?:a?){100}a{100}b",
        "(?=(?=a*b)a*b)",
        "(((a{100}){100}){100}){100}",
        "(?=.*q)" * 60,
        "(" * 400,
        "a{99999999}",
        "x" * 10_000,
        "(?:" * 30 + ")" * 30,
        "((?!.*q)a)*b",
        "|" * 400,
        "(|||||||||)" * 40 + "*",
    ],
)
def test_no_pattern_takes_long(expression):
    # With `re` these do not end: the run's watchdog would end this test.
    try:
        found = occurs(expression, "a" * 3000)
    except ValueError:  # refused
        return
    assert not found or "q" not in expression


@pytest.mark.parametrize(
    "expression", ["(", ")", "a)", "[a", "*", "a**", "a{3}{3}", r"(a)\1", "(?P<x>a)", "(?i)a", "\\", "[b-a]", r"\Z"]
)
def test_what_is_no_pattern_is_refused(expression):
    with pytest.raises(ValueError, match=r"\S"):
        pattern(expression)
    text = f"name = 'x'\nkind = 'gpu'\nlevel = 'vendor'\nmatch = ['''{expression}''']\n"
    with pytest.raises(ProfileError, match=r"^there\.toml: match: expected a regular expression \("):
        parse_profile(text, "there.toml")


def test_a_profile_whose_pattern_takes_too_long_is_named():
    text = "name = 'x'\nkind = 'gpu'\nlevel = 'vendor'\nmatch = ['" + "(?=.*q)" * 60 + "']\n"
    with pytest.raises(ProfileError, match=r"^there\.toml: match: expected a simpler"):
        parse_profile(text, "there.toml").matches("aq" * 250)
    with pytest.raises(ProfileError, match=r"^there\.toml: match: expected at most 64 regular expressions, got 65$"):
        parse_profile(f"name = 'x'\nkind = 'gpu'\nlevel = 'vendor'\nmatch = {['a'] * 65}\n", "there.toml")
