"""Names of pandas that users write first, and what to write instead."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import pyopencl as cl


class Hints:
    """A base class that raises a TypeError with a hint; type checkers do not see it."""

    if not TYPE_CHECKING:

        def __getitem__(self, name: Any) -> Any:
            raise TypeError(
                f"groups[{name!r}]: expected a method with the values as its argument; write groups.mean(df[{name!r}]) "
                f"or groups.agg({_column(name)}=(df[{name!r}], 'mean'))"
            )

        def __iter__(self) -> Any:
            raise TypeError("groups: expected no iteration; the key of each group is in groups.keys")


def check_keys(keys: Any) -> None:
    """Raise TypeError if keys are no column: the name of one, an iterator, a dict, a number."""
    if type(keys) is np.ndarray:
        return
    is_text = isinstance(keys, str | bytes)
    is_number = np.isscalar(keys) and not isinstance(keys, np.generic)  # NumPy's are arrays of no dimensions
    if is_text or is_number or isinstance(keys, set | frozenset | Mapping | Iterator) or callable(keys):
        hint = f"pass the column: group_by(df[{keys!r:.60}])" if is_text else "pass a column, an array or a list"
        raise TypeError(f"keys: expected columns of keys, got {keys!r:.60}; {hint}")


def check_index(name: str, x: Any, index: Any) -> None:
    """Raise ValueError if a Series of pandas has another index than the keys, with which it goes by position."""
    own = x.index if hasattr(x, "iloc") else None
    # Identity and length first, since comparing elements takes long; other lengths fail the check of shapes.
    if index is None or own is None or own is index or len(own) != len(index) or own.equals(index):
        return
    raise ValueError(
        f"{name}: expected the index of the keys, since elements go by position, got another index; "
        f"write {name}.reindex(keys.index), or {name}.to_numpy() for the positions"
    )


def check_number(num_groups: Any) -> None:
    """Raise TypeError if names of columns were given where the number of groups is expected."""
    if not isinstance(num_groups, str | list | tuple):
        return
    names = [num_groups] if isinstance(num_groups, str) else num_groups
    if not names or not all(isinstance(name, str) for name in names):
        return
    noun = "column" if num_groups is names[0] else "columns"
    raise TypeError(
        f"num_groups: expected a number, got {num_groups!r:.60}; pass the {noun}: group_by(df[{num_groups!r:.60}])"
    )


def check_room(num_groups: int, queue: cl.CommandQueue, *sizes: int) -> None:
    """Raise MemoryError for more groups than 32 bits can number, or than fit arrays of `sizes` bytes a group."""
    most = _most_groups(queue.device, sizes)
    if num_groups > most:
        raise MemoryError(
            f"num_groups: expected at most {most}, for which {queue.device.name.strip()} has memory, got {num_groups}"
        )


@lru_cache(maxsize=64)
def _most_groups(device: cl.Device, sizes: tuple[int, ...]) -> int:
    from clhist._core.opencl.device import memory_budget  # PyOpenCL, which few elements do without

    return min(memory_budget(device) // max(sizes), device.global_mem_size // sum(sizes), 2**32 - 2)


def check_by_name(positional: Sequence[Any]) -> None:
    """Raise TypeError if `clhist.GroupBy.agg` got arguments by position."""
    if not positional:
        return
    x, *statistics = positional
    if isinstance(x, Mapping):
        column = _column(next(iter(x), "x"))
        statistics, source = [*x.values()][:1], f"df[{column!r}]"
    else:
        column = source = "x"
    statistic = statistics[0] if statistics and isinstance(statistics[0], str) else "mean"
    raise TypeError(
        f"agg: expected columns by name, got {len(positional)} by position; "
        f"write agg({column}=({source}, {statistic!r}))"
    )


def _column(name: Any) -> str:
    return name if isinstance(name, str) and name.isidentifier() else "x"
