"""One case: a call, what it should give, and what of the library it covers."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field

import numpy as np
import pyopencl as cl

Action = Callable[[cl.CommandQueue, np.random.Generator], None]  # raises AssertionError with what differs


@dataclass(frozen=True)
class Case:
    """One call.

    Attributes
    ----------
    name : str
        Unique.
    action : callable
        Makes the call with input drawn from a generator, and compares its result with NumPy's.
    strategy, update : str
        That a plan of the call must have, or nothing.
    covers : frozenset of str
        Options, with their values where these are words, and operators: ``"passes"``, ``"memory local"``,
        ``"operator argmax"``.
    """

    name: str
    action: Action = field(repr=False)
    strategy: str = ""
    update: str = ""
    covers: frozenset[str] = frozenset()

    def run(self, queue: cl.CommandQueue) -> None:
        """Run it, always with the same input."""
        self.action(queue, np.random.default_rng(zlib.crc32(self.name.encode())))

    def missing(self, strategies: Collection[str], updates: Collection[str]) -> str:
        """Return what should have run and did not; nothing if it did."""
        wanted = [(self.strategy, strategies), (self.update, updates)]
        gone = [
            f"no plan was {one}, but {', '.join(sorted(found))}" for one, found in wanted if one and one not in found
        ]
        return "; ".join(gone)


def words_of(options: dict[str, object]) -> Iterable[str]:
    """Return what options cover: their names, and values that are words or widths."""
    for name, value in options.items():
        yield name
        if isinstance(value, str) or name == "counter_bits":
            yield f"{name} {value}"


def same(found: object, expected: np.ndarray) -> None:
    """Compare arrays bit by bit, but for NaN.

    Raises
    ------
    AssertionError
        With the first difference.
    """
    got = np.asarray(found)
    if got.dtype != expected.dtype or got.shape != expected.shape:
        raise AssertionError(f"{got.dtype}{got.shape}, expected {expected.dtype}{expected.shape}")
    got, expected = got.ravel(), expected.ravel()
    wrong = np.flatnonzero(~((got == expected) | ((got != got) & (expected != expected))))
    if len(wrong):
        k = wrong[0]
        raise AssertionError(f"{len(wrong)} of {len(got)} bins, the first {k}: {got[k]}, expected {expected[k]}")


def bins_of(kind: str, rng: np.random.Generator, n: int, h: int) -> np.ndarray:
    """Return `n` bins: uniform, all in one, half of them in the last, or some outside."""
    if kind == "one":
        return np.full(n, h // 2, np.int32)
    if kind == "half":
        return np.where(rng.random(n) < 0.5, h - 1, rng.integers(0, h, n)).astype(np.int32)
    low, high = (0, h) if kind == "uniform" else (-2, h + 3)
    return rng.integers(low, high, n, np.int32)


def folded(ufunc: np.ufunc, bins: np.ndarray, values: np.ndarray, start: np.ndarray) -> np.ndarray:
    """Return what NumPy makes of `start` and the values of each bin."""
    found, inside = start.copy(), (bins >= 0) & (bins < len(start))
    ufunc.at(found, bins[inside], values[inside].astype(start.dtype))
    return found
