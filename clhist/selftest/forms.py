"""Checks of every form of a call: several histograms, batches, vectors, `dest` and `out`, passes, streams and more."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array

from clhist import Accumulator, HistogramKernel, Profile, bincount, operators, reduce_by_index
from clhist._core.opencl.device import device_kind
from clhist.selftest.cases import neutral_of
from clhist.selftest.checks import Check, NotAvailableError
from clhist.selftest.digests import DTYPES, exact_sums
from clhist.selftest.functions import FUNCTIONS
from clhist.selftest.inputs import BATCHES, DISTRIBUTIONS, OFFSETS, TINY_BATCHES, drawn
from clhist.selftest.places import HOST, Host, PlacedKernel
from clhist.selftest.reference import folded, same_as
from clhist.selftest.updates import expect
from clhist.typing import Memory, Update

_SIZE, _BINS = 3001, 61
_TINY = 1501  # elements
_CHOICES: list[dict[str, Any]] = [
    {},
    {"memory": "local"},
    {"memory": "global", "passes": 3, "copies": 2},
    {"memory_budget": 2**20},
    {"memory": "local", "pass_order": "side by side"},
    {"memory": "local", "pass_order": "side by side", "update": "cas"},
]
_HOLDING: tuple[tuple[Update, Memory], ...] = (  # updates that hold a bin, and in which memory
    ("cas", "local"),
    ("cas", "global"),
    ("lock", "local"),
    ("lock", "global"),
)
_ONE = operators.add(np.int32)

Form = Callable[["Setting"], None]


class Setting:
    """The setting of checks of forms: a queue, a profile (None for the device's own), and the amount of each.

    `quick` leaves inputs out; `tiny` also makes them short, for a simulator that takes a second for a million elements.
    """

    def __init__(
        self, queue: cl.CommandQueue, profile: Profile | None, *, size: str = "full", place: Host = HOST
    ) -> None:
        self.queue, self.profile, self.place = queue, profile, place
        self.call = place.call
        self.quick, self.tiny = size != "full", size == "tiny"
        self.rng = np.random.default_rng(20)

    def few(self, size: int, tiny: int = _TINY) -> int:
        """Return how many elements there are, where there should be `size`."""
        return min(size, tiny) if self.tiny else size

    def kernel(self, operator: Any, arguments: str, code: str, **more: Any) -> Any:
        """Return a kernel for this profile, whose calls take NumPy's arrays to the place."""
        more |= {"arguments": arguments, "map": code, "profile": self.profile}
        return PlacedKernel(self.place, HistogramKernel(self.queue.context, operator, **more))

    def counting(self) -> Any:
        """Return the kernel that counts int32 bins."""
        return self.kernel(_ONE, "const int *bins", "EMIT(bins[i], 1)")

    def summing(self) -> Any:
        """Return the kernel that sums int32 values."""
        return self.kernel(_ONE, "const int *bins, const int *values", "EMIT(bins[i], values[i])")

    def pairs(self, size: int = _SIZE, num_bins: int = _BINS) -> tuple[np.ndarray, np.ndarray]:
        """Return bins, some of which do not exist, and small values, all of int32."""
        size = self.few(size)
        bins = drawn("uniform, some outside", self.rng, size, num_bins)
        return bins, self.rng.integers(-99, 99, size, np.int32)


def form_checks(
    queue: cl.CommandQueue, profiles: dict[str, Profile | None], *, size: str = "full", place: Host = HOST
) -> Iterator[Check]:
    """Yield the checks of all forms, for each of the profiles by their names; `size` is "full", "quick" or "tiny"."""
    for name, profile in profiles.items():
        for form, action in FORMS.items():
            if (size != "quick" or form in QUICK_FORMS) and (profile is None or form not in WITHOUT_PROFILE):
                yield Check(form, name, form, partial(action, Setting(queue, profile, size=size, place=place)))


def reference(
    ufunc: np.ufunc, bins: np.ndarray, values: Any, num_bins: int, dest: np.ndarray | None = None, dtype: Any = np.int32
) -> np.ndarray:
    """Return what NumPy makes of it, beginning with `dest`, or with the ufunc's neutral element."""
    start = np.full(num_bins, neutral_of(ufunc, np.dtype(dtype)), dtype) if dest is None else dest
    return folded(ufunc, bins, values, start)


def _distributions(at: Setting) -> None:
    kernel = at.counting()
    for name in list(DISTRIBUTIONS)[:: 5 if at.quick else 1]:
        # With few bins work-items contend; many leave room for fewer copies.
        for num_bins in (7, 999):
            bins = drawn(name, at.rng, at.few(4001), num_bins)
            expect(same_as(reference(np.add, bins, 1, num_bins)), kernel(bins, num_bins=num_bins),
                   bins=name, H=num_bins)  # fmt: skip


def _lengths(at: Setting) -> None:
    kernel = at.summing()
    # Lengths beside multiples of vectors and work-groups.
    for size in (0, 1, 2, 3, 15, 17, 63, 64, 65, 257, 1023, 1025, 4097, 8191):
        if size > at.few(size):
            break
        bins, values = at.pairs(size, 5)
        same = same_as(reference(np.add, bins, values, 5))
        expect(same, kernel(bins, values, num_bins=5), N=size)


def _index_types(at: Setting) -> None:
    for dtype in (np.int8, np.uint16, np.int64, np.uint64):
        # The largest indices of a dtype are outside, and must not wrap into a bin.
        largest = np.iinfo(dtype).max
        bins = np.r_[at.rng.integers(0, 41, 1000).astype(dtype), np.array([largest, largest - 1, 40], dtype)]
        expected = np.bincount(bins[bins < 41].astype(int), minlength=41).astype(np.int32)
        result = at.call(reduce_by_index, np.zeros(41, np.int32), np.add, bins, 1, queue=at.queue)
        expect(same_as(expected), result, dtype=np.dtype(dtype))


def _nan(at: Setting) -> None:
    kernel = at.kernel(
        {"most": operators.maximum(np.float32), "number": operators.fmax(np.float32)},
        "const int *bins, const float *values",
        "EMIT_most(bins[i], values[i]); EMIT_number(bins[i], values[i])",
    )
    bins, values = at.pairs()
    floats = values.astype(np.float32)
    floats[::97] = np.nan
    # A bin of NaN alone: there fmax has NaN as well.
    floats[bins == 3] = np.nan
    floats[1::211] = np.inf
    results = kernel(bins, floats, num_bins=_BINS)
    expect(same_as(reference(np.maximum, bins, floats, _BINS, dtype=np.float32)), results["most"])
    start = np.full(_BINS, np.nan, np.float32)
    expect(same_as(reference(np.fmax, bins, floats, _BINS, start)), results["number"])


def _dest_and_out(at: Setting) -> None:
    kernel = at.summing()
    (bins, values), dest = at.pairs(), at.rng.integers(-99, 99, _BINS, np.int32)
    same = same_as(reference(np.add, bins, values, _BINS, dest))
    expect(same, kernel(bins, values, num_bins=_BINS, dest=dest), dest="given")
    out = np.full(_BINS, 77, np.int32)
    expect(same, kernel(bins, values, num_bins=_BINS, dest=dest, out=out), out="another")
    expect(same, out, out="another")
    # Arrays of PyOpenCL, updated in place.
    if not at.place.is_cuda:
        on_device = [cl_array.to_device(at.queue, array) for array in (bins, values, dest)]
        expect(same, kernel(*on_device[:2], num_bins=_BINS, dest=on_device[2], out=on_device[2]).get(), out="dest")
    expect(same, kernel(bins, values, num_bins=_BINS, dest=dest, out=dest), out="dest")


def _fields(at: Setting) -> None:
    argmax = operators.argmax(np.float32)
    bins, values = at.pairs()
    # The identity element of argmax: no value, and the greatest index.
    most, where = np.full(_BINS, -np.inf, np.float32), np.full(_BINS, 2**31 - 1, np.int32)
    fields = at.call(reduce_by_index, (most, where), argmax, bins, values.astype(np.float32), queue=at.queue)
    expected = reference(np.maximum, bins, values, _BINS, dtype=np.float32)
    first = [np.flatnonzero((bins == k) & (values == expected[k]))[:1] for k in range(_BINS)]
    expect(same_as(expected), fields[0], field="value")
    indices = np.array([k[0] if k.size else 2**31 - 1 for k in first], np.int32)
    expect(same_as(indices), fields[1], field="index")


def _fused(at: Setting) -> None:
    outputs = {"n": _ONE, "sum": operators.add(np.int64), "least": operators.minimum(np.int16), "few": _ONE}
    emits = {"n": "bins[i], 1", "sum": "bins[i] / 2, values[i]", "least": "bins[i], values[i]", "few": "i % 3, 1"}
    shapes = {"n": 101, "sum": 50, "least": 101, "few": 3}
    kernel = at.kernel(
        outputs, "const int *bins, const int *values", "; ".join(f"EMIT_{name}({emits[name]})" for name in outputs)
    )
    for size in (0, 1, 997) if at.quick else (0, 1, 997, 5003):
        bins, values = at.pairs(size, 101)
        # C's division truncates and NumPy's floors, so there are no negative bins.
        bins = np.abs(bins)
        results = kernel(bins, values, num_bins={name: shapes[name] for name in outputs})
        least = np.full(101, 2**15 - 1, np.int16)
        expected = {
            "n": reference(np.add, bins, 1, 101),
            "sum": reference(np.add, bins // 2, values.astype(np.int64), 50, dtype=np.int64),
            "least": reference(np.minimum, bins, values.astype(np.int16), 101, least),
            "few": reference(np.add, np.arange(size) % 3, 1, 3),
        }
        for name in outputs:
            expect(same_as(expected[name]), results[name], output=name, N=size)


def _several_emits(at: Setting) -> None:
    kernel = at.kernel(_ONE, "const int *bins", "for (int k = 0; k < 3; ++k) EMIT(bins[i] + k, k + 1)", emits=3)
    bins, _ = at.pairs()
    expected = sum(reference(np.add, bins + k, k + 1, _BINS) for k in range(3))
    expect(same_as(np.asarray(expected, np.int32)), kernel(bins, num_bins=_BINS))


def _batched(bins: np.ndarray, offsets: Any, num_bins: int) -> np.ndarray:
    return np.array([reference(np.add, bins[a:b], 1, num_bins) for a, b in pairwise(offsets)], np.int32)


def _even_batches(at: Setting) -> None:
    kernel = at.counting()
    for count, elements, num_bins in TINY_BATCHES if at.tiny else BATCHES[3:5] if at.quick else BATCHES:
        bins = drawn("uniform, some outside", at.rng, count * elements, num_bins)
        expected = _batched(bins, np.arange(count + 1) * elements, num_bins)
        for memory in (None, "global"):
            result = kernel(bins, num_bins=num_bins, num_histograms=count, memory=memory)
            expect(same_as(expected), result, histograms=count, N=elements, H=num_bins, memory=memory)


def _ragged_batches(at: Setting) -> None:
    kernel = at.counting()
    bins = drawn("uniform, some outside", at.rng, 1000, 5)
    for name, offsets in OFFSETS.items():
        same = same_as(_batched(bins, offsets, 5))
        expect(same, kernel(bins, num_bins=5, offsets=np.array(offsets)), offsets=name)
    # So many elements of so few bins that each work-item has a copy.
    kernel = at.kernel(operators.saturating_add(np.int32, 10**6), "const int *bins", "EMIT(bins[i], 1)")
    size = at.few(50_000)
    bins, offsets = drawn("uniform, some outside", at.rng, size, 5), [0, 30, 30, size - 1000]
    result = kernel(bins, num_bins=5, offsets=offsets, memory="global")
    expect(same_as(_batched(bins, offsets, 5)), result, N=size, memory="global")


def _vectors(at: Setting) -> None:
    bins, _ = at.pairs()
    points = at.rng.integers(-9, 9, (bins.size, 3)).astype(np.float32)
    expected = np.stack([reference(np.add, bins, points[:, k], _BINS, dtype=np.float32) for k in range(3)], axis=1)
    result = at.call(reduce_by_index, np.zeros((_BINS, 3), np.float32), np.add, bins, points, queue=at.queue)
    expect(same_as(expected), result)


def _passes(at: Setting) -> None:
    kernel = at.summing()
    for num_bins in (5003,) if at.tiny else (5003, 20_011):
        bins, values = at.pairs(9001, num_bins)
        same = same_as(reference(np.add, bins, values, num_bins))
        for choices in _CHOICES:
            expect(same, kernel(bins, values, num_bins=num_bins, **choices), H=num_bins, **choices)


def _hashed_locks(at: Setting) -> None:
    kernel = at.summing()
    bins, values = at.pairs()
    same = same_as(reference(np.add, bins, values, _BINS))
    for memory in ("local", "global"):
        result = kernel(bins, values, num_bins=_BINS, update="lock", memory=memory, locks=8, copies=2)
        expect(same, result, memory=memory)


def _packed_counters(at: Setting) -> None:
    kernel, size = at.counting(), at.few(300_001, 150_001)
    most = kernel.engine.profile_of(at.queue.device).local_memory
    num_bins = most * 3 // 8  # in 32 bits they need more local memory than there is, in 16 bits less
    try:
        kernel.plan(size, num_bins, counter_bits=16)
    except ValueError:
        raise NotAvailableError("counters are not packed on this device") from None
    for name in ("uniform, some outside", "all in one", "one of a word", "half in one")[: 2 if at.quick else 4]:
        for bits in (16, 8) if at.tiny or at.quick else (16, 8, 4):
            # Counters of 16 bits overflow only if one bin gets most elements; narrower ones do so with fewer.
            overflows = 20_011 if bits < 16 or name.startswith("uniform") else size
            bins = drawn(name, at.rng, at.few(size, overflows), num_bins)
            same = same_as(reference(np.add, bins, 1, num_bins))
            expect(same, kernel(bins, num_bins=num_bins, counter_bits=bits), bins=name, counter_bits=bits)
    if not at.tiny:  # in passes, with partitioned pairs behind
        num_bins = 3 * most
        bins = drawn("half in one", at.rng, size, num_bins)
        same = same_as(reference(np.add, bins, 1, num_bins))
        expect(same, kernel(bins, num_bins=num_bins, counter_bits=4), passes=2)


def _held_bins(at: Setting) -> None:
    kernel = at.kernel(operators.add(np.float32), "const int *bins, const float *w", "EMIT(bins[i], w[i])")
    # The source shows whether work-items hold bins.
    if "clhist_hot_value" not in kernel.source(kernel.plan(_SIZE, 3, update="cas")):
        raise NotAvailableError("work-items of a CPU hold no bins")
    for name in ("all in one", "half in one", "one of two", "zipf")[: 2 if at.tiny else 4]:
        for update, memory in _HOLDING:
            size = at.few(20_011)
            bins, values = drawn(name, at.rng, size, 97), at.rng.integers(-9, 9, size).astype(np.float32)
            expected = reference(np.add, bins, values, 97, dtype=np.float32)
            result = kernel(bins, values, num_bins=97, update=update, memory=memory)
            expect(same_as(expected), result, bins=name, update=update, memory=memory)


def _private_copies(at: Setting) -> None:
    kernel = at.summing()
    chosen = kernel.plan(_SIZE, _BINS, queue=at.queue)
    if not chosen.owns_copies:
        raise NotAvailableError("copies that one work-item updates are for CPUs")
    items, values = chosen.work_groups * chosen.work_group_size, at.pairs()[1]
    in_turn: list[dict[str, Any]] = [{"copies": 2 * items}, {"copies": 8 * items, "passes": 3}]
    tiles: list[dict[str, Any]] = [{"memory": "partitioned", "passes": ranges} for ranges in (1, 5)]
    if chosen.work_group_size > 1:  # of single work-items alone
        tiles = []
    for distribution in ("uniform, some outside", "half in one"):
        bins = drawn(distribution, at.rng, values.size, _BINS)
        same = same_as(reference(np.add, bins, values, _BINS))
        for choices in (*in_turn, *tiles):
            result = kernel(bins, values, num_bins=_BINS, update="private", **choices)
            expect(same, result, bins=distribution, **choices)


def _streams(at: Setting) -> None:
    bins, values = at.pairs()
    expected = same_as(reference(np.add, bins, values, _BINS))
    stream = at.summing().accumulator(_BINS, chunk_bytes=4096, queue=at.queue)
    at.call(stream.add, bins, values)
    expect(expected, at.call(stream.result), chunk_bytes=4096)
    first, second = (at.summing().accumulator(_BINS, queue=at.queue) for _ in range(2))
    # Chunks of very different sizes, the first of them empty.
    for begin, end in pairwise((0, 0, 1, 8, 1008, 2000)):
        at.call(first.add, bins[begin:end], values[begin:end])
    second.add(*(at.place.on_device(at.queue, array[2000:]) for array in (bins, values)))
    first.merge(second)
    expect(expected, at.call(first.result), merged=True)
    argmax = Accumulator(operators.argmax(np.int32), _BINS, queue=at.queue)
    for part in np.array_split(np.arange(bins.size), 3):
        at.call(argmax.add, bins[part], values[part])
    most = reference(np.maximum, bins, values, _BINS, np.full(_BINS, -(2**31), np.int32))
    expect(same_as(most), np.asarray(at.call(argmax.result)["value"]), operator="argmax")


def _bincount(at: Setting) -> None:
    # Values that repeat, the greatest one of a dtype, and one far above all others.
    for x in (np.arange(5000) % 77, np.r_[np.zeros(9999, np.uint8), np.uint8(255)], np.r_[np.zeros(5000, int), 10**5]):
        expect(same_as(np.bincount(x)), at.call(bincount, x, queue=at.queue), largest=x.max())
    weights = at.rng.integers(0, 99, 5000) / 4
    x = np.arange(5000) % 77
    try:
        result = at.call(bincount, x, weights, queue=at.queue)
    except RuntimeError as error:  # no double precision
        if "double precision" in str(error):
            return
        raise
    expect(same_as(np.bincount(x, weights)), result, weights=True)


def _device_arrays(at: Setting) -> None:
    if at.place.is_cuda:
        raise NotAvailableError("arrays of PyOpenCL are for OpenCL")
    bins, values = at.pairs()
    same = same_as(reference(np.add, bins[1:], values[1:], _BINS))
    queues, properties = [at.queue], cl.command_queue_properties.OUT_OF_ORDER_EXEC_MODE_ENABLE
    # Out of order, commands wait for events alone, so a missing one shows.
    if at.queue.device.queue_properties & properties:
        queues.append(cl.CommandQueue(at.queue.context, at.queue.device, properties))
    kernel = at.summing()
    for queue in queues:
        # A slice has an offset in its buffer.
        on_device = [cl_array.to_device(queue, array)[1:] for array in (bins, values)]
        for _ in range(3):
            result, event = kernel(*on_device, num_bins=_BINS, return_event=True)
            event.wait()
            expect(same, result.get(), offset=4)


def _race_factor(at: Setting) -> None:
    bins, values = at.pairs()
    same = same_as(reference(np.add, bins, values, _BINS))
    expect(same, at.summing()(bins, values, num_bins=_BINS, race_factor="sample"))


def _long_counters(at: Setting) -> None:
    if at.tiny or (at.profile is None and device_kind(at.queue.device) == "cpu"):
        raise NotAvailableError("left out on CPUs, which take minutes")
    size = 2**31 + 5
    # Elements before 2^31 - 95 emit nothing: the histogram stays small, but their numbers need 64 bits.
    kernel = at.kernel(_ONE, "long before", "if (i >= before) EMIT(i - before, 1)")
    result = kernel(size - 100, size=size, num_bins=101, queue=at.queue)
    expect(same_as(np.r_[np.ones(100, np.int32), np.zeros(1, np.int32)]), result, N=size)


# A check for each dtype: some compilers take minutes for the kernels of all.
DIGESTS: dict[str, Form] = {f"digests of exact sums, {dtype}": partial(exact_sums, dtype=dtype) for dtype in DTYPES}
FORMS: dict[str, Form] = {
    "distributions": _distributions,
    "lengths": _lengths,
    "types of indices": _index_types,
    "NaN and infinities": _nan,
    "dest=, out=": _dest_and_out,
    "an array for each field": _fields,
    "several histograms": _fused,
    "several values of an element": _several_emits,
    "batches, even and flat": _even_batches,
    "batches, ragged": _ragged_batches,
    "vectors": _vectors,
    "passes, copies": _passes,
    "hashed locks": _hashed_locks,
    "packed counters": _packed_counters,
    "held bins": _held_bins,
    "copies in turn, tiles": _private_copies,
    "streams": _streams,
    "bincount": _bincount,
    **FUNCTIONS,
    "device arrays": _device_arrays,
    **DIGESTS,
    "sampled race factor": _race_factor,
    "more than 2^31 elements": _long_counters,
}
QUICK_FORMS = (
    "distributions",
    "lengths",
    "dest=, out=",
    "several histograms",
    "batches, even and flat",
    "bincount",
    "means and variances",
)
# Functions that take no profile=, and so do the same in all.
WITHOUT_PROFILE = ("types of indices", "an array for each field", "vectors", "bincount", *FUNCTIONS)
