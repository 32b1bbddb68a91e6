"""Operators by name, and what is found out about custom ones."""

import numpy as np
import pyopencl.array as cl_array
import pytest

import clhist
from clhist import Operator, check_operator, operators, reduce_by_index
from clhist.operators.names import NAMES

INT, FLOAT = np.dtype(np.int32), np.dtype(np.float32)
PAIR = np.dtype([("n", np.int32), ("x", np.float32)], align=True)

WRONG = [
    (Operator(INT, "a - b", 0), "commutative operator, but 'a - b' of a=2 and b=1 is 1, and of b and a -1"),
    (Operator(FLOAT, "(a + b) / 2", 0), "associative operator.*of x=.*, y=.* and z=.* is .* as \\(x, y\\), z and"),
    (Operator(INT, "a * b + a + b + 1", 0), "associative"),
    (Operator(INT, "a > b ? a : b + 0", 0), "neutral: .* the neutral element 0 with a=-1 is 0"),
    (Operator(FLOAT, "a + b + 0", 1), "neutral: expected the identity element"),
    (Operator(PAIR, "(value_t){a.n + b.n, a.x - b.x}", (0, 0)), "commutative"),
    (Operator(PAIR, "(value_t){max(a.n, b.n), a.x + b.x}", (0, 0)), "neutral"),
    (Operator(INT, "(a + b) % 7", 0), "neutral|associative"),
    (Operator(np.complex64, "(float2)(a.x * b.y, a.y + b.x)", 0), "commutative"),
    # -inf - -inf is NaN: bins whose copies are empty would be NaN.
    (Operator(FLOAT, "log(exp(a - fmax(a, b)) + exp(b - fmax(a, b))) + fmax(a, b)", -np.inf), "neutral.* with itself"),
]

RIGHT = [
    Operator(INT, "b + a + 0", 0),
    Operator(FLOAT, "a * 1.0f + b", 0),
    Operator(FLOAT, "1.0f * a * b", 1),  # overflows
    Operator(FLOAT, "hypot(a, b)", 0, lift="fabs(v)", finish="a"),
    Operator(FLOAT, "a == b ? a + M_LN2_F : fmax(a, b) + log1p(exp(-fabs(a - b)))", -np.inf),  # inf - inf elsewhere
    Operator(PAIR, "(value_t){a.n + b.n, a.x + b.x}", (0, 0)),
    Operator(PAIR, "(value_t){min(a.n, b.n), fmax(a.x, b.x)}", (2**31 - 1, -np.inf)),
    Operator(INT, "gcd(a, b)", 0, lift="abs(v)", finish="a", accumulator=np.uint32,
             preamble="uint gcd(uint a, uint b) { while (b) { uint c = a % b; a = b; b = c; } return a; }"),
]  # fmt: skip


@pytest.mark.parametrize(("operator", "message"), WRONG, ids=lambda each: getattr(each, "combine", ""))
def test_what_is_wrong_is_shown(operator, message):
    with pytest.raises(ValueError, match=message):
        check_operator(operator)


@pytest.mark.parametrize("operator", RIGHT, ids=lambda each: each.combine)
def test_what_is_right_passes(operator):
    found = check_operator(operator, 2000)
    assert found.samples == 256
    assert found.triples == 2000


READY = [
    *(
        getattr(operators, name)(FLOAT)
        for name in ("add", "multiply", "minimum", "maximum", "fmin", "fmax", "variance")
    ),
    operators.mean(np.complex64),
    operators.argmax(FLOAT),
    operators.argmin(np.int16, np.int64),
    operators.multiply(np.complex64),
    operators.reproducible_add(FLOAT, 3.0),
    operators.reproducible_add(FLOAT),
    operators.logical_xor(INT),
    operators.standard_deviation(FLOAT, 1),
]


@pytest.mark.parametrize("operator", READY, ids=lambda each: each.name)
def test_ready_ones_pass_and_are_never_checked(operator):
    assert not operator.is_custom
    assert check_operator(operator, 500).triples == 500


