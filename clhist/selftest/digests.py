"""Digests of exact sums: every device, driver, plan and tree of merges must give these bits.

The inputs are made of integers alone, so that no release of NumPy draws others. The table is computed from the
definition, with rational numbers, in `tests/unit/test_digest_table.py`.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyopencl as cl

from clhist import HistogramKernel, Profile, operators, reduce_by_index
from clhist.operators.fixed_point import FORMATS

if TYPE_CHECKING:
    from clhist.selftest.forms import Setting

_SIZE, _LARGE = 4000, 1_100_000  # elements; so many are tried in narrow sums


class DigestCase(NamedTuple):
    """One input: values of a dtype and a kind, into bins of a shape; `max_abs` as of `clhist.reduce_by_index`."""

    dtype: type
    kind: str
    shape: tuple[int, ...]
    max_abs: float | None = None
    size: int = _SIZE

    @property
    def name(self) -> str:
        """The name of the row in the table."""
        window = "" if self.max_abs is None else f", window {self.max_abs:g}"
        large = "" if self.size == _SIZE else f", {self.size} elements"
        return f"{np.dtype(self.dtype).name}, {self.kind}, {' x '.join(map(str, self.shape))}{window}{large}"

    @property
    def is_large(self) -> bool:
        """Whether it has too many elements for a simulator."""
        return self.size > _SIZE


_REAL, _COMPLEX = (np.float32, np.float64), (np.complex64, np.complex128)
KINDS = ("alike", "all sizes", "cancelling", "subnormal", "with infinities and NaN")
CASES = (
    *(DigestCase(dtype, kind, (37,)) for dtype in _REAL for kind in KINDS),
    *(DigestCase(dtype, kind, shape) for dtype in _REAL for kind in ("alike", "all sizes") for shape in ((1,), (301,))),
    *(DigestCase(dtype, "alike", (37, 3)) for dtype in _REAL),
    *(DigestCase(dtype, kind, (37,)) for dtype in _COMPLEX for kind in ("alike", "all sizes")),
    *(DigestCase(dtype, "alike", (37,), max_abs) for dtype in _REAL for max_abs in (64.0, 1e6)),
    *(DigestCase(np.float32, kind, (3001,), size=_LARGE) for kind in ("alike", "one much larger")),
)
DTYPES = tuple(np.dtype(dtype).name for dtype in (*_REAL, *_COMPLEX))
WAYS: tuple[dict[str, Any], ...] = (
    {},
    {"update": "carry", "memory": "local"},
    {"update": "carry", "memory": "global", "copies": 2},
    {"update": "lock", "memory": "local"},
    {"update": "private"},
)

# By the names of cases: the first 16 digits of the SHA-256 of a result in little-endian order.
TABLE: dict[str, str] = {
    "float32, alike, 37": "432041d905bd1d2a",
    "float32, all sizes, 37": "71ddf04f0c6e3c37",
    "float32, cancelling, 37": "ba04efc2f46eeb3e",
    "float32, subnormal, 37": "ca834ee1d0e2896b",
    "float32, with infinities and NaN, 37": "86cb897a66a9ce24",
    "float64, alike, 37": "4184438c30b19ccf",
    "float64, all sizes, 37": "653b8cffd63b5ed4",
    "float64, cancelling, 37": "d4d164a345b79850",
    "float64, subnormal, 37": "fddbb2e7551199c3",
    "float64, with infinities and NaN, 37": "4f59706dca292229",
    "float32, alike, 1": "fe310ff484ebb015",
    "float32, alike, 301": "c5cc215383a57918",
    "float32, all sizes, 1": "184e074310de4599",
    "float32, all sizes, 301": "49f7e9804d9addba",
    "float64, alike, 1": "27be610c1f593723",
    "float64, alike, 301": "b03d134dec0e69c7",
    "float64, all sizes, 1": "e91421d7be47f2ff",
    "float64, all sizes, 301": "a498e7ff7a1fcbe7",
    "float32, alike, 37 x 3": "84f1f67ec88bfd3c",
    "float64, alike, 37 x 3": "34bb00b255ea384e",
    "complex64, alike, 37": "389d97e5b26e21ad",
    "complex64, all sizes, 37": "76bbb7831d093f7e",
    "complex128, alike, 37": "9101810c1e89ea0a",
    "complex128, all sizes, 37": "49652072a48e6534",
    "float32, alike, 37, window 64": "432041d905bd1d2a",
    "float32, alike, 37, window 1e+06": "f50312ded41a65c3",
    "float64, alike, 37, window 64": "4184438c30b19ccf",
    "float64, alike, 37, window 1e+06": "15e069c02e1d4bff",
    "float32, alike, 3001, 1100000 elements": "de5f2c2a28f409f8",
    "float32, one much larger, 3001, 1100000 elements": "c127de37b383b696",
}


def exact_sums(at: Setting, dtype: str) -> None:
    """Check the sums of a dtype's cases, by plans of a profile in several ways; a few where there should be few."""
    cases = [case for case in CASES if np.dtype(case.dtype).name == dtype]
    for case in cases[::5] if at.quick or at.tiny else cases:
        if not (case.is_large and at.tiny):
            check_case(case, at.queue, at.profile)


