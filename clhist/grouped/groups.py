"""The groups of keys: the number of the group of each element, and the key of each group."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Never

import numpy as np

from clhist._core.opencl.arrays import Array, as_bytes, check_context, check_layout, is_device_array, mask_of
from clhist._core.opencl.lost import fetched
from clhist._core.runtime.columns import ColumnData, from_arrow, of_list, picked
from clhist._core.runtime.labelled import unlabelled
from clhist._core.runtime.reading import as_array
from clhist._core.runtime.small import is_small
from clhist.grouped import host
from clhist.grouped.columns import by_its_library, like_keys, scattered, without_missing
from clhist.grouped.factorized import factorized
from clhist.grouped.hints import check_index, check_keys, check_number
from clhist.operators.c_types import integer

if TYPE_CHECKING:
    import pyopencl as cl


class Groups(NamedTuple):
    """The groups of some keys.

    Attributes
    ----------
    numbers : array of integers
        The group of each element, of the shape of the keys; outside [0, num_groups) where it belongs to none.
    num_groups : int
        How many there are.
    labels : array of NumPy, PyOpenCL or PyArrow, callable, or None
        The key of each group, or what returns it on the host, in several columns if the keys are; None if it is its
        number.
    names : tuple
        Those of the columns, None where one has none.
    on_device : bool
        Whether the caller's keys are on a device.
    queue : pyopencl.CommandQueue or None
        Where they are; None of few keys on the host, whose statistics the host computes.
    like : tuple of callable or None
        For each column what makes keys a column of the caller's library; None where the array of the keys will do.
    index : pandas.Index or None
        That of the first column, if it has one.
    """

    numbers: Array
    num_groups: int
    labels: Any
    names: tuple[Any, ...]
    on_device: bool
    queue: cl.CommandQueue | None
    like: tuple[Callable[[Any], Any] | None, ...] = (None,)
    index: Any = None


def groups_of(keys: Any, num_groups: int | None, sort: bool, queue: cl.CommandQueue | None) -> Groups:
    """Return the groups of keys.

    Parameters
    ----------
    keys : array, column, or several of them
        As `clhist.group_by` takes them.
    num_groups : int or None
        How many groups there are, if keys are their numbers.
    sort : bool
        Whether groups are in the order of their keys, rather than in that of their first elements.
    queue : pyopencl.CommandQueue or None
        The caller's.

    Raises
    ------
    TypeError, ValueError
        If an argument is wrong; it is named.
    """
    if keys is None:
        raise TypeError("keys: expected an array, got None; numpy.zeros(n, int) puts n elements into one group")
    check_keys(keys)
    columns = _columns(keys)
    check_number(num_groups)
    names: Any = getattr(keys, "column_names", None)  # which columns of PyArrow have not
    # Number each column separately; the combinations of these numbers are then keys themselves.
    if columns is not None and len(columns) > 1:
        if num_groups is not None:
            raise TypeError(f"num_groups: expected none with keys of {len(columns)} columns, got {num_groups!r}")
        _check_columns(columns, queue)
        each_column = [_one_column(column, None, True, queue) for column in columns]
        for n, column in enumerate(columns):
            check_index(f"keys[{n}]", column, each_column[0].index)
        joined = _joined(each_column, sort)
        return joined if names is None else joined._replace(names=tuple(names))
    groups = _one_column(keys if columns is None else columns[0], num_groups, sort, queue)
    return groups if names is None else groups._replace(names=tuple(names))


def _columns(keys: Any) -> list[Any] | None:
    """Return the columns of a dataframe or of a list of arrays; None of one column."""
    if hasattr(keys, "columns") and hasattr(keys, "shape"):
        columns = columns_of_frame(keys)  # by position, since names may occur twice
    elif isinstance(keys, list | tuple) and any(map(_is_column, keys)):
        columns = list(keys)
    else:
        return None
    if not columns:
        raise TypeError("keys: expected a column at least, got none")
    return columns


def columns_of_frame(frame: Any) -> list[Any]:
    """Return the columns of a dataframe of pandas, polars or PyArrow, or of another library that has them by name."""
    if hasattr(frame, "iloc"):
        return [frame.iloc[:, n] for n in range(len(frame.columns))]
    if hasattr(frame, "get_columns"):
        return list(frame.get_columns())
    return list(frame.columns) if hasattr(frame, "column_names") else [frame[name] for name in frame.columns]


def _is_column(value: Any) -> bool:
    return (
        getattr(value, "shape", ()) != () or hasattr(value, "__arrow_c_array__") or hasattr(value, "__arrow_c_stream__")
    )


def _one_column(keys: Any, num_groups: int | None, sort: bool, queue: cl.CommandQueue | None) -> Groups:
    names = (getattr(keys, "name", None),)
    numbers, labels, on_device = numbers_of(keys, num_groups is not None, sort, queue)
    # Statistics run on the device that has the numbers.
    if queue is None and is_device_array(numbers):
        queue = numbers.queue or _default_queue()
    if queue is not None:
        check_context([("keys", numbers)], queue.context)
    if labels is None:
        number = integer("num_groups", num_groups, 0)
    elif num_groups is not None:
        raise TypeError(f"num_groups: expected none for keys that are no integers, which have {len(labels)}")
    else:
        number = len(labels)
    # For many elements or groups a device pays off; few leave `queue` None, and the host computes.
    if queue is None and not is_small("group_by", max(numbers.size, number), None):
        queue = _default_queue()
    return Groups(
        numbers,
        number,
        labels,
        names,
        on_device,
        queue,
        (None if type(keys) is np.ndarray else like_keys(keys),),
        keys.index if hasattr(keys, "iloc") else None,
    )


def _default_queue() -> cl.CommandQueue:
    from clhist._core.opencl.device import default_queue  # PyOpenCL, which few elements do without

    return default_queue()


def numbers_of(keys: Any, are_numbers: bool, sort: bool, queue: cl.CommandQueue | None) -> tuple[Array, Any, bool]:
    """Return the numbers of one column and the keys, which are None if integers are the numbers of groups."""
    if is_device_array(keys):
        check_layout("keys", keys)
        if are_numbers:
            if keys.dtype.kind not in "iub":
                raise TypeError(f"keys: expected integers on a device, got {keys.dtype}")
            return as_bytes(keys) if keys.dtype.kind == "b" else keys, None, True
        numbering = factorized(_flat(keys), queue, sort=sort, as_is=sort)
        numbers = as_bytes(numbering.numbers) if numbering.numbers.dtype.kind == "b" else numbering.numbers
        return numbers.reshape(keys.shape), numbering.keys, True
    return *_numbers_on_host(keys, are_numbers, sort, queue), False


def _numbers_on_host(
    keys: Any, are_numbers: bool, sort: bool, queue: cl.CommandQueue | None
) -> tuple[Array, np.ndarray | None]:
    if type(keys) is not np.ndarray:
        keys = from_arrow(keys)
    if hasattr(getattr(keys, "cat", None), "codes"):  # a Series of categories
        keys = keys.array
    # A Categorical has a group for each category, also for those that do not occur.
    if hasattr(keys, "codes") and hasattr(keys, "categories"):
        return np.asarray(keys.codes), np.asarray(keys.categories)
    if (codes_and_labels := by_its_library(keys, sort)) is not None:
        return codes_and_labels
    present, missing, nan_is_key = without_missing(of_list("keys", keys))
    if are_numbers and present.dtype.kind in "iub":
        present = as_bytes(present) if present.dtype.kind == "b" else present
        return (present if missing is None else scattered(present, missing)), None
    # On another device than the host's they stay: the numbers are needed there.
    stays = bool(present.size) and missing is None and queue is not None and not _shares_memory(queue.device)
    options = {"sort": sort, "as_is": sort, "missing": nan_is_key, "on_host": not stays}
    numbering = factorized(np.reshape(present, -1), queue, **options)
    numbers = numbering.numbers.reshape(present.shape)
    numbers = as_bytes(numbers) if numbers.dtype.kind == "b" else numbers
    return (numbers if missing is None else scattered(numbers, missing)), numbering.keys


def _shares_memory(device: cl.Device) -> bool:
    from clhist._core.opencl.new_arrays import shares_memory

    return shares_memory(device)


_OF_COLUMNS = ("isna", "to_arrow", "dictionary_encode")  # attributes of columns of pandas, polars and PyArrow


def numbered_texts(name: str, x: Any, statistics: Sequence[str], queue: cl.CommandQueue | None) -> ColumnData | None:
    """Return the numbers of values that are no numbers, as texts and categories, as a column; None of numbers.

    The numbers are in the order of the values if one of the statistics compares them.

    Raises
    ------
    TypeError
        If the values cannot be hashed, or compared where that is asked for.
    """
    # Positions and counts ignore the order of the values, which then need no sort.
    x, compares = unlabelled(x), any(statistic not in ("first", "last", "count") for statistic in statistics)
    dtype = getattr(x, "dtype", None)
    if dtype is None and not hasattr(x, "dictionary_encode"):
        if not isinstance(x, list | tuple):
            return None
        x = of_list(name, x)
        dtype = as_array(name, x).dtype
    if not isinstance(dtype, np.dtype) and not any(hasattr(x, name) for name in _OF_COLUMNS):  # a tensor
        dtype = as_array(name, x).dtype
    if isinstance(dtype, np.dtype) and dtype.kind not in "OSUT":
        return None
    if mask_of(x) is not None:
        raise ValueError(f"{name}: expected text without masked elements, got a masked array; None is missing text")
    if compares and getattr(dtype, "ordered", None) is False and {"min", "max", "argmin", "argmax"} & {*statistics}:
        raise TypeError(f"{name}: expected values that have an order, got unordered categories; use cat.as_ordered()")
    try:
        numbers, labels, _ = numbers_of(x, False, compares, queue)
    except TypeError as error:
        raise TypeError(str(error).replace("keys:", f"{name}:", 1)) from error
    codes = np.asarray(numbers.get() if is_device_array(numbers) else numbers).astype(np.int64)
    missing = codes < 0

    def labelled(numbers: np.ndarray) -> Any:
        places = np.ma.filled(numbers, -1)
        if hasattr(dtype, "categories") and hasattr(x, "isna"):
            return type(getattr(x, "array", x)).from_codes(places, dtype=dtype)
        return picked(np.asarray(labels, object), places)

    return ColumnData(np.where(missing, 0, codes), missing if missing.any() else None, labelled)


def _flat(keys: Array) -> Array:
    return keys if keys.ndim == 1 else keys.reshape(-1)


def _check_columns(columns: Sequence[Any], queue: cl.CommandQueue | None) -> None:
    """Raise TypeError or ValueError if several columns cannot be joined, as far as this is known before they are read.

    Columns of PyArrow and lists have no shape; theirs are checked when they are joined.
    """
    of_device = next((column for column in columns if is_device_array(column)), None)
    # Without a queue of the caller, the first device array decides the context.
    context = None if of_device is None else of_device.context if queue is None else queue.context
    for n, column in enumerate(columns):
        if is_device_array(column) != is_device_array(columns[0]):
            _refuse_kind(n, is_device_array(columns[0]))
        if context is not None:
            check_context([(f"keys[{n}]", column)], context)
            check_layout(f"keys[{n}]", column)
    shapes = [np.shape(column) if np.isscalar(column) else getattr(column, "shape", None) for column in columns]
    if None not in shapes:
        _check_shapes(shapes)


def _refuse_kind(n: int, first_on_device: bool) -> Never:
    where = "a device" if first_on_device else "the host"
    raise TypeError(f"keys[{n}]: expected an array of the kind of keys[0], which is on {where}")


def _check_shapes(shapes: Sequence[Any]) -> None:
    """Raise ValueError if the shapes of several columns differ."""
    for n, shape in enumerate(shapes):
        if shape != shapes[0]:
            raise ValueError(f"keys[{n}]: expected shape {shapes[0]} as of keys[0], got {shape}")


def _joined(columns: Sequence[Groups], sort: bool) -> Groups:
    """Return the groups of the combinations of keys that occur."""
    first, *others = columns
    names = tuple(column.names[0] for column in columns)
    _check_shapes([column.numbers.shape for column in columns])
    for n, other in enumerate(others, 1):
        if other.on_device != first.on_device:
            _refuse_kind(n, first.on_device)
    queue = first.queue
    numbers, number = first.numbers, first.num_groups
    keys_of_pairs: list[Any] = []
    # Number the pairs after each column: a product of two counts fits 64 bits, one of all counts may not.
    for n, other in enumerate(others, 1):
        if queue is None:
            pairs = host.joined(numbers, number, other.numbers, other.num_groups)
            # Only the last numbering has to be in the requested order; sorted ones need no first positions.
            numbers, keys = host.numbered(pairs, number * other.num_groups, sort=sort or n < len(others))
            number = len(keys)
            keys_of_pairs.append(keys)
            continue
        from clhist.grouped.element_kernels import join
        from clhist.grouped.numbering import number_keys

        joined, bound = join(numbers, number, other.numbers, other.num_groups, queue), number * other.num_groups
        is_last = n == len(others)
        # Intermediate numbers stay on the device; the last ones go to the host if that costs no copy.
        on_host = is_last and not first.on_device and (_shares_memory(queue.device) or not joined.size)
        numbering = number_keys(joined, queue, sort=sort or not is_last, none=-1, bound=bound, on_host=on_host)
        numbers, number = numbering.numbers, len(numbering.keys)
        keys_of_pairs.append(numbering.keys)
    # The closure keeps the labels alone: whole columns would keep the memory of all elements.
    label_sources = [(column.labels, column.num_groups) for column in columns]

    def labels() -> tuple[np.ndarray, ...]:
        arrays = [labels_of(*label_sources[0])]
        for keys, (own, n) in zip(keys_of_pairs, label_sources[1:], strict=True):
            # A pair has the number left * n + right: gather the labels so far by left, the next ones by right.
            left, right = np.divmod(keys.get() if is_device_array(keys) else keys, max(1, n))
            arrays = [*(array[left] for array in arrays), labels_of(own, n)[right]]
        return tuple(arrays)

    like = tuple(column.like[0] for column in columns)
    return Groups(
        numbers.reshape(first.numbers.shape), number, labels, names, first.on_device, first.queue, like
    )._replace(index=first.index)


def labels_of(labels: Any, number: int) -> Any:
    """Return the keys of so many groups on the host; `labels` is as of `Groups`."""
    if labels is None:
        return np.arange(number)
    if callable(labels):
        return labels()
    return fetched(labels, labels.queue) if is_device_array(labels) else np.asarray(labels)


def labels_once(groups: Groups) -> Callable[[], Any]:
    """Return a function that returns `labels_of` these groups; it finds them when first called.

    `functools.cache` would take microseconds to make one.
    """
    labels, number, cached = groups.labels, groups.num_groups, list[Any]()

    def result() -> Any:
        if not cached:
            cached.append(labels_of(labels, number))
        return cached[0]

    return result