def test_a_domain_may_be_given():
    saturating = Operator(INT, "min(a + b, 255)", 0)
    with pytest.raises(ValueError, match=r"neutral|associative"):
        check_operator(saturating)
    assert check_operator(saturating, np.arange(256)).samples == 256
    with pytest.raises(ValueError, match="samples: expected at least one"):
        check_operator(saturating, [])
    with pytest.raises(TypeError, match="samples: expected values of int32, got float64"):
        check_operator(saturating, [0.5])
    with pytest.raises(ValueError, match="samples: expected at least 1"):
        check_operator(saturating, 0)


def test_nan_is_reported():
    assert check_operator(Operator(FLOAT, "a < b ? a : b", np.inf)).nan_depends_on_order
    assert not check_operator(operators.minimum(FLOAT)).nan_depends_on_order


class TestFirstCall:
    indices = np.array([0, 1, 1, 0, 1], np.int32)

    def test_custom_operators_are_checked_on_the_values(self, queue, monkeypatch):
        calls = []
        original = clhist._core.runtime.operator_check._check
        monkeypatch.setattr(
            "clhist._core.runtime.operator_check._check", lambda *given: (calls.append(1), original(*given))
        )
        operator = Operator(INT, "min(b + a, 1000)", 0)  # right for these values alone
        values = np.arange(5, dtype=np.int32)
        for _ in range(3):
            np.testing.assert_array_equal(reduce_by_index(2, operator, self.indices, values), [3, 7])
        reduce_by_index(2, Operator(INT, "min(b + a, 1000)", 0), self.indices, values)  # the same one again
        assert len(calls) == 1
        for ready in (operators.argmax(INT), "a + b"):
            reduce_by_index(2, ready, self.indices, values)
        reduce_by_index(2, Operator(INT, "min(1000, b + a)", 0, verified=True), self.indices, values)
        assert len(calls) == 1

    def test_wrong_ones_are_refused(self, queue):
        dest, values = np.full(2, 7, np.int32), np.arange(5, dtype=np.int32)
        subtract = Operator(INT, "a - b", 0)
        for _ in range(2):
            with pytest.raises(ValueError, match="commutative operator, but 'a - b' of a=1 and b=0 is 1"):
                reduce_by_index(dest, subtract, self.indices, values, out=dest)
        given = (cl_array.to_device(queue, each) for each in (self.indices, values))
        with pytest.raises(ValueError, match="commutative"):
            reduce_by_index(2, subtract, *given)
        np.testing.assert_array_equal(dest, [7, 7])
        with pytest.raises(ValueError, match="commutative"):  # of one value alone, which is no evidence
            reduce_by_index(2, subtract, self.indices, 1)

    def test_fields(self):
        both = Operator(PAIR, "(value_t){a.n + b.n, a.x - b.x}", (0, 0))
        values = np.arange(5, dtype=np.int32), np.arange(5, dtype=np.float32)
        with pytest.raises(ValueError, match="commutative"):
            reduce_by_index(2, both, self.indices, values)


VALUES = np.array([3, -1, 4, 0, 5], np.int16)


@pytest.mark.parametrize("name", NAMES)
def test_names(name):
    indices, x = np.array([0, 1, 1, 0, 1]), VALUES
    found = reduce_by_index(2, name, indices, x)
    of = [x[indices == group] for group in (0, 1)]
    if name in ("argmin", "argmax", "first", "last"):
        places = {"argmin": [3, 1], "argmax": [0, 4], "first": [0, 1], "last": [3, 4]}[name]
        np.testing.assert_array_equal(found["index"], places)
        np.testing.assert_array_equal(found["value"], x[places])
        return
    expected = [{"count": np.size, "add": np.sum}.get(name) or getattr(np, name) for _ in of]
    np.testing.assert_allclose(found, [function(each) for function, each in zip(expected, of, strict=True)], rtol=1e-12)
    dtypes = dict.fromkeys(("mean", "var", "std"), np.float64) | dict.fromkeys(
        ("count", "sum", "add", "prod"), np.int64
    )
    assert found.dtype == dtypes.get(name, np.int16)


