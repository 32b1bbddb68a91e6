"""Calls at random, over operators, types, sizes, choices and forms; each is known by a seed and a number."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from itertools import pairwise
from typing import Any

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array

from clhist import Accumulator, HistogramKernel, bincount, operators, reduce_by_index
from clhist.opencl.device import device_features, device_profile
from clhist.operators.c_types import c_name
from clhist.planning.updates import FORCEABLE as STRATEGIES
from clhist.selftest.checks import NotAvailableError
from clhist.selftest.inputs import DISTRIBUTIONS, as_gpu, drawn
from clhist.selftest.reference import assert_same

MOST_ELEMENTS, MOST_BINS = 200_000, 20_000
_CALLS_EACH = 500  # calls with the same settings
_SETTINGS = 16  # of which each seed makes its calls: kernels take longer to build than to run
_REFUSED = re.compile(r"(update|memory|copies|passes|locks|work_group_size|memory_budget)\b")
_SUMS = [
    *((np.add, dtype) for dtype in (np.uint8, np.int16, np.int32, np.uint64, np.float32, np.float64, np.complex64)),
    *((np.maximum, dtype) for dtype in (np.int8, np.int64, np.float32, np.float64)),
    *((ufunc, np.uint32) for ufunc in (np.bitwise_xor, np.bitwise_and, np.minimum)),
    (np.logical_or, np.bool_),
    (np.fmin, np.float32),
]
_PAIRS = [(np.float32, np.int32), (np.int64, np.int64)]  # by 64 bits, and by locks
_OF_A_KERNEL = ("mapped", "fused", "even", "ragged")  # which take a profile
_GPU, _SMALL_GPU = "a GPU", "a small GPU"  # what a device is taken for
FORMS = ("plain", "plain", "mapped", "mapped", "fused", "even", "ragged", "vectors", "stream", "bincount", "argmax")


@dataclass(frozen=True)
class Setting:
    """What stays the same for many calls: a form, an operator, what the device is taken for, and what is forced."""

    form: str
    ufunc: np.ufunc
    dtype: np.dtype
    pair: tuple[Any, Any]
    like: str
    choices: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        what = f"argmax {np.dtype(self.pair[0])}" if self.form == "argmax" else f"{self.ufunc.__name__} {self.dtype}"
        forced = "".join(f" {key}={value!r}" for key, value in self.choices.items())
        return f"{self.form} {what}{f' as {self.like}' * bool(self.like)}{forced}"


class Soak:
    """The random calls of one seed, which any number of threads may make.

    Parameters
    ----------
    queue : pyopencl.CommandQueue
        Of the device.
    seed : int
        The same one gives the same calls on the same device.
    """

    def __init__(self, queue: cl.CommandQueue, seed: int) -> None:
        self.queue, self.seed = queue, seed
        gpu = as_gpu(device_profile(queue.device))
        # The small one has a copy for each work-item at once, and more passes; its local memory ends anywhere.
        small = replace(gpu, hardware_threads=64, work_group_size=16, local_memory=min(3001, gpu.local_memory))
        self._profiles = {"": None, _GPU: gpu, _SMALL_GPU: small}
        self._kernel = lru_cache(maxsize=64)(self._new_kernel)
        self._settings = lru_cache(maxsize=4)(self._new_settings)
        self._fp64 = "fp64" in device_features(queue.device)

    def call(self, number: int) -> tuple[str, Callable[[], None]]:
        """Return what the call of this number is, and what makes and checks it.

        That raises AssertionError if the result is wrong and NotAvailableError if the choices were refused.
        """
        rng = np.random.default_rng([self.seed, number, 1])
        setting = self._settings(number // _CALLS_EACH)[rng.integers(_SETTINGS)]
        size = int(MOST_ELEMENTS ** rng.random()) - 1
        num_bins = int(MOST_BINS ** rng.random())
        distribution = str(rng.choice(list(DISTRIBUTIONS)))
        on_device = bool(rng.random() < 0.4)
        words = f"{setting}, N = {size}, H = {num_bins}, {distribution}{', on the device' * on_device}"
        return words, partial(self._make, setting, rng, distribution, size, num_bins, on_device)

    def _make(
        self, setting: Setting, rng: np.random.Generator, distribution: str, size: int, num_bins: int, on_device: bool
    ) -> None:
        bins = drawn(distribution, rng, size, num_bins)
        try:
            getattr(self, f"_{setting.form}")(setting, rng, bins, num_bins, on_device)
        except (ValueError, MemoryError) as error:
            if setting.choices and _REFUSED.match(str(error)):
                raise NotAvailableError(str(error)) from None
            raise

    def _new_settings(self, epoch: int) -> list[Setting]:
        rng = np.random.default_rng([self.seed, epoch, 0])
        return [self._setting(rng) for _ in range(_SETTINGS)]

    def _setting(self, rng: np.random.Generator) -> Setting:
        form = str(rng.choice(FORMS))
        sums = [(ufunc, dtype) for ufunc, dtype in _SUMS if self._fp64 or dtype is not np.float64]
        ufunc, dtype = sums[rng.integers(len(sums))]
        choices: dict[str, Any] = {}
        if rng.random() < 0.6:
            drawn_choices = {
                "update": rng.choice(STRATEGIES),
                "memory": rng.choice(["local", "global", "partitioned"]),
                "copies": rng.choice([1, 2, 7, 1000]),
                "passes": rng.choice([1, 2, 5]),
                "work_group_size": rng.choice([16, 32]),
                "locks": rng.choice([1, 64]),
                "memory_budget": 2**22,
            }
            for name, value in drawn_choices.items():
                if rng.random() < (0.6 if name in ("update", "memory") else 0.15):
                    choices[name] = str(value) if isinstance(value, np.str_) else int(value)
        if rng.random() < 0.1:
            choices["race_factor"] = str(rng.choice(["sample", "sample once"]))
        pair, like = _PAIRS[rng.integers(len(_PAIRS))], ""
        if form in _OF_A_KERNEL and (chance := rng.random()) < 0.5:
            like = _GPU if chance < 0.25 else _SMALL_GPU
        return Setting(form, ufunc, np.dtype(dtype), pair, like, choices)

    def _new_kernel(self, operator: Any, arguments: str, code: str, like: str) -> HistogramKernel:
        found = dict(operator) if isinstance(operator, tuple) else operator
        return HistogramKernel(self.queue.context, found, arguments=arguments, map=code, profile=self._profiles[like])

    def _given(self, on_device: bool, *arrays: np.ndarray) -> list[Any]:
        return [cl_array.to_device(self.queue, array) if on_device else array for array in arrays]

    def _plain(self, setting: Setting, rng: Any, bins: np.ndarray, num_bins: int, on_device: bool) -> None:
        values = _values(rng, setting.dtype, bins.size)
        dest = _values(rng, setting.dtype, num_bins)
        expected = _reference(setting.ufunc, bins, values, dest)  # now, since `out` may be `dest`
        given = self._given(on_device, dest, bins, values)
        out = given[0] if rng.random() < 0.3 else None
        found = reduce_by_index(given[0], setting.ufunc, *given[1:], queue=self.queue, out=out, **setting.choices)
        assert_same(_host(found), expected)

    def _pairs_of(self, setting: Setting, bins: np.ndarray, values: np.ndarray, on_device: bool, **more: Any) -> Any:
        operator = operators.as_operator(setting.ufunc, setting.dtype)
        arguments = "const int *bins, const value_t *values"
        kernel = self._kernel(operator, arguments, "EMIT(bins[i], values[i])", setting.like)
        return _host(kernel(*self._given(on_device, bins, values), queue=self.queue, **more, **setting.choices))

    def _mapped(self, setting: Setting, rng: Any, bins: np.ndarray, num_bins: int, on_device: bool) -> None:
        values = _values(rng, setting.dtype, bins.size)
        found = self._pairs_of(setting, bins, values, on_device, num_bins=num_bins)
        assert_same(found, _reference(setting.ufunc, bins, values, _start(setting, num_bins)))

    def _even(self, setting: Setting, rng: Any, bins: np.ndarray, num_bins: int, on_device: bool) -> None:
        count = int(rng.choice([1, 3, 50]))
        each, num_bins = bins.size // count, min(num_bins, 500)
        self._batch(setting, rng, bins[: each * count], num_bins, np.arange(count + 1) * each, on_device, even=True)

    def _ragged(self, setting: Setting, rng: Any, bins: np.ndarray, num_bins: int, on_device: bool) -> None:
        offsets = np.sort(rng.integers(0, bins.size + 1, int(rng.choice([2, 4, 60]))))
        self._batch(setting, rng, bins, min(num_bins, 500), offsets, on_device, even=False)

    def _batch(
        self,
        setting: Setting,
        rng: Any,
        bins: np.ndarray,
        num_bins: int,
        offsets: np.ndarray,
        on_device: bool,
        *,
        even: bool,
    ) -> None:
        values = _values(rng, setting.dtype, bins.size)
        where = {"num_histograms": len(offsets) - 1} if even else {"offsets": offsets}
        found = self._pairs_of(setting, bins, values, on_device, num_bins=num_bins, **where)
        runs = [slice(a, b) for a, b in pairwise(offsets)]
        start = _start(setting, num_bins)
        assert_same(found, np.stack([_reference(setting.ufunc, bins[run], values[run], start) for run in runs]))

    def _fused(self, setting: Setting, rng: Any, bins: np.ndarray, num_bins: int, on_device: bool) -> None:
        kernel = self._kernel(
            (("n", operators.add(np.int32)), ("v", operators.as_operator(setting.ufunc, setting.dtype))),
            f"const int *bins, const {c_name(setting.dtype)} *values",
            "EMIT_n(bins[i], 1); EMIT_v(bins[i], values[i])",
            setting.like,
        )
        values = _values(rng, setting.dtype, bins.size)
        given = self._given(on_device, bins, values)
        found = kernel(*given, num_bins=num_bins, queue=self.queue, **setting.choices)
        ones, none = np.ones(bins.size, np.int32), np.zeros(num_bins, np.int32)
        assert_same(_host(found["n"]), _reference(np.add, bins, ones, none))
        assert_same(_host(found["v"]), _reference(setting.ufunc, bins, values, _start(setting, num_bins)))

    def _vectors(self, setting: Setting, rng: Any, bins: np.ndarray, num_bins: int, on_device: bool) -> None:
        bins, num_bins = bins[: MOST_ELEMENTS // 10], min(num_bins, 2000)
        values = _values(rng, setting.dtype, 3 * bins.size).reshape(-1, 3)
        dest = _values(rng, setting.dtype, 3 * num_bins).reshape(-1, 3)
        given = self._given(on_device, dest, bins, values)
        found = reduce_by_index(given[0], setting.ufunc, *given[1:], queue=self.queue, **setting.choices)
        assert_same(_host(found), _reference(setting.ufunc, bins, values, dest))

    def _stream(self, setting: Setting, rng: Any, bins: np.ndarray, num_bins: int, on_device: bool) -> None:
        values = _values(rng, setting.dtype, bins.size)
        operator = operators.as_operator(setting.ufunc, setting.dtype)
        stream = Accumulator(operator, num_bins, queue=self.queue, chunk_bytes=2**16, **setting.choices)
        for part in np.array_split(np.arange(bins.size), int(rng.integers(1, 4))):
            stream.add(*self._given(on_device, bins[part], values[part]))
        assert_same(_host(stream.result()), _reference(setting.ufunc, bins, values, _start(setting, num_bins)))

    def _bincount(self, setting: Setting, rng: Any, bins: np.ndarray, num_bins: int, on_device: bool) -> None:
        bins = np.clip(bins, 0, num_bins)
        least = int(rng.integers(0, 2 * num_bins))
        (given,) = self._given(on_device, bins)
        assert_same(_host(bincount(given, minlength=least, queue=self.queue)), np.bincount(bins, minlength=least))

    def _argmax(self, setting: Setting, rng: Any, bins: np.ndarray, num_bins: int, on_device: bool) -> None:
        value, index = setting.pair
        operator = operators.argmax(value, index)
        values = rng.integers(-50, 50, bins.size).astype(value)
        given = self._given(on_device, bins, values)
        found = _host(reduce_by_index(num_bins, operator, *given, queue=self.queue, **setting.choices))
        inside = np.flatnonzero((bins >= 0) & (bins < num_bins))
        expected = np.empty(num_bins, operator.dtype)
        expected["value"] = -np.inf if np.dtype(value).kind == "f" else np.iinfo(value).min
        expected["index"] = np.iinfo(index).max
        order = inside[np.lexsort((-inside, values[inside]))]  # the largest is written last, of these the first
        expected["value"][bins[order]], expected["index"][bins[order]] = values[order], order
        assert_same(found, expected)


def _values(rng: np.random.Generator, dtype: np.dtype, size: int) -> np.ndarray:
    """Return small whole numbers, whose sums are exact in any order; some NaN among floats would hide all others."""
    if dtype.kind == "b":
        return rng.random(size) < 0.1
    if dtype.kind == "c":
        return (rng.integers(-9, 10, size) + 1j * rng.integers(-9, 10, size)).astype(dtype)
    low = 0 if dtype.kind == "u" else -9
    return rng.integers(low, 10, size).astype(dtype)


def _start(setting: Setting, num_bins: int) -> np.ndarray:
    """Return what bins hold that get nothing."""
    dtype, ufunc = setting.dtype, setting.ufunc
    start: Any = 0
    if ufunc in (np.maximum, np.minimum) and dtype.kind == "f":
        start = -np.inf if ufunc is np.maximum else np.inf
    elif ufunc in (np.maximum, np.minimum):
        start = np.iinfo(dtype).min if ufunc is np.maximum else np.iinfo(dtype).max
    elif ufunc is np.bitwise_and:
        start = np.iinfo(dtype).max
    elif ufunc is np.fmin:
        start = np.nan
    return np.full(num_bins, start, dtype)


def _reference(ufunc: np.ufunc, bins: np.ndarray, values: np.ndarray, start: np.ndarray) -> np.ndarray:
    inside = (bins >= 0) & (bins < len(start))
    result = start.copy()
    ufunc.at(result, bins[inside], values[inside])
    return result


def _host(array: Any) -> np.ndarray:
    return array.get() if isinstance(array, cl_array.Array) else array
