"""Kernel sources of every strategy, update, vendor and order, by name; see tests/unit/golden.

python tests/support/golden_sources.py                  list them with their digests
python tests/support/golden_sources.py local lock       print those whose names have these words in them
python tests/support/golden_sources.py --into DIRECTORY write each into a file, to compare two commits by diff -r
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from eager import eager
from golden import digests
from sources import COUNTS, OPERATORS, WEIGHT, Call, combine_source, device, kernel_sources

from clhist._core.kernels.render import render_selection
from clhist._core.model.feature import CyclicPasses, PackedCounters
from clhist.statistics.selection_texts import CPU, GPU, Order
from clhist.statistics.selection_texts import texts as selection_texts

FIRST, TWICE = "EMIT(x[i], ((value_t){x[i], i}))", "EMIT(x[i], 1); EMIT(x[i] + 1, 2)"
SUM, WIDE, DOUBLE, ARGMAX = (OPERATORS[f"{n}"] for n in ("add float32", "add int64", "add float64", "argmax int64"))


def shared(memory: str) -> dict[str, tuple[str, Call]]:
    """Return calls whose work-items share copies in `memory`: each update, operator, vendor and order."""
    return {
        f"{vendor}, {update}, {name}": (
            vendor,
            Call(OPERATORS[name], code, choices={"memory": memory, "update": update, "copies": 2}),
        )
        for vendor, update, name, code in (
            ("core", "native", "add int32", "EMIT(x[i], 1)"),
            ("core", "cas", "saturating_add uint8", WEIGHT),
            ("core", "lock", "argmax int64", FIRST),
            ("core", "lock", "mean float32", WEIGHT),
            ("nvidia", "native", "add float32", WEIGHT),
            ("nvidia", "native", "add int64", WEIGHT),
            ("nvidia", "carry", "reproducible_add float32, a window", WEIGHT),
            ("nvidia", "cas", "argmax float32", FIRST),
            ("nvidia", "lock", "argmax int64", FIRST),
            ("amd", "native", "fmin float32", WEIGHT),
            ("amd", "native", "add float64", WEIGHT),
            ("amd", "carry", "reproducible_add float64, a window", WEIGHT),
            ("amd", "cas", "multiply float32", WEIGHT),
            ("amd", "lock", "variance float32", WEIGHT),
            ("intel", "native", "add float32", WEIGHT),
            ("intel", "cas", "maximum int8", WEIGHT),
            ("intel", "lock", "argmax int64", FIRST),
            ("cpu", "native", "add int32", WEIGHT),
            ("cpu", "cas", "add float64", WEIGHT),
            ("cpu", "lock", "argmax int64", FIRST),
        )
    }


def private() -> dict[str, tuple[str, Call]]:
    """Return calls that have a copy for each work-item."""
    return {
        f"{vendor}, {memory}, {name}": (
            vendor,
            Call(OPERATORS[name], code, bins=20, choices={"update": "private", "memory": memory}),
        )
        for vendor, memory, name, code in (
            ("cpu", "global", "add float32", WEIGHT),
            ("cpu", "local", "add float32", WEIGHT),
            ("cpu", "global", "reproducible_add float32", WEIGHT),
            ("cpu", "global", "logical_or bool", "EMIT(x[i], 1)"),
            ("core", "global", "add int32", "EMIT(x[i], 1)"),
            ("core", "local", "mean float32", WEIGHT),
            ("nvidia", "local", "argmax float32", FIRST),
        )
    } | {
        f"{vendor}, uint8 in {bins} bins": (vendor, Call(COUNTS, "EMIT(y[i], 1)", more="const uchar *y", bins=bins))
        for vendor, bins in (("cpu", 256), ("cpu", 255))
    }


PARTITIONED = {"memory": "partitioned"}
STRATEGIES = {
    "private": private(),
    "local": shared("local"),
    "global": shared("global"),
    "packed": {
        vendor: (vendor, Call(COUNTS, bins=18_000, choices={"counter_bits": 16}))
        for vendor in ("nvidia", "core", "amd")
    } | {
        f"{vendor}, {bits} bits, {bins} bins": (vendor, Call(COUNTS, bins=bins, choices={"counter_bits": bits}))
        for vendor, bits, bins in (("nvidia", 8, 30_000), ("core", 4, 1_000_000))
    },
    "cyclic passes": {
        f"{vendor}, {name}": (
            vendor,
            Call(OPERATORS[name], code, bins=30_000, choices={"memory": "local", "pass_order": "side by side"}),
        )
        for vendor, name, code in (("nvidia", "add float32", WEIGHT), ("core", "argmax int64", FIRST))
    },
    "partitioned": {
        "nvidia, counts": ("nvidia", Call(COUNTS, bins=100_000, choices=PARTITIONED)),
        "nvidia, add float32": ("nvidia", Call(SUM, WEIGHT, bins=100_000, choices=PARTITIONED)),
        "nvidia, lock": ("nvidia", Call(ARGMAX, FIRST, bins=10_000, choices=PARTITIONED)),
        "core, cas": ("core", Call(SUM, WEIGHT, bins=100_000, choices={**PARTITIONED, "update": "cas"})),
        "cpu, counts": ("cpu", Call(COUNTS, bins=100_000, choices=PARTITIONED)),
        "cpu, argmax int64": ("cpu", Call(ARGMAX, FIRST, bins=100_000, choices=PARTITIONED)),
        "amd, one value for all": (
            "amd",
            Call(WIDE, "EMIT(x[i], c)", more="const long c", bins=50_000, choices=PARTITIONED),
        ),
    },
    "sort": {
        "nvidia, add float32": ("nvidia", Call(SUM, WEIGHT, choices={"update": "sort"})),
        "cpu, argmax int64": ("cpu", Call(ARGMAX, FIRST, choices={"update": "sort"})),
        "core, two values of an element": ("core", Call(COUNTS, TWICE, choices={"update": "sort"})),
    },
    "rows": {
        f"{vendor}, {name}, {d}, {size // d} rows": (
            vendor,
            Call(OPERATORS[name], f"EMIT(x[i / {d}] * {d} + i % {d}, w[i])", size=size, bins=bins * d, components=d,
                 choices={"update": "gather"}),
        )
        for vendor, name, d, size, bins in (
            ("cpu", "add float32", 64, 2**20, 10),
            ("cpu", "add float32", 5, 5000, 5000),
            ("nvidia", "add float32", 64, 2**26, 10**5),
            ("nvidia", "add int64", 3, 3000, 500),
            ("nvidia", "reproducible_add float32", 64, 2**26, 10**5),
            ("core", "fmin float32", 5, 5 * 2**20, 1000),
        )
    }
    | {
        "nvidia, add float32, 4, by atomics with a fallback": (
            "nvidia",
            Call(SUM, "EMIT(x[i / 4] * 4 + i % 4, w[i])", size=2**22, bins=400_000, components=4),
        ),
    },
    "batches": {
        "nvidia, equal": ("nvidia", Call(COUNTS, bins=50, histograms=1000)),
        "nvidia, equal, float": ("nvidia", Call(SUM, WEIGHT, bins=50, histograms=1000, choices={"memory": "local"})),
        "nvidia, ragged": ("nvidia", Call(COUNTS, bins=50, histograms=1000, ragged=True)),
        "nvidia, ragged, global": (
            "nvidia", Call(COUNTS, bins=50, histograms=1000, ragged=True, choices={"memory": "global"}),
        ),
        "nvidia, flattened": ("nvidia", Call(COUNTS, bins=100_000, histograms=20)),
        "cpu, equal": ("cpu", Call(COUNTS, bins=50, histograms=1000)),
        "cpu, ragged": ("cpu", Call(COUNTS, bins=50, histograms=1000, ragged=True)),
    },
    "maps": {
        "nvidia, wide loads": ("nvidia", Call(COUNTS, WEIGHT)),
        "nvidia, arrays anywhere": ("nvidia", Call(COUNTS, WEIGHT, aligned=False)),
        "nvidia, elements in 64 bits": ("nvidia", Call(COUNTS, size=2**33)),
        "nvidia, a loop": ("nvidia", Call(COUNTS, "for (int k = 0; k < n; ++k) EMIT(x[i] + k, 1)", more="int n")),
        "nvidia, a function": ("nvidia", Call(COUNTS, "EMIT(half(x[i]), 1)", "int half(int v) { return v / 2; }")),
        "nvidia, two outputs": (
            "nvidia", Call({"n": COUNTS, "most": OPERATORS["maximum int8"]}, "EMIT_n(x[i], 1); EMIT_most(x[i], x[i])"),
        ),
        "nvidia, outputs of two sweeps": (
            "nvidia", Call({"n": COUNTS, "most": ARGMAX}, "EMIT_n(x[i], 1); EMIT_most(x[i], ((value_most_t){x[i], i}))",
                           bins=12_000),
        ),
        "cpu, a loop": ("cpu", Call(COUNTS, "for (int k = 0; k < n; ++k) EMIT(x[i] + k, 1)", more="int n")),
    },
}  # fmt: skip
FEW = {
    "cpu, count": ("cpu", Call(COUNTS, bins=20, size=100)),
    "cpu, a function": ("cpu", Call(DOUBLE, WEIGHT, "#define total 1", bins=20, size=100)),
    "nvidia, add float32": ("nvidia", Call(SUM, WEIGHT, size=100, choices={"memory": "local"})),
    "core, lock": ("core", Call(ARGMAX, FIRST, size=100, choices={"memory": "local", "update": "lock"})),
}
COMBINED = {
    "add int32": ("add int32", {}),
    "add float32, 16 rows": ("add float32", {"columns": 32, "rows": 16}),
    "add float32, of a CPU": ("add float32", {"order": "blocked", "columns": 1}),
    "mean float32, of an equal batch": ("mean float32", {"batch": "equal", "columns": 128, "rows": 4}),
    "add int32, of a ragged batch, dest is partial": ("add int32", {"batch": "ragged", "dest_is_partial": True}),
    "add int32, the largest bin": ("add int32", {"largest_bin_condition": "total != 0"}),
    "add int32, the largest bin, of a CPU": (
        "add int32", {"largest_bin_condition": "total != 0", "order": "blocked", "columns": 1},
    ),
    "variance float32, partial, whole accumulators": (
        "variance float32", {"dest_is_partial": True, "out_is_partial": True, "whole": True},
    ),
    "argmax int64, an array for each field": (
        "argmax int64", {"fields": (("value", "long"), ("index", "long"))},
    ),
    "reproducible_add float32, 4 rows": ("reproducible_add float32", {"rows": 4, "columns": 128}),
    "counters of 16 bits": ("add int32", {"features": (PackedCounters(16),), "columns": 64, "rows": 8}),
    "counters of 4 bits, of a ragged batch, the largest bin": (
        "add int32",
        {
            "features": (PackedCounters(4),), "columns": 64, "rows": 8, "batch": "ragged",
            "largest_bin_condition": "total != 0",
        },
    ),
    "add float32, cyclic passes": ("add float32", {"features": (CyclicPasses(),)}),
}  # fmt: skip
_REAL = np.dtype("f8")
ORDERS = {
    "float32 in groups of int32": Order(np.dtype("i4"), np.dtype("f4"), np.dtype("f4"), _REAL),
    "float64 in groups of int32, nan": Order(np.dtype("i4"), _REAL, _REAL, _REAL, "propagated"),
    "int16 in groups of uint8": Order(np.dtype("u1"), np.dtype("i2"), _REAL, _REAL),
    "float32, quantile": Order(np.dtype("i4"), np.dtype("f4"), np.dtype("f4"), _REAL, is_median=False),
    "float64, weighted quantile": Order(np.dtype("i4"), _REAL, _REAL, _REAL, is_median=False, weights=np.dtype("f4")),
    "different float64": Order(np.dtype("i4"), _REAL, np.dtype("i8"), _REAL, counts=True),
}

# Of each strategy and order one source is stored in full, as a file of this name; of all others a digest.
IN_FULL = {
    "private.cl": ("private: cpu, global, add float32: sweep",),
    "local.cl": ("local: nvidia, native, add float32: sweep",),
    "global.cl": ("global: nvidia, lock, argmax int64: sweep",),
    "packed.cl": ("packed: nvidia: sweep",),
    "partitioned.cl": ("partitioned: nvidia, counts: split and index",),
    "cyclic_passes.cl": ("cyclic passes: core, argmax int64: sweep",),
    "sort.cl": ("sort: nvidia, add float32: pairs", "sort: nvidia, add float32: scan of sorted pairs"),
    "rows.cl": ("rows: cpu, add float32, 5, 1000 rows: rows",),
    "batch.cl": ("batches: nvidia, equal: sweep",),
    "one_launch.cl": ("one launch: cpu, count: sweep",),
    "combine.cl": ("combine: add float32, 16 rows",),
    "selection.cl": ("selection: gpu, float32 in groups of int32",),
    "sorted_by_group.cl": ("selection: sorted by group, float32, quantile",),
}


def sources() -> dict[str, str]:
    """Return all sources by name."""
    found = {
        f"{strategy}: {call}: {program}": source
        for strategy, calls in STRATEGIES.items()
        for call, (vendor, asked) in calls.items()
        for program, source in kernel_sources(asked, device(vendor))
    }
    found |= {
        f"one launch: {call}: {program}": source
        for call, (vendor, asked) in FEW.items()
        for program, source in kernel_sources(asked, eager(device(vendor)))
    }
    found |= {
        f"combine: {name}": combine_source(OPERATORS[operator], **changed)
        for name, (operator, changed) in COMBINED.items()
    }
    for name, order in ORDERS.items():
        for recipe, vendor in () if order.counts else ((GPU, "gpu"), (CPU, "cpu")):
            parts = vars(selection_texts(order, recipe))
            found[f"selection: {vendor}, {name}"] = "\n\n".join(f"// {part}\n{text}" for part, text in parts.items())
        if order.weights is None:
            found[f"selection: sorted by group, {name}"] = render_selection(order)
    return found


def main(*arguments: str) -> int:
    """List all sources, show those whose names have a text in them, or write all into a directory."""
    texts = sources()
    if arguments[:1] == ("--into",):
        directory = Path(arguments[1])
        directory.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            (directory / f"{name}.cl").write_text(text, encoding="utf-8")
        return 0
    chosen = {name: text for name, text in texts.items() if all(word in name for word in arguments)}
    print("\n".join(f"// === {name}\n{text}" for name, text in chosen.items()) if arguments else digests(texts))
    return 0 if chosen else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
