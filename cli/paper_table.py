"""`clhist plan --paper`: Table I of SC'20, computed by the model."""

from __future__ import annotations

from clhist._core.devices.profile import Profile, named_profile
from clhist._core.devices.profile_files import load_profiles
from clhist._core.model.paper import paper_plan
from clhist._core.model.plan import Plan
from clhist.cli.tables import grid, wrapped

DEVICE, SIZE = "nvidia-geforce-rtx-2080-ti", 50_000_000
UPDATES = {"HDW": "native", "CAS": "cas", "XCG": "lock"}
BIN_BYTES = {"HDW": 4, "CAS": 4, "XCG": 8}  # V-A: an int, and for XCG a tuple of two
LOCAL_BINS = (31, 127, 505, 2041, 6141, 12281, 24569, 49145)
GLOBAL_BINS = (12281, 24569, 49145, 196607, 393215, 786431, 1572863)
RACE_FACTORS = (1, 63)


def _plan(profile: Profile, name: str, bins: int, memory: str, race_factor: int) -> Plan:
    size = BIN_BYTES[name]
    return paper_plan(SIZE, bins, profile, UPDATES[name], memory, bin_bytes=size, race_factor=float(race_factor))


def table_1_records() -> dict[str, object]:
    """Return the entries of Table I for JSON: update, memory, bins and race factor with M and S."""
    profile = named_profile(DEVICE, load_profiles())
    cases = [(name, "local", bins, 1) for bins in LOCAL_BINS for name in UPDATES]
    cases += [(name, "global", bins, rf) for bins in GLOBAL_BINS for name in UPDATES for rf in RACE_FACTORS]
    entries = []
    for name, memory, bins, race_factor in cases:
        plan = _plan(profile, name, bins, memory, race_factor)
        numbers = {"bins": bins, "race_factor": race_factor, "copies": plan.copies, "passes": plan.passes}
        entries.append({"update": name, "memory": memory} | numbers)
    return {"profile": DEVICE, "num_elements": SIZE, "entries": entries}


def table_1() -> str:
    """Return both halves of Table I: copies M and passes S of each update, "M,S"."""
    profile = named_profile(DEVICE, load_profiles())

    def entry(name: str, bins: int, memory: str, race_factor: int) -> str:
        plan = _plan(profile, name, bins, memory, race_factor)
        return f"{plan.copies},{plan.passes}"

    local = [(f"{bins:,}", *(entry(name, bins, "local", 1) for name in UPDATES)) for bins in LOCAL_BINS]
    pairs = [(name, factor) for name in UPDATES for factor in RACE_FACTORS]
    shared = [(f"{bins:,}", *(entry(name, bins, "global", rf) for name, rf in pairs)) for bins in GLOBAL_BINS]
    return "\n".join(
        [
            wrapped(f"Table I of SC'20: copies and passes M,S for {SIZE:,} elements on {profile.name}"),
            "\nIn local memory",
            grid([("H", *UPDATES), *local], left=(), indent=2),
            "\nIn global memory, by race factor",
            grid([("H", *(f"{name} RF {factor}" for name, factor in pairs)), *shared], left=(), indent=2),
        ]
    )
