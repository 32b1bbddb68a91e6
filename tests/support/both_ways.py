"""What tests share that compare the two ways of a call on NumPy arrays: by kernels, and by another library."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyopencl as cl
import pytest
from histograms import outcome

SIZES = (0, 1, 10, 10**5)
EDGES = [0, 0.25, 0.5, 1]
ENDS = (0.0, 1.0)


def data_of(size: int) -> SimpleNamespace:
    """Return points in the unit square, numbers of bins, and values of many magnitudes, whose sums round."""
    rng = np.random.default_rng(size)
    values = rng.normal(size=size) * 10.0 ** rng.integers(-8, 8, size)
    return SimpleNamespace(
        size=size,
        x=rng.random(size),
        y=rng.random(size),
        bins=rng.integers(0, 5, size),
        values=values,
        narrow=values.astype(np.float32),
        integers=rng.integers(-(2**61), 2**61, size),
        bytes=rng.integers(0, 256, size, np.uint8),
        where=rng.random(size) < 0.7,
        order=rng.permutation(size),
    )


@dataclass(frozen=True)
class Case:
    """A call of a function.

    Attributes
    ----------
    function : callable
        What is called.
    arguments : callable
        Returns its keyword arguments, positional ones as well, for data as of `data_of`.
    exact : bool
        Whether results are bitwise the same. They have no sums of floats, or reproducible ones.
    """

    function: Callable[..., Any]
    arguments: Callable[[SimpleNamespace], dict[str, Any]]
    exact: bool = False

    def __call__(self, data: SimpleNamespace, **more: Any) -> Any:
        return plain(outcome(self.function, **self.arguments(data), **more))


def plain(found: Any) -> Any:
    """Return a result as arrays, in lists and dicts."""
    if hasattr(found, "view") and hasattr(found, "axes"):  # a histogram
        return [np.asarray(found.view(flow=True)), *(np.asarray(ax.edges) for ax in found.axes)]
    if hasattr(found, "_fields"):
        return [plain(each) for each in found]
    if isinstance(found, list | tuple):
        return [plain(each) for each in found]
    if isinstance(found, dict):
        return {name: plain(each) for name, each in found.items()}
    return found


def assert_same(found: Any, expected: Any, *, exact: bool) -> None:
    """Check that two results are the same: but for the rounding of sums of floats, unless they are `exact`."""
    assert type(found) is type(expected), (found, expected)
    if isinstance(expected, list | dict):
        assert len(found) == len(expected)
        keys = list(expected) if isinstance(expected, dict) else range(len(expected))
        for key in keys:
            assert_same(found[key], expected[key], exact=exact)
        return
    if not isinstance(expected, np.ndarray):
        assert found is expected or found == expected
        return
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    if expected.dtype.names:
        for name in expected.dtype.names:
            assert_same(found[name], expected[name], exact=exact)
    elif exact or expected.dtype.kind not in "fc":
        np.testing.assert_array_equal(found, expected, strict=True)
    else:
        largest = np.abs(expected[np.isfinite(expected)]).max(initial=1)
        bound = (1e-5 if expected.real.dtype.itemsize == 4 else 1e-10) * largest
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=bound)


def ways(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Yield "host" and "device"; until the next one all calls go that way if they can."""
    for name, pays_off in (("host", False), ("device", True)):
        monkeypatch.setattr("clhist._core.runtime.small.pays_off", lambda call, size, bins=0, answer=pays_off: answer)
        yield name


def check(case: Case, sizes: tuple[int, ...], monkeypatch: pytest.MonkeyPatch, queue: cl.CommandQueue | None) -> None:
    """Compare both ways, and the device's with a `queue`, for each size."""
    for size in sizes:
        data = data_of(size)
        by_host, by_device = (case(data) for _ in ways(monkeypatch))
        assert_same(by_host, by_device, exact=case.exact)
        if queue is not None:
            assert_same(case(data, queue=queue), by_device, exact=case.exact)


def check_order(case: Case, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that a result is bitwise the same in another order of the elements, both ways."""
    data = data_of(size)
    moved = SimpleNamespace(
        **{name: each[data.order] if isinstance(each, np.ndarray) else each for name, each in vars(data).items()}
    )
    found = [case(each) for _ in ways(monkeypatch) for each in (data, moved)]
    for each in found[1:]:
        assert_same(each, found[0], exact=True)


def check_covers(function: Callable[..., Any], cases: list[Case], but: Mapping[str, str] | None = None) -> None:
    """Check that the cases have every parameter of a function, but for those with a reason."""
    given = {name for case in cases if case.function is function for name in case.arguments(data_of(10))}
    kinds = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    parameters = {name for name, each in inspect.signature(function).parameters.items() if each.kind not in kinds}
    assert parameters - given == set(but or {}), (parameters - given, but)


def params(**tables: Mapping[str, Case]) -> list[Any]:
    """Return the cases of some tables, with names, for `pytest.mark.parametrize`."""
    return [
        pytest.param(case, id=f"{table}: {name}") for table, cases in tables.items() for name, case in cases.items()
    ]


def is_reproducible(case: Case) -> bool:
    """Whether a case has sums that are to be the same in any order."""
    return bool(case.arguments(data_of(1)).get("reproducible"))


def all_tests_of(cases: list[Any]) -> tuple[Callable[..., None], Callable[..., None]]:
    """Return two tests of `params`: both ways agree, and reproducible sums do not depend on the order."""

    @pytest.mark.parametrize("case", cases)
    def agree(case: Case, monkeypatch: pytest.MonkeyPatch, queue: cl.CommandQueue) -> None:
        check(case, SIZES, monkeypatch, queue)

    @pytest.mark.parametrize("case", [param for param in cases if is_reproducible(param.values[0])])
    @pytest.mark.parametrize("size", [900, 10**5])
    def are_ordered(case: Case, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
        check_order(case, size, monkeypatch)

    return agree, are_ordered
