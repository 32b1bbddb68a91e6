"""`Accumulator`: what is wrong is refused, and named, and nothing of it is added."""

from __future__ import annotations

import numpy as np
import pyopencl.array as cl_array
import pytest
import streams
from streams import SUM

from clhist import Accumulator, HistogramKernel, MultiAccumulator

pytestmark = pytest.mark.usefixtures("without_optimizer")

path = streams.path


@pytest.mark.parametrize(
    ("args", "options", "error", "message"),
    [
        ((np.add, 3), {}, TypeError, r"dtype: expected that of the bins for <ufunc 'add'>"),
        ((np.subtract, 3), {"dtype": "i4"}, TypeError, r"operator: expected a clhist.Operator"),
        ((None, 3), {}, TypeError, r"operator: expected a clhist.Operator"),
        ((SUM, 0), {}, ValueError, r"num_bins: expected at least 1, got 0"),
        ((SUM, 2.5), {}, TypeError, r"num_bins: expected an integer, got 2.5"),
        ((SUM, (3, 4)), {}, ValueError, r"num_bins: expected one dimension for an operator, got \(3, 4\)"),
        ((SUM, 3), {"dtype": "i4"}, TypeError, r"operator: expected an operator on int32, got one on int64"),
        ((SUM, 3), {"dest": np.zeros(3)}, TypeError, r"dest: expected an array of int64, got one of float64"),
        ((SUM, 3), {"dest": np.zeros(4, int)}, ValueError, r"dest: expected shape \(3,\), got \(4,\)"),
        ((SUM, 3), {"dest": [1, 2, 3]}, TypeError, r"dest: expected a NumPy or PyOpenCL array of int64, got list"),
        ((SUM, 3), {"chunk_bytes": 0}, ValueError, r"chunk_bytes: expected at least 1, got 0"),
        ((SUM, 3), {"chunk_bytes": "1M"}, TypeError, r"chunk_bytes: expected an integer, got '1M'"),
        ((SUM, 3), {"start": -1}, ValueError, r"start: expected at least 0, got -1"),
        ((SUM, 3), {"first_index": "first"}, TypeError, r"first_index: expected none, since there is no map"),
        ((SUM, 3), {"colour": 3}, TypeError, r"colour: expected one of copies, .* or memory_budget"),
    ],
)
def test_bad_accumulators(args, options, error, message):
    with pytest.raises(error, match=f"^{message}"):
        Accumulator(*args, **options)


@pytest.mark.parametrize("name", ["x", "weight", "second", 3])
def test_bad_first_index(name):
    kernel = HistogramKernel(
        None, SUM, arguments="const int *x, float weight, int first", map="EMIT(x[i], weight + first + i)"
    )
    with pytest.raises(ValueError, match=r"^first_index: expected the name of a scalar argument of an integer type"):
        kernel.accumulator(3, first_index=name)
    with pytest.raises(TypeError, match=r"^dtype: expected none"):
        kernel.accumulator(3, dtype=np.int32)


@pytest.mark.parametrize("values", [np.ones(3), np.ones((2, 2)), [1, 2, 3]], ids=str)
def test_counts_check_the_shape_of_values(values):
    counts = Accumulator("count", 3)
    with pytest.raises(ValueError, match=r"^values: expected shape \(4,\) as of indices, got \("):
        counts.add(INDICES, values)
    for one in (1, None, 2.5, VALUES, VALUES.tolist()):
        counts.add(INDICES, one)
    assert counts.result().tolist() == [20, 0, 0]


INDICES, VALUES = np.zeros(4, np.int32), np.ones(4, np.int64)


@pytest.mark.parametrize(
    ("args", "options", "error", "message"),
    [
        ((INDICES,), {}, TypeError, r"add: expected indices and values, got 1 arguments"),
        ((INDICES, VALUES, 3), {}, TypeError, r"add: expected indices and values, got 3 arguments"),
        ((INDICES, VALUES), {"size": 3}, TypeError, r"add: expected indices and values, got 2 arguments and size=3"),
        ((INDICES / 2, VALUES), {}, TypeError, r"indices: expected integers, got float64"),
        ((INDICES, VALUES[:3]), {}, ValueError, r"values: expected shape \(4,\) as of indices, got \(3,\)"),
        ((INDICES, VALUES / 2), {}, TypeError, r"values: expected what converts to int64"),
        ((INDICES, 2.5), {}, ValueError, r"values: .*2.5.* does not fit int64"),
        ((INDICES, None), {}, TypeError, r"values: expected a scalar of int64, got NoneType"),
    ],
)
def test_bad_pairs(args, options, error, message, path):
    accumulator = Accumulator(SUM, 3, chunk_bytes=16)
    accumulator.add(INDICES, VALUES)
    with pytest.raises(error, match=f"^{message}"):
        accumulator.add(*args, **options)
    with pytest.raises(error):
        accumulator.extend([(INDICES, VALUES), args if not options else (None, None)])
    assert accumulator.size == 8
    assert accumulator.result().tolist() == [8, 0, 0]


