"""The list of cases: every strategy, update, operator and option, with inputs on which work-items contend and not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from emulated.cases import calls
from emulated.cases.case import Action, Case, words_of
from emulated.cases.operators import operator_cases
from emulated.cases.options import option_cases
from emulated.cases.published import published_cases
from emulated.cases.studies import study_cases

_KINDS = ("uniform", "one")


def listed() -> list[Case]:
    """Return all cases.

    Raises
    ------
    ValueError
        If two have one name.
    """
    found = [
        *_planned(),
        *_contended(),
        *_forms(),
        *_keys(),
        *operator_cases(),
        *option_cases(),
        *study_cases(),
        *published_cases(),
    ]
    names = [case.name for case in found]
    if twice := {name for name in names if names.count(name) > 1}:
        raise ValueError(f"cases: {sorted(twice)} are there twice")
    return found


def _pairs(
    name: str, ufunc: np.ufunc, dtype: Any, n: int, h: int, kind: str, strategy: str = "", **options: Any
) -> Case:
    return _case(name, calls.pairs(ufunc, dtype, n, h, kind, **options), strategy, options)


def _case(name: str, action: Action, strategy: str = "", options: dict[str, Any] | None = None) -> Case:
    given = options or {}
    update = "" if given.get("update") in (None, "sort", "gather") else given["update"]
    return Case(name, action, strategy, update, frozenset(words_of(given)))


def _planned() -> Iterator[Case]:
    """Few and many bins: what the plan takes by itself, and compare-exchange in local memory."""
    local: dict[str, Any] = {"update": "cas", "memory": "local"}
    for n, h in ((8192, 7), (20000, 64), (20000, 500), (12000, 5000)):
        for kind in _KINDS:
            at, half = f"H={h}, {kind}", n // 2
            yield _case(f"int32 counts, {at}", calls.counts(n, h, kind))
            yield _pairs(f"float32 sums, {at}", np.add, np.float32, n, h, kind)
            yield _pairs(f"float32 sums, cas local, {at}", np.add, np.float32, max(half, 5000), h, kind, **local)
            yield _pairs(f"float64 sums, {at}", np.add, np.float64, max(half, 5000), h, kind)
            yield _pairs(f"float64 sums, cas local, {at}", np.add, np.float64, max(half, 5000), h, kind, **local)
            yield _case(f"argmax int64, {at}", calls.argmax(np.int64, half, h, kind))
            yield _case(f"argmax int32, {at}", calls.argmax(np.int32, half, h, kind))
            yield _case(f"saturating add, cas local, {at}", calls.saturating(half, h, kind, 1000, **local), "", local)


def _contended() -> Iterator[Case]:
    """Each update in each memory, also with one copy, which all lanes of a wave share."""
    n = 6000
    for memory in ("local", "global"):
        for h in (7, 500):
            for kind in _KINDS:
                at = f"H={h}, {kind}"
                for update, ufunc, dtype, what in (
                    ("lock", np.multiply, np.complex64, "complex64 product"),
                    ("lock", np.add, np.complex64, "complex64 sums"),
                    ("native", np.maximum, np.int64, "int64 maximum"),
                    ("native", np.add, np.int64, "int64 sums"),
                    ("native", np.add, np.float32, "float32 sums"),
                ):
                    options = {"update": update, "memory": memory}
                    yield _pairs(f"{what}, {update} {memory}, {at}", ufunc, dtype, n, h, kind, memory, **options)
                for update, ufunc, dtype, what in (
                    ("lock", np.multiply, np.complex64, "complex64 product"),
                    ("cas", np.add, np.float64, "float64 sums"),
                    ("cas", np.add, np.float32, "float32 sums"),
                ):
                    options = {"update": update, "memory": memory, "copies": 1}
                    yield _pairs(f"{what}, {update} {memory}, M=1, {at}", ufunc, dtype, n, h, kind, memory, **options)
                for dtype in (np.float32, np.float64):
                    carry: dict[str, Any] = {"update": "carry", "memory": memory, "copies": 1}
                    name = f"exact {np.dtype(dtype).name} sums, carry {memory}, M=1, {at}"
                    yield _case(name, calls.reproducible(dtype, 2000, h, kind, **carry), memory, carry)
                lock: dict[str, Any] = {"update": "lock", "memory": memory}
                yield _case(f"struct, lock {memory}, {at}", calls.records(n, h, kind, **lock), memory, lock)
                lock |= {"copies": 1}
                yield _case(f"struct, lock {memory}, M=1, {at}", calls.records(n, h, kind, **lock), memory, lock)


def _forms() -> Iterator[Case]:
    """Copies, passes, partitions, narrow counters, batches, sorting, reproducible sums."""
    n = 9001
    for copies in (1, 3, 16):
        yield _pairs(f"local, M={copies}", np.add, np.int32, n, 100, "outside", "local", memory="local", copies=copies)
    for passes in (2, 5):
        for order in ("in turn", "side by side"):
            given = {"memory": "local", "passes": passes, "pass_order": order}
            yield _pairs(f"local, S={passes}, {order}", np.add, np.float32, n, 3000, "outside", "local", **given)
            given |= {"update": "lock"}
            yield _case(f"lock local, S={passes}, {order}", calls.records(5000, 900, "half", **given), "local", given)
    yield _pairs("private", np.add, np.int32, 20000, 5, "uniform", "private", update="private")
    yield _pairs("global, M=4", np.add, np.int32, n, 3000, "half", "global", memory="global", copies=4)
    yield _pairs("small groups", np.add, np.int32, n, 300, "half", "local", memory="local", work_group_size=64)
    for factor in (1.0, 16.0):
        given = {"memory": "global", "race_factor": factor}
        yield _pairs(f"global, race factor {factor:g}", np.add, np.float64, n, 20000, "half", "global", **given)
    for ufunc, dtype in ((np.add, np.int32), (np.add, np.float32), (np.add, np.float64), (np.maximum, np.int64)):
        for kind in ("uniform", "half"):
            name = f"partitioned {ufunc.__name__} {np.dtype(dtype).name}, {kind}"
            yield _pairs(name, ufunc, dtype, 20000, 50000, kind, "partitioned", memory="partitioned")
    for kind in ("uniform", "half"):  # each range is written by one work-group, but for one that is shared out
        given = {"memory": "partitioned", "passes": 300}
        yield _pairs(f"partitioned, 300 ranges, {kind}", np.add, np.int32, 40000, 60000, kind, "partitioned", **given)
    lock: dict[str, Any] = {"update": "lock", "memory": "partitioned"}
    yield _case("partitioned struct, lock", calls.records(9000, 20000, "half", **lock), "partitioned", lock)
    for bits in (4, 8, 16):
        for kind in ("uniform", "half", "one"):
            given = {"counter_bits": bits}
            yield _case(f"{bits}-bit counters, {kind}", calls.counts(20000, 3000, kind, **given), "packed", given)
    yield _case("32-bit counters", calls.counts(20000, 3000, "half", counter_bits=32), "", {"counter_bits": 32})
    for dtype in (np.float32, np.float64):
        for kind in _KINDS:
            given = {"reproducible": True, "max_abs": 1.0}
            name = f"reproducible {np.dtype(dtype).name}, {kind}"
            yield _case(name, calls.reproducible(dtype, 6000, 50, kind), "", given)
    for dtype in (np.float32, np.float64):
        for memory in ("local", "partitioned"):
            given = {"memory": memory, "passes": 2}
            yield _case(
                f"narrow sums of {np.dtype(dtype).name}, {memory}",
                calls.narrow_sums(dtype, 3000, 60, **given),
                memory,
                given,
            )
    yield _case("batch, equal rows", calls.batch(12000, 40, 33, "equal"), "batch", {"num_histograms": 40})
    yield _case("batch, ragged rows", calls.batch(12000, 40, 33, "ragged"), "batch", {"offsets": None})
    yield _case("batch, short rows", calls.batch(12000, 400, 33, "equal"), "flattened", {"num_histograms": 400})
    for ufunc, dtype, n, h, d in (
        (np.add, np.float32, 300, 40, 64), (np.add, np.int32, 12000, 9000, 3), (np.maximum, np.float64, 5000, 5000, 5),
    ):  # fmt: skip
        for kind in ("uniform", "one", "outside"):
            name, given = f"rows of {d}, {ufunc.__name__} {np.dtype(dtype).name}, {kind}", {"update": "gather"}
            yield _case(name, calls.rows(ufunc, dtype, n, h, d, kind, **given), "rows", given)
    for dtype in (np.float32, np.float64):
        given = {"update": "gather", "reproducible": True}
        yield _case(
            f"exact rows of {np.dtype(dtype).name}", calls.exact_rows(dtype, 3000, 40, 3, **given), "rows", given
        )
    sort = {"update": "sort"}
    yield _case("sorted struct", calls.records(5000, 900, "half", **sort), "sort", sort)
    yield _case("one launch, few elements", calls.counts(3000, 50, "outside"))
    yield _case("histogram of float64 over edges", calls.edges(9000))
    given = {"update": "lock", "memory": "global", "locks": 8}
    yield _case("8 locks, global", calls.records(4000, 200, "half", **given), "global", given)
    given = {"update": "lock", "memory": "local", "locks": 1}
    yield _case("1 lock, local", calls.records(2000, 200, "uniform", **given), "local", given)


def _keys() -> Iterator[Case]:
    """Keys of all widths in a table that grows, and marked where they are near each other."""
    for name in ("int16", "int32", "uint64", "float32", "float64"):
        for kind in ("few", "different", *["near"] * (name[0] != "f")):
            yield Case(
                f"{kind} keys of {name}",
                calls.keys(np.dtype(name).type, 20_000 if kind == "few" else 6000, kind),
                covers=frozenset(["keys"]),
            )
    for name in ("int32", "float32", "float64"):
        for groups in (1, 40):
            action = calls.along_groups(np.dtype(name).type, 900 + groups, groups)
            yield Case(f"along {groups} groups of {name}", action, covers=frozenset(["along groups"]))