def test_names_with_dest():
    indices = np.array([0, 1, 1])
    np.testing.assert_array_equal(reduce_by_index(np.array([5, 5]), "count", indices, VALUES[:3]), [6, 7])
    np.testing.assert_array_equal(reduce_by_index(np.array([5, 5]), "max", indices, VALUES[:3]), [5, 5])
    np.testing.assert_array_equal(reduce_by_index(np.zeros((2, 1)), "sum", indices, np.ones((3, 1))), [[1], [2]])
    np.testing.assert_array_equal(reduce_by_index(2, "count", indices, np.array([np.nan] * 3)), [1, 2])
    dest = np.array([(9, 100), (-9, 100)], operators.argmax(np.int16).dtype)
    best = reduce_by_index(dest, "argmax", indices, VALUES[:3])
    assert list(best["index"]) == [100, 2]


def test_names_in_kernels_and_streams():
    kernel = clhist.HistogramKernel(
        None,
        {"number": "count", "mean": "mean", "top": np.maximum},
        arguments="const int *x",
        map="EMIT_number(0, 1); EMIT_mean(0, x[i]); EMIT_top(0, x[i])",
        dtype=INT,
    )
    found = kernel(np.arange(10, dtype=np.int32), num_bins=1)
    assert {name: array.tolist() for name, array in found.items()} == {"number": [10], "mean": [4.5], "top": [9]}
    mixed = clhist.HistogramKernel(
        None, ["min", "sum"], arguments="const int *x", map="EMIT0(0, x[i]); EMIT1(0, x[i])", dtype=INT
    )
    assert [each.tolist() for each in mixed(np.arange(10, dtype=np.int32), num_bins=1)] == [[0], [45]]
    counts = clhist.Accumulator("count", 2)
    means = clhist.Accumulator("mean", 2, dtype=np.float32)
    for _ in range(3):
        counts.add(np.array([0, 1, 1]), np.array([0.5, np.nan, 2]))
        means.add(np.array([0, 1, 1]), np.array([0.5, 1, 2], np.float32))
    np.testing.assert_array_equal(counts.result(), [3, 6])
    np.testing.assert_array_equal(means.result(), [0.5, 1.5])


def test_names_refused():
    indices, x = np.zeros(3, int), np.zeros(3)
    listed = "'sum', 'add', 'prod', 'min', 'max', 'any', 'all', 'mean', .*'count'; got 'mode'"
    for error, match, call in [
        (TypeError, f"op: expected .*{listed}", lambda: reduce_by_index(2, "mode", indices, x)),
        (TypeError, f"operator: expected .*{listed}", lambda: clhist.Accumulator("mode", 2, dtype=FLOAT)),
        (TypeError, "op: .*expected a float", lambda: reduce_by_index(np.zeros(2, int), "mean", indices, 1)),
        (TypeError, "op: expected bins with the fields", lambda: reduce_by_index(np.zeros(2), "argmax", indices, x)),
        (TypeError, "op: .*expected an integer or a float", lambda: reduce_by_index(2, "min", indices, x * 1j)),
        (ValueError, "values: expected shape \\(3,\\)", lambda: reduce_by_index(2, "count", indices, x[:2])),
        (TypeError, "dtype: expected that of the bins for 'mean'", lambda: clhist.Accumulator("mean", 2)),
        (
            TypeError,
            "operator\\['a'\\]: expected a clhist.Operator, got 'mean'; names and ufuncs need dtype=",
            lambda: clhist.HistogramKernel(None, {"a": "mean"}, arguments="const int *x", map="EMIT_a(0, x[i])"),
        ),
    ]:
        with pytest.raises(error, match=match):
            call()
