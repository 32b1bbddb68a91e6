"""`fill`: histograms of boost-histogram and hist from Dask collections."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from clhist.dask.tree import blocks_of, check_pickles, on_host, task, tree


def fill(
    h: Any, *args: Any, weight: Any = None, sample: Any = None, split_every: int | None = None, **named: Any
) -> Any:
    """Fill a histogram of boost-histogram or hist: `clhist.hist.fill` of Dask collections.

    Parameters
    ----------
    h : boost_histogram.Histogram or hist.Hist
        What is filled; it is left as it is. Its Regular and Variable axes do not grow.
    *args : dask array, dataframe column, `Delayed`, or scalar
        One for each axis, in the same blocks.
    weight, sample : of the same blocks, or scalar, optional
        As of `clhist.hist.fill`.
    split_every : int, optional
        How many partial histograms one task merges.
    **named
        By the names of axes.

    Returns
    -------
    Delayed
        Of a histogram of the type of `h`, with what `h` has.

    Raises
    ------
    TypeError, ValueError
        If an argument is wrong or `h` cannot be pickled; it is named, before any work starts.

    Examples
    --------
    >>> import boost_histogram as bh, dask.array as da
    >>> h = bh.Histogram(bh.axis.Regular(2, 0, 1))
    >>> clhist.dask.fill(h, da.linspace(0, 0.99, 1000, chunks=300)).compute().sum()
    1000.0
    """
    from clhist.hist.filler import Filler

    # Raises TypeError for an unsupported histogram.
    Filler(h)
    check_pickles("h", h)
    positional = {f"args[{k}]": collection for k, collection in enumerate(args)}
    blocks = blocks_of(**positional, **named, weight=weight, sample=sample)
    names = (*(None for _ in args), *named, "weight", "sample")
    # Partial histograms start empty, so that the contents of `h` count once, in the last merge.
    empty = h.copy().reset() if hasattr(h, "copy") else h
    parts = [task(_filled)(empty, names, *row) for row in blocks.rows]
    return task(_joined)([h, tree(parts, _joined, split_every)])


def _filled(h: Any, names: Sequence[str | None], *row: Any) -> Any:
    from clhist.hist.filler import Filler

    arrays = [on_host(block) for block in row]
    args = [array for name, array in zip(names, arrays, strict=True) if name is None]
    named = {name: array for name, array in zip(names, arrays, strict=True) if name is not None}
    return Filler(h).fill(*args, **named).partial()


def _joined(parts: Sequence[Any]) -> Any:
    from clhist.hist.filler import Filler

    whole = Filler(parts[0])
    for part in parts[1:]:
        whole.merge(part)
    return whole.result()