def check_case(
    case: DigestCase, queue: cl.CommandQueue, profile: Profile | None = None, ways: tuple[dict[str, Any], ...] = WAYS
) -> None:
    """Raise AssertionError if the sums of a case, computed in these ways, have other bits than those of the table."""
    bins, values = inputs(case)
    # The kernel below sums one real number for each element.
    if len(case.shape) > 1 or values.dtype.kind == "c":
        options: dict[str, Any] = {"reproducible": True, "max_abs": case.max_abs, "queue": queue}
        assert_digest(case, reduce_by_index(case.shape, operators.add(case.dtype), bins, values, **options))
        return
    operator = operators.reproducible_add(case.dtype, case.max_abs)
    arguments = "const int *bins, const value_t *values"
    code = "EMIT(bins[i], values[i])"
    kernel = HistogramKernel(queue.context, operator, arguments=arguments, map=code, profile=profile)
    # A large case is computed by the planner's own choice alone.
    for way in ways[: 1 if case.is_large else None]:
        assert_digest(case, kernel(bins, values, num_bins=case.shape[0], queue=queue, **way), **way)


def inputs(case: DigestCase) -> tuple[np.ndarray, np.ndarray]:
    """Return bins, some of which do not exist, and values."""
    size = case.size
    # From -1 to H + 1: one bin before the first and two behind the last do not exist.
    bins = (_bits(1, size) % np.uint64(case.shape[0] + 3)).astype(np.int64).astype(np.int32) - 1
    dtype = np.dtype(case.dtype)
    if dtype.kind == "c":
        real = np.dtype(f"f{dtype.itemsize // 2}")
        parts = np.stack([_values(real, case.kind, size, 2), _values(real, case.kind, size, 3)], axis=-1)
        return bins, parts.view(dtype)[..., 0]
    columns = [_values(dtype, case.kind, size, 2 + k) for k in range(case.shape[1] if len(case.shape) > 1 else 1)]
    return bins, columns[0] if len(case.shape) == 1 else np.stack(columns, axis=-1)


def digest(result: np.ndarray) -> str:
    """Return the digest of a result."""
    little = np.ascontiguousarray(result, result.dtype.newbyteorder("<"))
    return hashlib.sha256(little.tobytes()).hexdigest()[:16]


def assert_digest(case: DigestCase, result: np.ndarray, **way: object) -> None:
    """Raise AssertionError if a result has other bits than those of the table; `way` is how it came about."""
    actual = digest(result)
    if actual != TABLE[case.name]:
        how = "".join(f", {name}={value!r}" for name, value in way.items())
        raise AssertionError(f"{case.name}{how}: expected the digest {TABLE[case.name]} of exact sums, got {actual}")


def _values(dtype: np.dtype, kind: str, size: int, seed: int) -> np.ndarray:
    """Return values of a real dtype, made bit by bit."""
    fmt, width = FORMATS[dtype], 8 * dtype.itemsize
    random, more = _bits(seed, size), _bits(seed + 100, size)
    sign, fraction = random >> np.uint64(63), random & np.uint64((1 << fmt.shift) - 1)
    # The greatest exponent field of values, and how many fields from there down are drawn.
    most, count = {
        "all sizes": (2 * fmt.beyond - 20, 2 * fmt.beyond - 19),  # no sum is infinite
        "subnormal": (1, 2),
    }.get(kind, (fmt.beyond + 3, 12))
    exponent = np.uint64(most) - more % np.uint64(count)
    # Assemble IEEE floats from their fields, without an operation that rounds.
    bits = sign << np.uint64(width - 1) | exponent << np.uint64(fmt.shift) | fraction
    values = bits.astype(f"u{dtype.itemsize}").view(dtype)
    if kind == "cancelling":  # but for the last tenth, in another order
        half = size // 2
        values[half : half + half * 9 // 10] = -values[half * 9 // 10 - 1 :: -1]
    if kind == "one much larger":
        values[size // 2 + 39] = 2.0**100
    if kind == "with infinities and NaN":
        for k, value in enumerate((np.inf, -np.inf, np.nan, np.inf)):
            values[k * 101 + 7] = value
    return values


def _bits(seed: int, size: int) -> np.ndarray:
    """Return 64 random bits each: the generator of Steele, Lea and Flood (SplitMix64, 2014)."""
    with np.errstate(over="ignore"):
        z = (np.arange(1, size + 1, dtype=np.uint64) + np.uint64(seed << 32)) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))
