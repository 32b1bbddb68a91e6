"""The functions of `clhist.torch` against PyTorch's and NumPy's, and what they refuse."""

import math

import numpy as np
import pytest
import tensors
import torch

import clhist
import clhist.torch as ct

DTYPES = (torch.float32, torch.float64, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
INDICES = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)


def reference(src, index, bins, reduce):
    """Return what NumPy's ufuncs make of the values of each bin; of means in float64."""
    values, where = src.numpy(), index.numpy()
    functions = {"sum": np.add, "min": np.minimum, "max": np.maximum, "prod": np.multiply, "mean": np.add}
    found = np.zeros((bins, *values.shape[1:]), values.dtype)
    for k in range(bins):
        inside = values[where == k]
        if len(inside) and reduce == "mean":
            found[k] = np.mean(inside, axis=0, dtype=np.float64)
        elif len(inside):
            found[k] = functions[reduce].reduce(inside, axis=0, dtype=values.dtype)
    return torch.from_numpy(found)


@pytest.mark.parametrize("size", [0, 1, 100, 20_000])
@pytest.mark.parametrize("row", [(), (3,), (2, 2)])
@pytest.mark.parametrize("reduce", tensors.REDUCTIONS)
def test_scatter_is_what_numpy_makes_of_each_bin(reduce, row, size):
    rng = np.random.default_rng(size)
    for dtype, of_index in zip(DTYPES, INDICES * 2, strict=False):
        if reduce == "mean" and not dtype.is_floating_point:
            continue
        src = torch.from_numpy(rng.integers(-3, 4, (size, *row))).to(dtype)
        if reduce == "prod" and dtype.is_floating_point:
            src = torch.from_numpy(np.exp(rng.normal(0, 1e-2, (size, *row)))).to(dtype)
        index = torch.from_numpy(rng.integers(0, 9, size)).to(of_index)
        index[: size // 10] = 127
        found = ct.scatter(src, index, dim_size=8, reduce=reduce, empty=0)
        assert found.dtype == dtype
        torch.testing.assert_close(found, reference(src, index, 8, reduce), rtol=1e-4, atol=1e-4)


def test_bins_without_a_value_hold_what_combines_to_nothing():
    src, index = torch.tensor([5.0]), torch.tensor([1])
    expected = {"sum": 0.0, "mean": math.nan, "min": math.inf, "max": -math.inf, "prod": 1.0}
    for reduce, nothing in expected.items():
        identity = ct.scatter(src, index, dim_size=3, reduce=reduce, empty=None)
        np.testing.assert_equal(identity.tolist(), [nothing, 5, nothing])
        assert ct.scatter(src, index, dim_size=3, reduce=reduce).tolist() == [0, 5, 0]
        assert ct.scatter(src, index, dim_size=3, reduce=reduce, empty=9).tolist() == [9, 5, 9]
    assert ct.scatter(src, index).tolist() == [0, 5]
    assert ct.scatter(src[:0], index[:0]).shape == (0,)
    assert ct.scatter(torch.ones(1, 0), index, dim_size=2).shape == (2, 0)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float64, torch.int8, torch.int64, torch.bool])
@pytest.mark.parametrize("row", [(), (4,)])
def test_empty_bins_of_any_dtype(dtype, row):
    src, index = torch.ones(2, *row).to(dtype), torch.tensor([1, 1])
    found = ct.scatter(src, index, dim_size=3, reduce="max")
    assert found.dtype == dtype
    assert found.reshape(3, -1)[:, 0].tolist() == [0, 1, 0]


def test_a_value_of_empty_bins_that_the_dtype_lacks_is_refused():
    src, index = torch.ones(2, dtype=torch.int32), torch.tensor([1, 1])
    for empty in (0.5, float("nan"), 2**40):
        with pytest.raises(ValueError, match=r"^empty: expected a value of torch\.int32, got"):
            ct.scatter(src, index, dim_size=3, reduce="max", empty=empty)
    for empty in ("0", True):
        with pytest.raises(TypeError, match=r"^empty: expected a number, or None"):
            ct.scatter(src, index, dim_size=3, reduce="max", empty=empty)


def test_names_of_torch_are_taken():
    src, index = torch.tensor([2.0, 3, 4]), torch.tensor([0, 0, 1])
    for other, own in (("add", "sum"), ("mul", "prod"), ("amin", "min"), ("amax", "max")):
        assert torch.equal(ct.scatter(src, index, reduce=other), ct.scatter(src, index, reduce=own))