@pytest.mark.parametrize(
    ("args", "error", "message"),
    [
        ((INDICES,), TypeError, r"add: expected 3 arguments \(x, y, scale\), got 1"),
        ((INDICES, VALUES, 1, 0), TypeError, r"add: expected 3 arguments"),
        ((VALUES, VALUES, 1), TypeError, r"x: expected an array of int32, got one of int64"),
        ((INDICES, [1], 1), ValueError, r"y: expected at least 4 elements, got 1"),
        ((INDICES, VALUES[:3], 1), ValueError, r"y: expected at least 4 elements, got 3"),
        ((INDICES, VALUES, None), TypeError, r"scale: expected a scalar of int32, got NoneType"),
        ((INDICES.repeat(40), VALUES.repeat(40), 1), ValueError, r"first: .*does not fit int8"),
    ],
)
def test_bad_arguments_of_a_map(args, error, message, path):
    kernel = HistogramKernel(
        None, SUM, arguments="const int *x, const long *y, char first, int scale", map="EMIT(x[i], y[i] * scale)"
    )
    accumulator = kernel.accumulator(2, chunk_bytes=8, first_index="first")
    accumulator.add(INDICES, VALUES, 2)
    with pytest.raises(error, match=f"^{message}"):
        accumulator.add(*args)
    assert accumulator.size == 4
    assert accumulator.result().tolist() == [8, 0]


def test_arrays_of_two_kinds_or_contexts_are_refused(path, queue, other_queue):
    accumulator = Accumulator(SUM, 2, queue=queue)
    with pytest.raises(TypeError, match=r"^indices: expected a PyOpenCL array as values is"):
        accumulator.add(INDICES, cl_array.to_device(queue, VALUES))
    with pytest.raises(ValueError, match=r"^indices: expected an array of the context"):
        accumulator.add(*(cl_array.to_device(other_queue, array) for array in (INDICES, VALUES)))
    with pytest.raises(ValueError, match=r"^dest: expected an array of the context"):
        Accumulator(SUM, 4, queue=queue, dest=cl_array.to_device(other_queue, VALUES))
    assert accumulator.result().tolist() == [0, 0]


@pytest.mark.parametrize(
    ("other", "error", "message"),
    [
        (lambda: Accumulator(np.add, 3, dtype="i4"), ValueError, r"other: .* add on int64.* add on int32"),
        (lambda: Accumulator(SUM, 4), ValueError, r"other: expected 3 bins, got 4"),
        (lambda: np.zeros(3), TypeError, r"other: expected an Accumulator or a clhist.Partial, got ndarray"),
        (lambda: None, TypeError, r"other: expected an Accumulator or a clhist.Partial, got NoneType"),
    ],
)  # fmt: skip
def test_bad_merges(other, error, message):
    accumulator = Accumulator(SUM, 3, dest=np.arange(3))
    with pytest.raises(error, match=f"^{message}"):
        accumulator.merge(other())
    assert accumulator.result().tolist() == [0, 1, 2]


def test_bad_merges_of_several():
    def made(*names):
        code = "; ".join(f"EMIT_{name}(0, 1)" for name in names)
        return HistogramKernel(None, dict.fromkeys(names, SUM), arguments="", map=code).accumulator(2)

    accumulator = made("a", "b")
    with pytest.raises(ValueError, match=r"^other: expected histograms a, b, got a, c"):
        accumulator.merge(made("a", "c"))
    assert accumulator.result()["a"].tolist() == [0, 0]


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"total": "many"}, TypeError, "total: expected an integer, got 'many'"),
        ({"total": -1}, ValueError, "total: expected at least 0, got -1"),
        ({"progress": "yes"}, TypeError, "progress: expected a bool or a callable, got 'yes'"),
        ({"progress": None}, TypeError, "progress: expected a bool or a callable, got None"),
    ],
)
def test_bad_extend(options, error, message):
    accumulator = Accumulator(SUM, 3)
    with pytest.raises(error, match=f"^{message}"):
        accumulator.extend([(INDICES, VALUES)], **options)
    assert accumulator.size == 0


@pytest.mark.parametrize("kind", [Accumulator, MultiAccumulator])
def test_extend_by_what_has_no_chunks(kind):
    accumulator = kind(SUM, 3)
    with pytest.raises(TypeError, match=r"^iterable: expected chunks, each what add takes, got 5"):
        accumulator.extend(5)
    assert accumulator.size == 0
