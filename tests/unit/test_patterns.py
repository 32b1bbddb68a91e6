"""Patterns of profiles: words of a device's name."""

from __future__ import annotations

import pytest

from clhist._core.devices.profile_files import MOST_CHARACTERS, exactly, load_profiles, occurs, parse_profile
from clhist.errors import ProfileError


@pytest.mark.parametrize(
    ("pattern", "names", "others"),
    [
        ("A100", ["NVIDIA A100-SXM4-80GB", "a100", "A100 80GB PCIe"], ["NVIDIA A100X", "GA100", "A1 00", ""]),
        ("RX 7900 XT", ["AMD Radeon RX 7900 XT", "Radeon RX-7900 (XT)"], ["RX 7900 XTX", "RX XT 7900", "RX 7900 X XT"]),
        ("Arc(TM) A770", ["Intel(R) Arc(TM) A770 Graphics", "Intel Arc TM A770"], ["Intel(R) Arc(TM) A770M Graphics"]),
        ("gfx94#", ["gfx942:sramecc+:xnack-", "GFX940"], ["gfx94", "gfx94a", "gfx9421"]),
        ("gfx94#*", ["gfx942", "gfx9421", "gfx942_x"], ["gfx94", "gfx94a"]),
        ("RTX 40#0*", ["RTX 4090", "RTX 4080S", "rtx 4070ti super"], ["RTX 409", "RTX4090"]),
        ("neoverse*", ["neoverse-n1", "Neoverse", "neoversev1"], ["Arm neo verse"]),
        ("Intel * amx", ["Intel amx", "GenuineIntel Intel family 6 amx avx2"], ["amx Intel", "Intel amx_2"]),
        ("a * b c * d", ["a b c d", "x a b b c y d z", "a b x b c d"], ["a b x c d", "a d b c", "a b c"]),
        ("^AMD$", ["AMD", " amd "], ["AMD Radeon", "pthread-AMD"]),
        ("^gfx11##", ["gfx1100:x"], ["AMD gfx1100"]),
        ("RTX 2070$", ["NVIDIA GeForce RTX 2070", "RTX 2070 RTX 2070"], ["RTX 2070 SUPER", "RTX 2070 with Max-Q"]),
        ("H100 !MIG !PCIe", ["NVIDIA H100 80GB HBM3"], ["NVIDIA H100 PCIe", "MIG H100", "NVIDIA H200"]),
        ("RX 580 !580 2048*", ["RX 580", "RX 580 Series", "2048 RX 580"], ["RX 580 2048SP"]),
        ("Mali-G7#", ["Mali-G77 r0p1", "ARM Mali-G78"], ["Mali-G710", "Mali-G7"]),
        ("é", ["Été É"], ["e"]),
    ],
)  # fmt: skip
def test_words_of_a_name(pattern, names, others):
    for name in names:
        assert occurs(pattern, name), name
    for name in others:
        assert not occurs(pattern, name), name


def test_the_pattern_of_a_name():
    names = ["AMD EPYC", "pthread-AMD EPYC", "Intel(R) Core(TM) i7-9700 CPU @ 3.00GHz", "Mesa [0x3e92] (rev #1) a*|b!"]
    for name in names:
        assert [other for other in names if occurs(exactly(name), other)] == [name]


def test_profiles_of_families_have_no_device_of_another():
    """Devices have patterns of their family: words that a pattern of another family shares would take them."""
    families = [file for file in load_profiles() if file.level == "architecture"]
    for name in ("Intel(R) Arc(TM) Pro A40 Graphics", "Intel(R) Arc(TM) B580 Graphics"):
        assert len([file.key for file in families if file.matches(name)]) == 1, name


@pytest.mark.parametrize("pattern", ["a * " * 100 + "b", "* " * 200 + "q", "#* " * 150 + "x", "a* " * 99 + "b"])
def test_no_pattern_takes_long(pattern):
    assert not occurs(pattern, "a " * 249 + "c")


ALL = "expected some words of a name, since others match every device"
REGULAR = "not a regular expression"
REFUSED = {
    **dict.fromkeys(("", "(", "*", "#* *", "^$", "A100 !", "!MIG", "a ! * !b"), ALL),
    **dict.fromkeys((r"\bH100\b", "A(2|10)", "6600(?! XT)", r"gfx94\d", "gfx80[0-3]", ".*", "(ab)*", "Ge.+"), REGULAR),
    "x" * (MOST_CHARACTERS + 1): "expected at most 500 characters, got 501",
}


@pytest.mark.parametrize(("pattern", "reason"), REFUSED.items())
def test_what_is_no_pattern_is_refused(pattern, reason):
    with pytest.raises(ValueError, match=reason):
        occurs(pattern, "x")
    text = f"name = 'x'\nkind = 'gpu'\nlevel = 'vendor'\nmatch = ['''{pattern}''']\n"
    with pytest.raises(ProfileError, match=rf"^there\.toml: match: expected patterns of names \(.*{reason}"):
        parse_profile(text, "there.toml")


def test_the_number_of_patterns_is_limited():
    with pytest.raises(ProfileError, match=r"^there\.toml: match: expected at most 64 patterns, got 65$"):
        parse_profile(f"name = 'x'\nkind = 'gpu'\nlevel = 'vendor'\nmatch = {['a'] * 65}\n", "there.toml")