@pytest.mark.parametrize("dim", [1, -1])
def test_results_by_any_dimension_are_contiguous(dim):
    """Callers take views of them, as of results of PyTorch."""
    src, index = torch.rand(4, 30, 30, requires_grad=True), torch.arange(30) % 7
    several = ct.scatter(src, index, dim, 7, ["sum", "mean", "max", "std"])
    single = [ct.scatter(src, index, dim, 7, reduce) for reduce in ("sum", "mean", "min", "max", "prod", "var")]
    others = ct.softmax(src, index, dim=dim), ct.logsumexp(src, index, dim=dim), ct.std(src, index, dim=dim)
    for result in (*several, *single, *others):
        assert result.is_contiguous()
        (grad,) = torch.autograd.grad(result.view(-1).sum(), src, retain_graph=True)
        assert grad.shape == src.shape


def test_any_dimension_and_any_strides():
    src, index = torch.rand(4, 30, 5), torch.arange(30) % 7
    for given in (src, src.flip(0), src.transpose(0, 2), src[::2], src[:, :, :1].expand(4, 30, 6)):
        expected = torch.zeros(given.shape[0], 7, given.shape[2]).index_add_(1, index, given)
        torch.testing.assert_close(ct.scatter(given, index, 1, 7), expected)
        torch.testing.assert_close(ct.scatter(given, index, dim=-2, dim_size=7), expected)
    every = torch.arange(60) % 9
    torch.testing.assert_close(ct.scatter(src[0], every[::2], dim_size=9), ct.scatter(src[0], every[::2].clone(), 0, 9))


def test_booleans_have_minima_and_maxima():
    src, index = torch.tensor([True, False, True]), torch.tensor([0, 0, 1])
    assert ct.scatter(src, index, reduce="min").tolist() == [False, True]
    assert ct.scatter(src, index, reduce="max").tolist() == [True, True]


def test_tensors_of_the_cpu_are_taken_in_place(monkeypatch, computed_by):
    src, index, seen = torch.rand(50_000), torch.arange(50_000) % 10, []
    whole = ct.rows.reduce_by_index

    def recorded(*args, **options):
        seen.extend(each.ctypes.data for each in args[2:])
        return whole(*args, **options)

    monkeypatch.setattr(ct.rows, "reduce_by_index", recorded)
    ct.scatter(src, index, dim_size=10)
    assert seen == ([index.data_ptr(), src.data_ptr()] if computed_by == "kernels" else [])


@pytest.mark.parametrize("row", [(), (3,)])
@pytest.mark.parametrize("reduce", tensors.REDUCTIONS)
def test_segments_are_those_of_torch(reduce, row):
    src, ptr = torch.rand(12, *row), torch.tensor([0, 3, 3, 8, 12])
    expected = torch.segment_reduce(src, tensors.REDUCTIONS[reduce].removeprefix("a"), offsets=ptr, axis=0)
    torch.testing.assert_close(ct.segment(src, ptr, reduce, empty=None), expected, equal_nan=True)
    torch.testing.assert_close(ct.segment(src, ptr[1:-1].int(), reduce, empty=None), expected[1:-1], equal_nan=True)
    assert ct.segment(src, ptr[:1]).shape == (0, *row)


