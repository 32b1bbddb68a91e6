"""Profiles whose launches take so long that one work-group does all in one, wherever a plan may."""

from __future__ import annotations

from dataclasses import replace

from clhist import Profile
from clhist._core.model.private import GRID, KINDS, cells_name
from clhist._core.model.times import BANDWIDTH, CELLS, COUNT, LAUNCH, ONE_PASS, SHORT, VALUES, rate_name

_UPDATES = (
    COUNT,
    *(f"native {kind}{bits}" for kind in ("int", "float") for bits in (32, 64)),
    "cas 32",
    "cas 64",
    "lock",
)


def eager(profile: Profile, launch: float = 1e12) -> Profile:
    """Return `profile` with rates of 1, and a launch of so many microseconds."""
    names = [CELLS, BANDWIDTH, SHORT, *VALUES.values(), *(rate_name(update, ONE_PASS) for update in _UPDATES)]
    names += [cells_name(kind, cells) for kind in KINDS for cells in GRID]
    return replace(profile, rates=dict.fromkeys(names, 1.0) | {LAUNCH: launch})
