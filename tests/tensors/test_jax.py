"""The functions of `clhist.jax` against NumPy's and JAX's, their gradients, and what they refuse."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

import clhist
import clhist.jax as cj

REDUCTIONS = {"sum": np.add, "mean": None, "min": np.minimum, "max": np.maximum, "prod": np.multiply}
NOTHING = {"sum": 0, "mean": np.nan, "min": np.inf, "max": -np.inf, "prod": 1}


def function(reduce):
    return getattr(cj, f"segment_{reduce}")


@pytest.mark.parametrize("row", [(), (2, 2)])
@pytest.mark.parametrize("reduce", REDUCTIONS)
def test_segments_are_what_numpy_makes_of_each(reduce, row):
    for size in (0, 1, 20_000):
        rng = np.random.default_rng(size)
        for dtype in (np.float32, np.float16, np.uint8):
            if reduce == "mean" and dtype == np.uint8:
                continue
            values = rng.integers(1, 3, (size, *row)).astype(dtype)
            if reduce == "prod":
                values = np.where(rng.random(values.shape) < 1e-3, values, 1).astype(dtype)
            ids = rng.integers(-2, 9, size)
            found = jax.jit(function(reduce), static_argnums=2)(jnp.asarray(values), jnp.asarray(ids, jnp.int32), 7)
            assert (found.dtype, found.shape) == (dtype, (7, *row))
            for k in range(7):
                inside = values[ids == k]
                if len(inside):
                    wide = np.float64 if np.issubdtype(dtype, np.floating) else dtype
                    of = np.mean(inside, 0, wide) if reduce == "mean" else REDUCTIONS[reduce].reduce(inside, 0, wide)
                    np.testing.assert_allclose(found[k], np.asarray(of, dtype), rtol=1e-3)
                elif np.issubdtype(dtype, np.floating):
                    np.testing.assert_array_equal(found[k], np.full(row, NOTHING[reduce]))


def test_without_a_number_of_segments():
    assert cj.segment_sum([1.0, 2], [3, 0]).tolist() == [2, 0, 0, 1]
    assert cj.segment_sum(jnp.ones(0), jnp.zeros(0, int)).shape == (0,)
    assert cj.segment_max(jnp.ones((2, 0)), jnp.zeros(2, int), 3).shape == (3, 0)


def test_reproducible_sums_do_not_depend_on_the_order():
    rng = np.random.default_rng(0)
    values, ids = (
        (rng.normal(size=50_000) * 1e4 ** rng.normal(size=50_000)).astype(np.float32),
        rng.integers(0, 5, 50_000),
    )
    order = rng.permutation(len(ids))
    for reduce in ("sum", "mean"):
        one, other = (function(reduce)(values[k], ids[k], 5, reproducible=True) for k in (slice(None), order))
        assert one.tobytes() == other.tobytes()


@pytest.mark.parametrize("reduce", REDUCTIONS)
def test_gradients(reduce):
    rng = np.random.default_rng(1)
    values, ids = jnp.asarray(rng.permutation(40) / 13 + 0.3, jnp.float32), jnp.asarray(rng.integers(-1, 7, 40))
    check = partial(check_grads, modes=["rev"], atol=1e-2, rtol=1e-2)
    check(lambda x: function(reduce)(x, ids, 6), (values,), order=2 if reduce in ("sum", "mean") else 1)
    of = jax.grad(lambda x: (function(reduce)(x, ids, 6) ** 2).sum())
    np.testing.assert_array_equal(jax.jit(of)(values), of(values))
    assert not np.asarray(of(values))[np.asarray(ids) % 7 == 6].any()


def test_gradients_of_ties_and_zeros():
    ids = jnp.array([0, 0, 0, 1, 1, 1])
    ties = jax.grad(lambda x: cj.segment_max(x, ids, 2).sum())(jnp.array([1.0, 3, 3, 5, 5, 5]))
    np.testing.assert_allclose(ties, [0, 0.5, 0.5, 1 / 3, 1 / 3, 1 / 3])
    zeros = jax.grad(lambda x: cj.segment_prod(x, ids, 2).sum())(jnp.array([0.0, 3, 5, 0, 0, 7]))
    np.testing.assert_allclose(zeros, [15, 0, 0, 0, 0, 0])


def test_batches():
    values, ids = jnp.arange(12.0).reshape(3, 4), jnp.array([[0, 1, 1, 0]] * 2 + [[1, 1, 1, 1]])
    found = jax.vmap(lambda x, k: cj.segment_sum(x, k, 2))(values, ids)
    np.testing.assert_array_equal(found, [[3, 3], [11, 11], [0, 38]])


def test_bincount():
    x, weights = jnp.array([3, 1, 3]), jnp.array([0.5, 2.0, 4.0])
    assert cj.bincount(x).tolist() == [0, 1, 0, 2]
    assert cj.bincount(x, minlength=6).tolist() == [0, 1, 0, 2, 0, 0]
    assert cj.bincount(x, weights, length=2).tolist() == [0, 2]
    assert cj.bincount(x, length=0).shape == (0,)
    assert jax.jit(partial(cj.bincount, length=5))(x).tolist() == [0, 1, 0, 2, 0]
    gradient = jax.grad(lambda w: (cj.bincount(x, w, length=4) ** 2).sum())(weights)
    assert gradient.tolist() == [9, 4, 9]


@pytest.mark.parametrize("options", [{}, {"range": (-1, 1)}, {"bins": [-1.0, 0, 0.5, 2]}, {"density": True, "bins": 3}])
@pytest.mark.parametrize("is_weighted", [False, True])
def test_histogram(options, is_weighted):
    rng = np.random.default_rng(2)
    x, w = (jnp.asarray(rng.normal(size=(60, 50)), jnp.float32) for _ in range(2))
    x = x.at[0, :3].set(jnp.array([2.0, -1.0, 0.5]))
    more = {"weights": w} if is_weighted else {}
    found, edges = jax.jit(lambda x: cj.histogram(x, **options, **more))(x)
    given = {name: np.asarray(each) if name == "bins" else each for name, each in options.items()}
    expected, of = np.histogram(
        np.asarray(x), **given, **{name: np.asarray(each, float) for name, each in more.items()}
    )
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(edges, of, rtol=1e-6)
    assert not np.asarray(jax.grad(lambda x: cj.histogram(x, **options, **more)[1].sum())(x)).any()
    if is_weighted and "density" not in options:
        gradient = jax.grad(lambda w: (cj.histogram(x, **options, weights=w)[0] * jnp.arange(len(expected))).sum())(w)
        number = clhist.digitize(np.asarray(x), of) - 1 - (np.asarray(x) == of[-1])
        inside = (number >= 0) & (number < len(expected))
        np.testing.assert_array_equal(gradient, np.where(inside, number, 0))


def test_repeated_calls_are_not_compiled_again(caplog):
    x, ids = jnp.ones(10), jnp.zeros(10, int)
    gradient = jax.grad(lambda x: cj.segment_max(x, ids, 3).sum())
    calls = (
        lambda: cj.segment_sum(x, ids, 3), lambda: cj.bincount(ids, length=2), lambda: cj.histogram(x, np.int64(4)),
        lambda: cj.histogram(x, jnp.array(4), weights=x), lambda: gradient(x),
    )  # fmt: skip
    for call in calls:
        call()
    with jax.log_compiles(), caplog.at_level("WARNING"):
        cj.segment_sum(x[:7], ids[:7], 3)
        assert "ompiling" in caplog.text, "what JAX says of a new shape"
        caplog.clear()
        for call in calls:
            call()
        assert "ompiling" not in caplog.text


def test_nan_is_in_no_bin():
    x, w = jnp.array([0.5, jnp.nan, 1.0]), jnp.array([1.0, 10.0, 100.0])
    assert cj.histogram(x, 2, (0, 1), w)[0].tolist() == [0, 101]


def test_refusals():
    x, ids = jnp.ones(3), jnp.array([0, 1, -1])
    gradient, traced = jax.grad(lambda x: cj.segment_prod(x, ids, 2).sum()), lambda a: cj.histogram(x, 5, (a, 2.0))
    for match, error, call in (
        ("segment_ids: expected integers", TypeError, lambda: cj.segment_sum(x, x, 2)),
        ("num_segments: expected an int", ValueError, lambda: cj.segment_sum(x, ids, -1)),
        ("num_segments: expected a number under jax.jit", TypeError, lambda: jax.jit(cj.segment_sum)(x, ids)),
        (r"data: expected shape \(3, ...\)", ValueError, lambda: cj.segment_min(x[:2], ids, 2)),
        ("data: expected floats, got int32", TypeError, lambda: cj.segment_mean(ids, ids, 2)),
        ("data: expected floats or integers, got bool", TypeError, lambda: cj.segment_sum(ids > 0, ids, 2)),
        ("x: expected non-negative integers, got -1", ValueError, lambda: cj.bincount(ids)),
        ("length: expected a number under jax.jit", TypeError, lambda: jax.jit(cj.bincount)(ids)),
        ("length: expected at least minlength", ValueError, lambda: cj.bincount(ids, None, 5, length=4)),
        ("minlength: expected an int", ValueError, lambda: cj.bincount(x.astype(int), None, 9.5, length=12)),
        ("range: expected numbers that are known", TypeError, lambda: jax.jit(traced)(0.0)),
        ("range: expected two finite", ValueError, lambda: cj.histogram(x, 5, (2, 1))),
        ("data: expected floats or integers, got int4", TypeError, lambda: cj.segment_sum(ids.astype("int4"), ids, 2)),
        ("segment_prod has no second", TypeError, lambda: jax.jacrev(gradient)(x)),
        ("bins: expected an int of 1 or more", ValueError, lambda: cj.histogram(x, 0)),
        ("bins: expected edges", ValueError, lambda: cj.histogram(x, jnp.ones(1))),
        ("weights: expected shape", ValueError, lambda: cj.histogram(x, weights=x[:2])),
    ):  # fmt: skip
        with pytest.raises(error, match=match):
            call()