@pytest.mark.parametrize("size", [0, 1, 1000, 100_000])
def test_bincount_is_that_of_torch(size):
    torch.manual_seed(size)
    index = torch.randint(50, (size,))
    for weights in (None, torch.rand(size), torch.rand(size).double(), torch.randint(9, (size,))):
        expected = torch.bincount(index, weights, 60)
        found = ct.bincount(index.int(), weights, 60)
        assert size == 0 or found.dtype == expected.dtype
        torch.testing.assert_close(found.double(), expected.double(), rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(
            ct.bincount(index, weights, length=20).double(), expected[:20].double(), rtol=1e-4, atol=1e-4
        )
    assert ct.bincount(torch.tensor([-5, 3, 3]), length=4).tolist() == [0, 0, 0, 2]
    assert ct.bincount(index, length=0).shape == (0,)
    assert ct.bincount(input=index, length=60).tolist() == ct.bincount(index, length=60).tolist()


@pytest.mark.parametrize("size", [10, 100_000])
def test_histogram_is_that_of_numpy(size):
    rng = np.random.default_rng(0)
    edges = np.array([-1, 0, 0.1, 2])
    for x in (rng.normal(size=size).astype(np.float32), rng.normal(size=size), rng.integers(-3, 4, size)):
        weights = rng.random(size)
        for bins, ends in ((10, None), (7, (-1, 1)), (edges, None)):
            given = torch.from_numpy(bins) if isinstance(bins, np.ndarray) else bins
            expected, its_edges = np.histogram(x, bins, ends)
            hist, found = ct.histogram(torch.from_numpy(x), given, range=ends)
            assert hist.dtype == torch.int64
            assert (hist.tolist(), found.tolist()) == (expected.tolist(), its_edges.astype(float).tolist())
            for density in (False, True):
                expected = np.histogram(x, bins, ends, weights=weights, density=density)[0]
                hist, _ = ct.histogram(
                    torch.from_numpy(x), given, range=ends, weight=torch.from_numpy(weights), density=density
                )
                torch.testing.assert_close(hist, torch.from_numpy(expected))


@pytest.mark.parametrize("size", [10, 100_000])
def test_histogramdd_is_that_of_torch(size):
    torch.manual_seed(size)
    points, weight = torch.rand(size, 2), torch.rand(size)
    edges = [torch.tensor([0, 0.3, 1]), torch.tensor([0, 0.1, 0.2, 0.9])]
    for bins, ends in (([4, 3], [0.0, 1.0, 0.0, 0.5]), (5, None), (edges, None)):
        for density in (False, True):
            expected, its_edges = torch.histogramdd(points, bins, range=ends, weight=weight, density=density)
            hist, found = ct.histogramdd(points, bins, range=ends, weight=weight, density=density)
            torch.testing.assert_close(hist, expected, rtol=1e-4, atol=1e-4)
            torch.testing.assert_close([each.float() for each in found], list(its_edges))
    assert torch.equal(ct.histogramdd(points.unbind(1), edges)[0], ct.histogramdd(points, edges)[0])


INDEX, X = torch.tensor([0, 1, 0]), torch.ones(3)
META = torch.ones(3, device="meta")


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: ct.scatter([1.0], INDEX), TypeError, r"^src: expected a torch\.Tensor, got list"),
        (lambda: ct.scatter(X.to(torch.complex64), INDEX), TypeError, r"^src: .* got torch\.complex64"),
        (lambda: ct.scatter(X.to_sparse(), INDEX), TypeError, r"^src: expected a dense tensor"),
        (lambda: ct.scatter(X.bool(), INDEX), TypeError, r"^src: .* got torch\.bool"),
        (lambda: ct.scatter(X.int(), INDEX, reduce="mean"), TypeError, r"^src: .* got torch\.int32"),
        (lambda: ct.scatter(X[0], INDEX), ValueError, r"^src: expected one dimension or more"),
        (lambda: ct.scatter(X, X), TypeError, r"^index: .* got torch\.float32"),
        (lambda: ct.scatter(X, INDEX.bool()), TypeError, r"^index: .* got torch\.bool"),
        (lambda: ct.scatter(X, INDEX[None]), ValueError, r"^index: expected one dimension, got shape \(1, 3\)"),
        (
            lambda: ct.scatter(X, INDEX[:2]),
            ValueError,
            r"^index: expected shape \(3,\) as of src along dim, got \(2,\)",
        ),
        (
            lambda: ct.scatter(META, INDEX, dim_size=2),
            ValueError,
            r"^index: expected a tensor on meta .* got one on cpu",
        ),
        (lambda: ct.scatter(X, INDEX, 1), ValueError, r"^dim: expected a dimension of src, which has 1, got 1"),
        (lambda: ct.scatter(X, INDEX, dim_size=-1), ValueError, r"^dim_size: expected at least 0, got -1"),
        (lambda: ct.scatter(X, INDEX, dim_size=2.0), TypeError, r"^dim_size: expected an int, got 2\.0"),
        (lambda: ct.scatter(X, INDEX, dim_size=True), TypeError, r"^dim_size: expected an int"),
        (lambda: ct.scatter(X, INDEX, reduce="median"), ValueError, r"^reduce: expected one of sum, mean"),
        (lambda: ct.scatter(X, INDEX, reduce=max), ValueError, r"^reduce: expected one of sum, mean"),
        (lambda: ct.scatter(X, INDEX, reproducible=1), TypeError, r"^reproducible: expected a bool or None, got 1"),
        (lambda: ct.histogram(X, density=1), TypeError, r"^density: expected a bool, got 1"),
        (
            lambda: ct.scatter(X, INDEX, reduce="prod", reproducible=True),
            TypeError,
            r"^reproducible: expected none of prod",
        ),
        (lambda: ct.segment(X, INDEX[:0]), ValueError, r"^ptr: expected at least one offset"),
        (lambda: ct.segment(X, INDEX), ValueError, r"^ptr: expected numbers of elements that do not decrease"),
        (lambda: ct.segment(X, INDEX[:2] - 1), ValueError, r"^ptr: expected numbers of elements"),
        (lambda: ct.segment(X, INDEX[:2] * 4), ValueError, r"^ptr: expected numbers of elements"),
        (lambda: ct.bincount(X), TypeError, r"^input: .* got torch\.float32"),
        (lambda: ct.bincount(INDEX - 1), ValueError, r"negative"),
        (lambda: ct.bincount(INDEX, X[:2]), ValueError, r"^weights: expected shape \(3,\) as of input, got \(2,\)"),
        (lambda: ct.bincount(INDEX, minlength=-1), ValueError, r"^minlength: expected at least 0"),
        (lambda: ct.bincount(INDEX, minlength=3, length=2), ValueError, r"^length: expected at least minlength"),
        (lambda: ct.histogram(X.clone().requires_grad_()), TypeError, r"^input: expected a tensor without a gradient"),
        (
            lambda: ct.histogram(INDEX, X.clone().requires_grad_()),
            TypeError,
            r"^bins: expected a tensor without a gradi",
        ),
        (lambda: ct.histogram(X, X[:1]), ValueError, r"^bins: expected edges of one dimension, two or more"),
        (lambda: ct.histogram(X, "auto"), TypeError, r"^bins: expected an int, got 'auto'"),
        (lambda: ct.histogram(X, X, range=(0, 1)), ValueError, r"^range: expected none with edges"),
        (lambda: ct.histogram(X, -X.cumsum(0)), ValueError, r"monotonically"),
        (lambda: ct.histogram(X, weight=X[:2]), ValueError, r"^weight: expected shape \(3,\) as of input"),
        (lambda: ct.histogramdd(X), ValueError, r"^input: expected shape \(\.\.\., D\)"),
        (lambda: ct.histogramdd([X, X[:2]]), ValueError, r"^input: expected tensors of one shape"),
        (lambda: ct.histogramdd([X, X], [1]), ValueError, r"^bins: expected an int or one entry for each of 2"),
        (lambda: ct.histogramdd([X, X], [1, X]), TypeError, r"^bins: expected numbers of all dimensions or edges"),
        (lambda: ct.histogramdd([X, X], range=(0, 1)), ValueError, r"^range: expected two floats for each of 2"),
    ],
)
def test_what_is_wrong_is_named(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_shapes_are_known_without_memory():
    index = torch.zeros(3, dtype=torch.int64, device="meta")
    assert ct.scatter(META, index, dim_size=4).shape == (4,)
    assert ct.bincount(index, META, length=5).shape == (5,)
    assert ct.histogram(META, 6, range=(0, 1))[0].shape == (6,)


@pytest.mark.parametrize("size", [100, 300_000])
def test_functions_return_tensors_of_tensors_of_the_cpu(size):
    index, values = torch.arange(size) % 9, torch.rand(size)
    expected = np.bincount(index.numpy(), values.numpy())
    assert torch.equal(clhist.bincount(index), torch.bincount(index))
    np.testing.assert_allclose(clhist.bincount(index, values).numpy(), expected, rtol=1e-6)
    np.testing.assert_allclose(clhist.reduce_by_index(9, "sum", index, values).numpy(), expected, rtol=1e-4)
    hist, edges = clhist.histogram(values, 9)
    assert isinstance(hist, torch.Tensor)
    assert isinstance(edges, np.ndarray), "as of tensors of CUDA"
    assert isinstance(clhist.histogramdd([values, values], 3)[0], torch.Tensor)
    assert clhist.digitize(values, np.array([0, 2])).dtype == torch.int64
    distinct, counts = clhist.unique(index, return_counts=True)
    assert distinct.tolist() == list(range(9))
    assert counts.sum() == size
    best = clhist.reduce_by_index(9, "argmax", index, values)
    assert torch.equal(values[best["index"].long()], best["value"])
    assert isinstance(clhist.bincount(index.numpy()), np.ndarray)
    assert isinstance(clhist.reduce_by_index(9, "sum", index.numpy(), values), torch.Tensor)


@pytest.mark.parametrize("size", [3, 30_000])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64, torch.uint8, torch.bool])
def test_values_of_groups_may_be_tensors_of_the_cpu(dtype, size):
    keys, values = np.arange(size) % 7, (torch.arange(size) * 37 % 11).to(dtype)
    values = torch.where(values == 5, math.nan, values) if dtype.is_floating_point else values
    statistics = ("min", "max", "first", "last", "argmin", "argmax", "mode", "sum", "mean", "nunique", "nth1", "q90")
    for skipna in (True, False):
        groups = clhist.group_by(keys, 8)
        found = groups.agg(x=(values, *statistics), skipna=skipna)["x"]
        expected = groups.agg(x=(values.numpy(), *statistics), skipna=skipna)["x"]
        for name in statistics:
            alone = groups.agg(x=(values, name), skipna=skipna)["x"][name]
            assert found[name].dtype == alone.dtype == expected[name].dtype
            np.testing.assert_array_equal(found[name], expected[name])
            np.testing.assert_array_equal(alone, expected[name])
    np.testing.assert_array_equal(groups.transform(values, "max"), groups.transform(values.numpy(), "max"))


def test_floats_of_tensors_are_not_counted():
    """NumPy takes tensors for lists, whose floats it truncates."""
    for size in (3, 200_000):
        with pytest.raises(TypeError, match=r"Cannot cast array data from dtype..float32"):
            clhist.bincount(torch.full((size,), 1.5))
