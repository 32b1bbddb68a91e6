"""What users of other libraries write first: it works, or the error says what to write."""

import inspect

import numpy as np
import pandas
import pytest

import clhist
from clhist import ndimage

pytestmark = pytest.mark.usefixtures("without_optimizer")

BINS, X = np.array([0, 1, 1], np.int32), np.array([1.0, 2.0, 3.0], np.float32)


class Tensor:
    """As PyTorch's, which NumPy does not read."""

    def __init__(self, dtype="torch.float32", requires_grad=False, device="cpu"):
        self.dtype, self.requires_grad, self.device = dtype, requires_grad, device

    def cpu(self):
        return self

    def __array__(self, *args, **options):
        raise RuntimeError("Can't call numpy() on this Tensor.")


@pytest.fixture(scope="module")
def kernel():
    return clhist.HistogramKernel(
        None, clhist.operators.count(), arguments="const int32_t *b", map="EMIT(b[i], 1)", emits=1
    )


@pytest.mark.parametrize(
    ("op", "hint"),
    [
        (np.mean, "'sum', .*'mean'.*; got mean; write 'mean'$"),
        (np.nansum, "write 'sum'$"),
        (max, "write 'max'$"),
        (len, "write 'count'$"),
        ("maxx", "got 'maxx'; write 'max'$"),
        ("average", "write 'mean'$"),
        ("fmin", "got 'fmin'; write numpy.fmin$"),
        ("multiply", "write numpy.multiply$"),
        ("p95", "got 'p95'$"),
        (lambda a, b: a, r"got <lambda>. Others are written as clhist.Operator\(dtype, combine, neutral\)$"),
    ],
)
def test_names_of_operators(op, hint):
    with pytest.raises(TypeError, match=rf"^op: expected a clhist.Operator.*{hint}"):
        clhist.reduce_by_index(3, op, BINS, X)


def test_operators_of_kernels():
    for operator in (np.mean, [np.mean]):
        with pytest.raises(TypeError, match=r"^operator.*write 'mean'$"):
            clhist.HistogramKernel(None, operator, arguments="const int *b", map="EMIT(b[i], 1)", dtype="f4")


def test_kernels_take_lists(kernel):
    for given in ([0, 1, 1], (0, 1, 1), range(2), [], pandas.Series(BINS), [[0, 1], [1, 1]]):
        expected = np.bincount(np.asarray(given, int).ravel(), minlength=3)
        np.testing.assert_array_equal(kernel(given, num_bins=3), expected)
    np.testing.assert_array_equal(kernel.bind([0, 1, 1], num_bins=3)(), [1, 2, 0])
    np.testing.assert_array_equal(kernel.accumulator(3).add([0, 1, 1]).result(), [1, 2, 0])
    assert kernel.race_factor([0, 1, 1], num_bins=3).pairs == 3
    for wrong, error, match in [
        ([0, 1.5], TypeError, "expected int32, got a list of float64"),
        ([0, 2**40], ValueError, "expected numbers that fit int32"),
        ([[0], [1, 2]], ValueError, "inhomogeneous"),
        (pandas.Series([0, 1]), TypeError, "expected an array of int32, got one of int64"),
        (None, TypeError, "got NoneType"),
        ("ab", TypeError, "got str"),
        (Tensor(requires_grad=True), TypeError, r"got Tensor that requires a gradient; pass .detach\(\)"),
    ]:
        with pytest.raises(error, match=f"^b: .*{match}"):
            kernel(wrong, num_bins=3)


def test_the_number_of_bins_is_a_keyword(kernel):
    for call in (lambda: kernel(BINS, 3), lambda: kernel.bind(BINS)):
        with pytest.raises(TypeError, match=r"^num_bins: .*it is a keyword: kernel\(x, num_bins=10\)"):
            call()


def test_accumulators_return_themselves():
    found = clhist.Accumulator(np.add, 2, dtype=np.float32).add(BINS, X)
    assert found.extend([(BINS, X)]).merge(found.partial(), allow_repeat=True).result().tolist() == [4, 20]
    several = clhist.MultiAccumulator(np.add, 2, dtype=np.float32)
    assert several.add(BINS, X).extend([(BINS, X)]).merge(found).result().tolist() == [6, 30]


@pytest.mark.parametrize(
    ("tensor", "hint"),
    [
        (Tensor(requires_grad=True), r"that requires a gradient; pass .detach\(\)"),
        (Tensor("torch.bfloat16"), r"of bfloat16; pass .float\(\)"),
        (Tensor(device="cuda:0"), r"on cuda:0; pass .cpu\(\)"),
    ],
)
def test_tensors_that_numpy_does_not_read(tensor, hint):
    for name, call in {
        "values": lambda: clhist.reduce_by_index(3, "sum", BINS, tensor),
        "x": lambda: clhist.group_by(BINS).mean(tensor),
        "a": lambda: clhist.histogram(tensor),
        "sample": lambda: clhist.stats.binned_statistic(tensor, X),
        "input": lambda: ndimage.mean(tensor, BINS, [0, 1]),
        "labels": lambda: ndimage.mean(X, tensor, [0, 1]),
        "weights": lambda: clhist.bincount(BINS, tensor),
    }.items():
        with pytest.raises(TypeError, match=rf"^{name}: expected what numpy.asarray takes, got Tensor {hint}$"):
            call()


def test_types_without_a_kernel():
    with pytest.raises(TypeError, match=r"^values: .*no type for .*convert it by .astype\(numpy.float64\)$"):
        clhist.reduce_by_index(3, "sum", BINS, X.astype(np.longdouble))
    with pytest.raises(TypeError, match=r"^values: .*no type for datetime64\[D\].*compute on .view\(numpy.int64\)"):
        clhist.reduce_by_index(3, "max", BINS, X.astype("M8[D]"))


def test_names_of_other_libraries():
    for name in ("scatter_add", "segment_sum", "index_add_"):
        with pytest.raises(AttributeError, match=r"write clhist.reduce_by_index\("):
            getattr(clhist, name)
    with pytest.raises(AttributeError, match=r"'nothing'$"):
        clhist.nothing  # noqa: B018
    assert ndimage.sum is ndimage.sum_labels
    for name in ("percentile", "labeled_comprehension"):
        with pytest.raises(AttributeError, match=f"{name!r}; "):
            getattr(ndimage, name)


def test_signatures_show_all_options():
    shown = inspect.signature(clhist.reduce_by_index).parameters
    assert {"update", "memory", "copies", "race_factor", "memory_budget", "return_event", "out"} <= shown.keys()
    assert {"update", "memory", "memory_budget", "start"} <= inspect.signature(clhist.Accumulator).parameters.keys()
    for function in (clhist.reduce_by_index, clhist.Accumulator, clhist.group_by):
        parameters = inspect.signature(function).parameters.values()
        assert not any(each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters)
        several = [each.name for each in parameters if each.kind is inspect.Parameter.VAR_POSITIONAL]
        assert several == (["names"] if function is clhist.group_by else [])  # names of a table's key columns
