"""The check of a custom operator on the first call of each way in: on values of the call, and on others where they are
no evidence."""

from threading import Timer

import numpy as np
import pyopencl as cl
import pyopencl.array
import pytest

import clhist
from clhist import Operator
from clhist._core.opencl.device import device_features
from clhist._core.runtime import operator_check

pytestmark = pytest.mark.usefixtures("without_optimizer")

INT, FLOAT = np.dtype(np.int32), np.dtype(np.float32)
MEAN = np.dtype([("n", np.float32), ("mean", np.float32)], align=True)
MERGED = "(accumulator_t){a.n + b.n, (a.n * a.mean + b.n * b.mean) / (a.n + b.n)}"
GUARDED = f"a.n + b.n == 0 ? (accumulator_t){{0, 0}} : {MERGED}"
STAMPED = np.dtype([("time", np.int64), ("number", np.int32)], align=True)


def mean(combine, finish="a.mean"):
    return Operator(FLOAT, combine, (0, 0), accumulator=MEAN, lift="(accumulator_t){1, v}", finish=finish)


def fresh(operator):
    clhist.clear_caches()
    return operator


WRONG = {
    "0 / 0 of two empty copies": (mean(MERGED), "neutral.* with itself is nan"),
    "the same behind a finish": (mean(MERGED, "a.n > 0 ? a.mean : NAN"), "neutral.* and then with a=.*, is nan"),
    "inf / inf": (Operator(FLOAT, "a * b / (a + b)", np.inf), "neutral.* with a=.* is nan"),
    "a mean without weights": (Operator(FLOAT, "(a + b) / 2", 0), "associative"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_operators_are_refused_on_any_values(name):
    operator, message = WRONG[name]
    with pytest.raises(ValueError, match=f"{message}.*samples=.*verified=True"):
        clhist.reduce_by_index(3, fresh(operator), [0, 1, 1, 2], np.array([0.5, 1, 2, 4], np.float32))


@pytest.mark.parametrize(
    "values", [np.zeros(9), np.ones(9), np.array([5.0]), 7], ids=["zeros", "ones", "one", "scalar"]
)
def test_equal_values_are_no_evidence(values):
    values = np.asarray(values, np.int32) if isinstance(values, np.ndarray) else values
    indices = np.zeros(np.size(values), np.int32)
    with pytest.raises(ValueError, match=r"commutative"):
        clhist.reduce_by_index(2, fresh(Operator(INT, "a - b", 0)), indices, values)


def test_a_large_field_does_not_hide_another():
    times = 10**18 + np.arange(9)
    values = (times, np.ones(9, np.int32))
    off_by_one = Operator(STAMPED, "(value_t){max(a.time, b.time), a.number + b.number + 1}", (-(2**63), 0))
    with pytest.raises(ValueError, match=r"identity"):
        clhist.reduce_by_index(1, fresh(off_by_one), np.zeros(9, int), values)


class TestEveryWayIn:
    operator = Operator(INT, "a - b", 0)
    x, bins = np.arange(20, dtype=np.int32), np.arange(20, dtype=np.int32) % 3

    def kernel(self, operator=operator):
        return clhist.HistogramKernel(
            None, operator, arguments="const int *bins, const int *x", map="EMIT(bins[i], x[i])"
        )

    def calls(self):
        spec = clhist.Spec(self.operator, 3)
        return {
            "kernel": lambda: self.kernel()(self.bins, self.x, num_bins=3),
            "bind": lambda: self.kernel().bind(self.bins, self.x, num_bins=3),
            "accumulator": lambda: clhist.Accumulator(self.operator, 3).add(self.bins, self.x),
            "several devices": lambda: clhist.MultiAccumulator(self.operator, 3).add(self.bins, self.x).result(),
            "spec": lambda: spec.partial(self.bins, self.x),
            "batch": lambda: clhist.reduce_by_index((1, 3), self.operator, self.bins[None], self.x[None], batched=True),
            "reproducible": lambda: clhist.reduce_by_index(3, self.operator, self.bins, self.x, reproducible=True),
        }

    @pytest.mark.parametrize(
        "name", ["kernel", "bind", "accumulator", "several devices", "spec", "batch", "reproducible"]
    )
    def test_refuses_it(self, name):
        fresh(self.operator)
        for _ in range(2):
            with pytest.raises(ValueError, match=r"commutative operator, but 'a - b'"):
                self.calls()[name]()

    def test_bad_input_is_refused_first(self, queue):
        fresh(self.operator)
        with pytest.raises(TypeError, match=r"^out:"):
            clhist.reduce_by_index(3, self.operator, self.bins, self.x, out=np.zeros(3))
        with pytest.raises(ValueError, match=r"^x:"):
            self.kernel()(self.bins, self.x[:5], num_bins=3)
        with pytest.raises(TypeError, match=r"^wait_for:"):
            self.kernel()(self.bins, self.x, num_bins=3, wait_for=[None])


class TestOperatorsForSomeValues:
    """Those of a call come first, and say what an operator is for."""

    def test_values_that_a_map_emits(self):
        modulo = fresh(Operator(np.uint32, "(a + b) % 7", 0))
        kernel = clhist.HistogramKernel(
            None, modulo, arguments="const uint *x", map="EMIT(i % 2, x[i] % 7); EMIT(-1, 100)"
        )
        x = np.arange(1000, dtype=np.uint32)
        expected = [x[k::2].astype(int).__mod__(7).sum() % 7 for k in (0, 1)]
        np.testing.assert_array_equal(kernel(x, num_bins=2), expected)

    def test_constant_fields_keep_their_sign(self):
        x = np.random.default_rng(0).normal(size=5000).astype(np.float32)
        found = clhist.reduce_by_index(
            4, fresh(Operator(MEAN, GUARDED, (0, 0))), np.arange(5000) % 4, (np.ones(5000), x)
        )
        np.testing.assert_allclose(found["mean"], x.reshape(-1, 4).astype(float).mean(0), atol=1e-5)

    def test_samples(self):
        values = np.full(9, 200, np.int32)
        with pytest.raises(ValueError, match=r"samples="):
            clhist.reduce_by_index(1, fresh(Operator(INT, "min(b + a, 255)", 0)), np.zeros(9, int), values)
        saturating = fresh(Operator(INT, "min(b + a, 255)", 0, samples=range(256)))
        assert clhist.reduce_by_index(1, saturating, np.zeros(9, int), values).tolist() == [255]
        assert clhist.check_operator(saturating).samples == 256
        for samples, error in [([], ValueError), ([0.5], TypeError), (["x"], TypeError), ([2**40], TypeError)]:
            with pytest.raises(error, match=r"^samples: expected"):
                Operator(INT, "a + b", 0, samples=samples)


def test_fields_that_are_equal_in_all_values_do_not_vary_in_proportion():
    quaternion = np.dtype([(name, np.float64) for name in "wxyz"])
    product = """(accumulator_t){a.w * b.w - a.x * b.x - a.y * b.y - a.z * b.z,
        a.w * b.x + a.x * b.w + a.y * b.z - a.z * b.y, a.w * b.y - a.x * b.z + a.y * b.w + a.z * b.x,
        a.w * b.z + a.x * b.y - a.y * b.x + a.z * b.w}"""
    operator, values = fresh(Operator(quaternion, product, (1, 0, 0, 0))), np.array([(1, 0, 0, 0)] * 9, quaternion)
    with pytest.raises(ValueError, match=r"commutative"):
        clhist.reduce_by_index(1, operator, np.zeros(9, int), values)


def test_a_check_runs_beside_the_queue_which_an_event_may_hold_up(queue, monkeypatch):
    queues = []
    combined = operator_check._combined
    monkeypatch.setattr(operator_check, "_combined", lambda *args: queues.append(args[-1]) or combined(*args))
    bins, x = (cl.array.to_device(queue, each) for each in (TestEveryWayIn.bins, TestEveryWayIn.x))
    result = clhist.reduce_by_index(3, fresh(Operator(INT, "b + a + 0", 0)), bins, x)
    assert queues
    assert all(other.int_ptr != queue.int_ptr and other.context == queue.context for other in queues)
    assert result.get().sum() == 190


@pytest.mark.parametrize("gated", ["wait_for", "x", "out"])
def test_a_check_does_not_wait_for_an_event_that_the_caller_sets(gated, queue):
    bins, x = (cl.array.to_device(queue, each) for each in (TestEveryWayIn.bins, TestEveryWayIn.x))
    out, gate = cl.array.zeros(queue, 3, INT), cl.UserEvent(queue.context)
    queue.finish()
    gates = {"x": x, "out": out}
    if gated in gates:
        gates[gated].add_event(gate)
    complete, in_time = cl.command_execution_status.COMPLETE, []
    late = Timer(20, gate.set_status, [complete])  # a call that waits ends, and fails the test
    late.start()
    try:
        wait_for = [gate] * (gated == "wait_for")
        clhist.reduce_by_index(3, fresh(Operator(INT, "b + a + 0", 0)), bins, x, out=out, wait_for=wait_for)
        in_time.append(gate.command_execution_status > complete)
    finally:
        late.cancel()
        if gate.command_execution_status > complete:
            gate.set_status(complete)
    assert in_time == [True]
    assert out.get().sum() == 190


@pytest.mark.parametrize(
    ("combine", "neutral", "values"),
    [
        ("a < b ? a : b", 0, [5, 3, 4]),
        ("max(a, b)", 0, [-5, -3, 4]),
        ("a & b", 0, [5, 3, 4]),
        ("a && b", 0, [1, 0, 1]),
        ("b || a", 1, [0, 0, 1]),
        ("b > a ? b : a", 7, [1, 1, 1]),
    ],
)
def test_recognised_operators_with_another_neutral_element_are_checked(combine, neutral, values):
    values = np.array(values, np.int32)
    wrong = Operator(INT, combine, neutral)
    product = clhist.operators.product(
        {"a": wrong, "b": clhist.operators.add(INT)}, INT, lift="(accumulator_t){v, 1}", finish="a.a"
    )
    for operator in (wrong, product):
        with pytest.raises(ValueError, match=r"^neutral: expected the identity element"):
            clhist.reduce_by_index(1, fresh(operator), np.zeros(3, int), values)


@pytest.mark.parametrize("combine", ["a & b", "a && b", "a || b"])
def test_the_neutral_element_of_booleans_is_checked(combine):
    values, bins = np.array([True, False, True, True]), np.array([0, 0, 1, 1])
    neutral = combine != "a || b"
    with pytest.raises(ValueError, match=r"^neutral: expected the identity element"):
        clhist.reduce_by_index(3, fresh(Operator(np.bool_, combine, not neutral)), bins, values)
    expected = [np.any(values[:2]) if not neutral else np.all(values[:2]), True, neutral]
    assert clhist.reduce_by_index(3, Operator(np.bool_, combine, neutral), bins, values).tolist() == expected


def test_a_neutral_element_that_is_right_for_the_values_is_accepted():
    largest = Operator(INT, "max(a, b)", 0)
    assert clhist.reduce_by_index(2, fresh(largest), [0, 0, 0], np.array([5, 3, 4], np.int32)).tolist() == [5, 0]
    assert not any(
        getattr(clhist.operators, name)(dtype).is_custom
        for name in ("minimum", "maximum", "fmin", "fmax", "bitwise_and")
        for dtype in (np.int8, np.uint16, np.int64, np.bool_)
    )


def test_a_repeated_call_checks_nothing(monkeypatch):
    calls = []
    original = clhist._core.runtime.operator_check._check
    monkeypatch.setattr(
        "clhist._core.runtime.operator_check._check", lambda *given: (calls.append(1), original(*given))
    )
    operator = fresh(Operator(INT, "b + a + 0", 0))
    for size in (20, 20, 10):
        clhist.reduce_by_index(3, operator, TestEveryWayIn.bins[:size], TestEveryWayIn.x[:size])
        TestEveryWayIn().kernel(operator)(TestEveryWayIn.bins, TestEveryWayIn.x, num_bins=3)
        clhist.Accumulator(operator, 3).add(TestEveryWayIn.bins, TestEveryWayIn.x)
    assert len(calls) == 1


def test_log_of_sums_of_exponentials():
    combine = "a == b ? a + M_LN2_F : fmax(a, b) + log1p(exp(-fabs(a - b)))"
    operator = Operator(FLOAT, combine, -np.inf)
    values = np.array([-np.inf, -np.inf, 1, 2, np.inf, 3, -200, -200], np.float32)
    bins = np.array([0, 0, 1, 1, 2, 2, 3, 3])
    found = clhist.reduce_by_index(5, operator, bins, values)
    right = [np.logaddexp.reduce(values[bins == k].astype(float)) for k in range(4)]
    np.testing.assert_allclose(found, [*right, -np.inf], rtol=1e-6)


@pytest.mark.parametrize(
    "values", [[3.4028235e38, -3.4028235e38, 1], [np.inf, -np.inf, np.nan], [1e-45, -1e-45, 0], None]
)
def test_extreme_values_cause_no_warnings(values):
    few = np.array([0x7F800001, 0x3F800000, 0xFF800001], np.uint32).view(np.float32)  # signaling NaN, 1, another
    if values is not None:
        few = np.array(values, np.float32)
    operator = clhist.Operator(np.float32, "fmax(a, b)", -np.inf, name="largest")
    found = clhist.reduce_by_index(5, operator, np.arange(90) % 5, np.tile(few, 30), queue=clhist.default_queue())
    assert np.array_equal(found, np.full(5, 1 if values is None else np.nanmax(few)))
    assert clhist.check_operator(operator, few).samples


REFUSED = {
    "locks": ({"locks": 3}, ValueError, "^locks: expected a power of two, got 3"),
    "work_group_size": ({"work_group_size": 10**7}, ValueError, "^work_group_size: expected at most"),
    "memory_budget": ({"memory_budget": 64.0}, TypeError, "^memory_budget: expected an integer"),
    "one copy": ({"memory_budget": 1}, MemoryError, "^memory_budget: "),
    "update": ({"update": "gather"}, ValueError, "^update: 'gather' takes the arrays"),
    "counter_bits": ({"counter_bits": 8}, ValueError, "^counter_bits: "),
    "race_factor": ({"race_factor": "often"}, TypeError, "^race_factor: "),
}


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("more", [{}, {"race_factor": "sample"}, {"race_factor": "sample once"}], ids=str)
@pytest.mark.parametrize("on_device", [False, True])
def test_what_is_refused_is_so_before_a_check_or_a_sample_runs(name, more, on_device, queue, monkeypatch):
    """Nor is an array written that the map writes, which a sample runs too."""
    choices, error, message = REFUSED[name]
    given = [np.arange(1000, dtype=np.int32) % 7, np.ones(1000, np.float32), np.zeros(1000, np.int32)]
    arrays = [pyopencl.array.to_device(queue, each) for each in given] if on_device else given
    kernel = clhist.HistogramKernel(
        queue.context,
        fresh(Operator(FLOAT, "a + b", 0)),
        arguments="const int *bins, const float *values, int *seen",
        map="seen[i] = 1; EMIT(bins[i], values[i])",
    )
    device_features(queue.device, queue.context)  # which runs kernels once in a process
    for command in [each for each in dir(cl) if each.startswith("enqueue_")]:
        monkeypatch.setattr(cl, command, None)
    for call in (kernel, kernel.bind):
        with pytest.raises(error, match=message):
            call(*arrays, num_bins=7, **(more | choices))
    assert not given[2].any()
