"""The operators of `clhist bench --op`: what each reads and computes, and what it must give."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from benchmarks.inputs import MULTIPLIER, NO_KEY, Host
from clhist import operators
from clhist.operators.operator import Operator

SATURATION = 2**24 - 1  # SC'20, section V-A
_KEY = f"(int)((uint)i * {MULTIPLIER}u)"
_RECORD = np.dtype([("key", np.int64), ("position", np.int64)], align=True)


@dataclass(frozen=True)
class Benched:
    """One operator.

    Attributes
    ----------
    name, text : str
        What `--op` calls it, and what `--help` says of it.
    operator : Operator
        How values are combined.
    value : str
        C of the value of element i.
    reference : callable
        Gives the right result, of the operator's dtype or one that compares with it.
    weighted : bool
        Whether the weights are read as well as the bins.
    image : bool
        Whether the bins are uint8, and 256.
    update : str or None
        The update that it is forced to have.
    model_update : str or None
        The update that it stands for in SC'20, Fig. 7.
    """

    name: str
    text: str
    operator: Operator
    value: str
    reference: Callable[[Host], np.ndarray]
    weighted: bool = False
    image: bool = False
    update: str | None = None
    model_update: str | None = None

    @property
    def arrays(self) -> tuple[str, ...]:
        """The arrays that it reads."""
        return ("bins", "weights") if self.weighted else ("bins",)

    @property
    def arguments(self) -> str:
        """The arguments of its map, as C declares them."""
        bins = f"const {'uchar' if self.image else 'int'} *bins"
        return f"{bins}, const float *weights" if self.weighted else bins

    @property
    def map(self) -> str:
        """Its map."""
        return f"EMIT(bins[i], {self.value})"


def _argmax(host: Host) -> np.ndarray:
    pairs = np.zeros(host.num_bins, operators.argmax(np.int32).dtype)
    pairs["value"], pairs["index"] = host.largest_key, host.position_of_largest_key(2**31 - 1)
    return pairs


def _record(host: Host) -> np.ndarray:
    records = np.zeros(host.num_bins, _RECORD)
    records["key"], records["position"] = host.largest_key, host.position_of_largest_key(-1)
    return records


OPERATORS = {
    benched.name: benched
    for benched in (
        Benched(
            "count",
            "int32 additions of 1; only the bins are read",
            operators.add(np.int32),
            "1",
            lambda host: host.counts,
            model_update="native",
        ),
        Benched(
            "add",
            "float32 sums of weights: both arrays are read, and F is of both",
            operators.add(np.float32),
            "weights[i]",
            lambda host: host.sums,
            weighted=True,
        ),
        Benched(
            "maximum",
            "float32 maxima of weights, likewise",
            operators.maximum(np.float32),
            "weights[i]",
            lambda host: host.largest,
            weighted=True,
        ),
        Benched(
            "sat",
            "int32 additions of 1 that stop at 2^24 - 1, forced to be cas; only the bins are read",
            operators.saturating_add(np.int32, SATURATION),
            "1",
            lambda host: np.minimum(host.counts, SATURATION),
            update="cas",
            model_update="cas",
        ),
        Benched(
            "argmax",
            "(int32, int32): largest value and its position; the value is made of i, only the bins are read",
            operators.argmax(np.int32),
            f"((value_t){{{_KEY}, (int)i}})",
            _argmax,
        ),
        Benched(
            "lock",
            "(int64, int64): likewise, in 16 bytes that only locks can update (or sorting replaces)",
            Operator(
                _RECORD,
                "b.key > a.key || (b.key == a.key && b.position < a.position) ? b : a",
                (NO_KEY, -1),
                "largest record",
            ),
            f"((value_t){{{_KEY}, i}})",
            _record,
            model_update="lock",
        ),
        Benched(
            "count8",
            "int32 additions of 1 for the uint8 pixels of an image: 256 bins, whatever -H says",
            operators.add(np.int32),
            "1",
            lambda host: host.counts,
            image=True,
        ),
    )
}
