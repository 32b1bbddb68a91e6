"""Calls drawn at random over all that is documented: operators, forms, arrays, choices, simulated devices, data.

A `Setting` is a plain value; `soak.program` makes a program of it. Neighbouring numbers of one seed share
what kernels are compiled for, since that takes longer than running them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Any

from soak.operators import CUSTOM, INTEGERS, KINDS, STRUCTS, UFUNCS, DrawnOperator, draw_operator

FORMS = ("reduce", "kernel", "several", "stream", "bincount")
UPDATES = ("private", "native", "cas", "lock", "sort")
MEMORIES = ("local", "global", "partitioned")
LAYOUTS = ("flat", "vectors", "rows", "ragged", "shape")
ARRAYS = ("plain", "view", "strided", "read-only", "byte-swapped", "device", "device view")
VALUES = ("array", "scalar", "fields", "positions", "narrow")
WORK_GROUPS = (1, 1, 2, 2, 3, 7, 16, 32, 48, 64, 100, 128, 256)
SAME_KERNELS = 12  # calls one after the other
_FORM_WEIGHTS = (30, 40, 8, 20, 2)
_LARGE_BINS = 300_000
_WIDENED = ("add", "minimum", "maximum", "fmin", "fmax", "mean")

Choices = tuple[tuple[str, Any], ...]


@dataclass(frozen=True)
class Setting:
    """One call, as a plain value.

    Attributes
    ----------
    seed : int
        Of its data.
    form : str
        One of `FORMS`.
    operators : tuple of DrawnOperator
        One; of "several" more; of a "bincount" none.
    index : str
        Dtype of the indices.
    layout : str
        One of `LAYOUTS`.
    values : str
        One of `VALUES`; of a "bincount" a dtype, or "" for counts.
    profile : tuple of (str, value)
        What a simulated device has instead of the own; empty for the own.
    choices : tuple of (str, value)
        What is forced.
    size, bins : int
        N, H.
    distribution : str
        One of `DISTRIBUTIONS`.
    special : bool
        Whether there are NaN, infinities and -0 among floats.
    arrays : str
        One of `ARRAYS`.
    count : int
        Components of a vector, histograms of a batch, or the first dimension of a shape.
    emits : int
        Values of an element, of a "kernel".
    dest : bool
        Whether bins begin with values.
    out : str
        "", "new" or "dest".
    times : int
        How often the call is made.
    chunks, chunk_bytes : int
        Pieces of a "stream".
    mapped, merged : bool
        Whether a stream is that of a kernel with a map, and in two parts that are merged. Whether several operators
        are a mapping.
    reproducible : str
        "", "found" or "given": whether sums are reproducible, and where their largest value comes from.
    """

    seed: int
    form: str
    operators: tuple[DrawnOperator, ...]
    index: str
    layout: str
    values: str
    profile: Choices
    choices: Choices
    size: int
    bins: int
    distribution: str
    special: bool
    arrays: str
    count: int
    emits: int
    dest: bool
    out: str
    times: int
    chunks: int
    chunk_bytes: int
    mapped: bool
    merged: bool
    reproducible: str

    def covers(self) -> Iterator[tuple[str, str]]:
        """Yield what the call is an example of."""
        forced = dict(self.choices)
        yield "form", self.form
        yield "update", forced.get("update", "chosen")
        yield "memory", forced.get("memory", "chosen")
        for op in self.operators:
            yield "operator", op.kind
        yield "layout", self.layout
        yield "arrays", self.arrays
        yield "values", self.values
        yield "index", self.index
        yield "device", dict(self.profile).get("kind", "own")
        size = forced.get("work_group_size")
        yield "work-group", "chosen" if size is None else "1 or 2" if size < 3 else "odd" if size % 16 else "even"
        for name in ("copies", "passes", "locks", "memory_budget", "race_factor"):
            if name in forced:
                yield "forced", name
        yield from (("also", name) for name in ("dest", "merged", "mapped", "special") if getattr(self, name))

    def __str__(self) -> str:
        what = ", ".join(f"{op.kind} {' '.join(op.types)}" for op in self.operators) or self.values or "counts"
        forced = "".join(f" {name}={value!r}" for name, value in self.choices)
        device = f" as {dict(self.profile)['kind']}" if self.profile else ""
        return (
            f"{self.form} {what} ({self.layout}, {self.arrays} {self.values}, {self.index}){device}{forced}, "
            f"N = {self.size}, H = {self.bins}, {self.distribution}"
        )


DISTRIBUTIONS = (
    "uniform",
    "uniform, some outside",
    "all in one",
    "all in the last",
    "half in one",
    "one of two",
    "sorted",
    "reversed",
    "skewed",
    "all outside",
    "anything",
)


def draw(seed: int, number: int, fp64: bool = True) -> Setting:
    """Return the setting of this number, which is the same for the same seed; `fp64` allows double precision."""
    family, own = Random(f"{seed} {number // SAME_KERNELS}"), Random(f"{seed} {number} own")
    form = family.choices(FORMS, _FORM_WEIGHTS)[0]
    if form == "bincount":
        return _bincount(own, fp64)
    forced = _forced(family) if family.random() < 0.85 else {}
    # Partitioning refuses much, and what it refuses says nothing of it: mostly such calls are not drawn.
    partitioned = forced.get("memory") == "partitioned" and family.random() < 0.8
    form = "kernel" if form == "several" and partitioned else form
    operators = _operators(family, form, fp64)
    first = operators[0]
    layout = "flat"
    if form in ("reduce", "kernel"):
        weights = (70, 12, 9, 9, 0) if form == "reduce" else (70, 0, 9, 9, 6)
        layout = family.choices(LAYOUTS, (70, *weights[1:2], 0, 0, weights[-1]) if partitioned else weights)[0]
    index = "int32" if family.random() < 0.5 else family.choice(INTEGERS)
    values = _values(family, form, first, layout)
    profile = _profile(family) if form in ("kernel", "several", "stream") and family.random() < 0.65 else ()
    if profile and partitioned:  # wide pairs take much local memory
        profile = tuple((name, 10**6 if name == "local_memory" else value) for name, value in profile)
    mapped = bool(profile) or family.random() < 0.3
    if form == "stream" and mapped:
        values = "array"
    if form != "reduce" and (form != "stream" or mapped):
        operators = tuple(_ready(op) for op in operators)
    emits = family.choice([1, 1, 1, 1, 3]) if form == "kernel" and layout == "flat" else 1
    emits = 1 if partitioned else emits
    choices = {**forced, **_numbers(own)} if forced or family.random() < 0.5 else {}
    reproducible = ""
    if any(op.is_float_sum for op in operators) and form != "stream" and family.random() < 0.3:
        reproducible = family.choice(["found", "given"])
    size, bins, count = _sizes(own, operators, layout)
    dest = all(op.takes_dest for op in operators) and not reproducible and own.random() < 0.5
    # A ufunc takes its dtype of dest, and so does an expression.
    dest = dest or (form == "reduce" and first.spelling != "operator" and values == "narrow")
    out = own.choice(["", "", "new", "dest" if dest else ""]) if form in ("reduce", "kernel") else ""
    return Setting(
        own.randrange(2**32),
        form,
        operators,
        index,
        layout,
        values,
        profile,
        tuple(choices.items()),
        size,
        bins,
        own.choice(DISTRIBUTIONS),
        own.random() < 0.3,
        own.choice(ARRAYS) if own.random() < 0.7 else "plain",
        count,
        emits,
        dest,
        out,
        1 if out == "dest" or own.random() < 0.7 else 3,
        own.choice([1, 2, 3, 5]),
        own.choice([1, 100, 4096, 2**16, 2**26]) if size < 2000 else own.choice([4096, 2**16, 2**26]),
        mapped,
        form == "stream" and own.random() < 0.3 and values != "positions",
        reproducible,
    )


def _operators(rng: Random, form: str, fp64: bool) -> tuple[DrawnOperator, ...]:
    if form == "several":
        return tuple(draw_operator(rng, fp64) for _ in range(rng.choice([2, 2, 3, 4])))
    kinds = KINDS
    if rng.random() < 0.5:
        kinds = rng.choice([tuple(UFUNCS), CUSTOM, STRUCTS, STRUCTS])
    return (draw_operator(rng, fp64, kinds),)


def _ready(op: DrawnOperator) -> DrawnOperator:
    """Return the operator as a kernel takes it."""
    return DrawnOperator(op.kind, op.types, op.number)


def _values(rng: Random, form: str, op: DrawnOperator, layout: str) -> str:
    possible = ["array"] * 6 + ["scalar"] * (form in ("reduce", "stream"))
    if op.kind in ("first", "last"):
        possible = ["array"] * 6  # of one index only, which scalars would repeat
    if form in ("reduce", "stream"):
        possible += ["fields"] * 3 * op.is_struct + ["positions"] * 3 * (op.kind.startswith("arg"))
        possible += ["positions"] * (op.kind in ("first", "last"))
        possible += ["narrow"] * 3 * (op.kind in _WIDENED and op.types[0] in ("float64", "int64"))
    if layout == "vectors":
        possible = [name for name in possible if name not in ("positions", "scalar")]
    return rng.choice(possible)


def _profile(rng: Random) -> Choices:
    return (
        ("kind", rng.choice(["gpu", "gpu", "gpu", "cpu"])),
        ("hardware_threads", rng.choice([1, 16, 64, 512, 4096])),
        ("work_group_size", rng.choice([1, 2, 16, 32, 64, 64, 256])),
        ("local_memory", rng.choice([1000, 3001, 16384, 32768, 32768])),
        ("without", rng.choice(["", "", "", "int64_base_atomics", "int64_extended_atomics"])),
    )


def _forced(rng: Random) -> dict[str, Any]:
    """Draw choices that kernels are compiled for."""
    choices: dict[str, Any] = {}
    if rng.random() < 0.5:
        choices["update"] = rng.choices(UPDATES, (1, 3, 3, 5, 4))[0]
    if rng.random() < 0.75 and choices.get("update") != "sort":
        choices["memory"] = rng.choices(MEMORIES, (2, 2, 0 if choices.get("update") == "private" else 8))[0]
    if rng.random() < 0.5:
        choices["work_group_size"] = rng.choice(WORK_GROUPS)
    return choices


def _numbers(rng: Random) -> dict[str, Any]:
    """Draw choices that are only numbers to a kernel."""
    drawn: dict[str, tuple[float, list[Any]]] = {
        "copies": (0.12, [1, 2, 3, 7, 1000]),
        "passes": (0.2, [1, 2, 3, 5, 17, 1000]),
        "locks": (0.15, [1, 2, 64, 1024]),
        "memory_budget": (0.1, [1000, 2**16, 2**22]),
        "race_factor": (0.15, [1.0, 3.5, 1e6, "sample", "sample once"]),
    }
    return {name: rng.choice(values) for name, (chance, values) in drawn.items() if rng.random() < chance}


def _sizes(rng: Random, operators: tuple[DrawnOperator, ...], layout: str) -> tuple[int, int, int]:
    """Draw N, H, and the components or histograms."""
    most = min((op.most for op in operators), default=10**9)
    size = rng.choice([0, 1, 2, 63, 64, 65]) if rng.random() < 0.1 else int(10 ** rng.uniform(0, 5.2))
    bins = rng.choice([1, 1, 2, 256]) if rng.random() < 0.15 else int(10 ** rng.uniform(0, 4))
    if rng.random() < 0.08:
        bins, size = int(10 ** rng.uniform(4, 5.5)), min(size, 5000)
    count = 1
    if layout == "vectors":
        count, size, bins = rng.choice([2, 3, 8]), size // 8, -(-bins // 8)
    elif layout == "shape":
        count, bins = rng.choice([2, 7]), -(-bins // 8)
    elif layout != "flat":
        count, bins = rng.choice([1, 2, 7, 50]), min(bins, 300)
        size = min(size, 50_000) // count * count
    room = max(2, most // (count if layout == "flat" else 2 * count))
    return min(size, room // 2 // count * count), min(bins, room // 2, _LARGE_BINS), count


def _bincount(rng: Random, fp64: bool) -> Setting:
    weights = rng.choice(["", "", "float32", "float64", "int32", "bool"]) if fp64 else ""
    size, bins, _ = _sizes(rng, (), "flat")
    size = max(size, 1) if weights else size  # NumPy's result has another dtype then
    names = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64")
    index, special = rng.choice(names), weights.startswith("f") and rng.random() < 0.2
    arrays = rng.choice([name for name in ARRAYS if name != "byte-swapped"])
    distribution = rng.choice(DISTRIBUTIONS[:-2])
    reproducible = "found" if weights and rng.random() < 0.3 else ""
    seed, least = rng.randrange(2**32), rng.choice([0, 1, 2 * bins])
    return Setting(
        seed, "bincount", (), index, "flat", weights, (), (("minlength", least),), size, bins, distribution, special,
        arrays, 1, 1, False, "", 1, 1, 1, False, False, reproducible,
    )  # fmt: skip
