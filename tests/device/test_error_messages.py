"""What a user reads who has made a common mistake: one line that says what to do."""

import re
import subprocess
import sys
from functools import partial

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array
import pytest

import clhist
from clhist import HistogramKernel, Operator, operators, reduce_by_index

pytestmark = pytest.mark.usefixtures("without_optimizer")

BINS = np.array([0, 1, 1], np.int32)
VALUES = np.ones(3, np.float32)
ORDER = "the order is dest, op, indices, values"
CALL_IT = "; call it with a dtype: clhist.operators."


def kernel(operator=None, **more):
    given = {"arguments": "const int *bins", "map": "EMIT(bins[i], 1)"} | more
    return HistogramKernel(None, operators.add(np.int32) if operator is None else operator, **given)


@pytest.mark.parametrize(
    ("mistake", "message"),
    [
        (lambda: reduce_by_index(3, operators.maximum, BINS, VALUES), f"{CALL_IT}maximum(np.float32)"),
        (lambda: reduce_by_index(np.zeros(3), operators.mean, BINS, VALUES), f"{CALL_IT}mean(np.float32)"),
        (lambda: kernel(operators.add), f"{CALL_IT}add(np.float32)"),
        (lambda: kernel({"a": operators.add}), f"{CALL_IT}add(np.float32)"),
        (lambda: clhist.Accumulator(operators.add, 10, dtype=np.int32), f"{CALL_IT}add(np.float32)"),
        (lambda: reduce_by_index(np.add, 3, BINS, VALUES), f"got <ufunc 'add'>; {ORDER}"),
        (lambda: reduce_by_index("sum", 3, BINS, VALUES), f"got 'sum'; {ORDER}"),
        (lambda: reduce_by_index(3, BINS, VALUES, np.add), f"indices: expected integers, got float32; {ORDER}"),
        (lambda: reduce_by_index(3, np.add, VALUES, BINS), f"indices: expected integers, got float32; {ORDER}"),
        (lambda: reduce_by_index(3, BINS, BINS, VALUES), "got an array of int32 of shape (3,) (are the arguments in"),
        (lambda: HistogramKernel(operators.add(np.int32), None, arguments="", map=""), "; the operator comes second"),
        (lambda: kernel()(BINS), "num_bins"),
        (lambda: kernel()(BINS, num_bins=None), "num_bins: expected the number of bins, or a shape, got none"),
        (lambda: Operator("a + b", np.int32, 0), "dtype: expected a NumPy dtype, got 'a + b'"),
    ],
)
def test_a_mistake_is_said_in_a_line(mistake, message):
    with pytest.raises(TypeError, match=re.escape(message)) as caught:
        mistake()
    assert "\n" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_integers_with_missing_values():
    pandas = pytest.importorskip("pandas")
    missing = pandas.Series([0, None, 1] * 20_000, dtype="Int64")
    for x in (missing[:3], missing):
        with pytest.raises(TypeError, match=r"^x: expected integers without missing values, got Int64 with some"):
            clhist.bincount(x)
        with pytest.raises(TypeError, match=r"^indices: expected integers without missing values, got Int64 with some"):
            reduce_by_index(2, "count", x, 1)
        with pytest.raises(TypeError, match=r"^indices: expected integers without missing values, got Int64 with some"):
            clhist.Accumulator("count", 2).add(x, 1)
    assert reduce_by_index(2, "count", pandas.Series([0, 1, 1], dtype="Int64"), 1).tolist() == [1, 2]


def test_objects_that_are_no_arrays(queue):
    buffer = cl.Buffer(queue.context, cl.mem_flags.READ_ONLY, 16)
    with pytest.raises(TypeError, match=r"^x: expected an array of integers, got Buffer"):
        clhist.bincount(buffer)
    with pytest.raises(TypeError, match=r"^indices: expected integers, got Buffer"):
        reduce_by_index(3, "sum", buffer, 1)


def test_events(queue):
    bound = kernel().bind(BINS, num_bins=2)
    user = cl.UserEvent(queue.context)
    for events in ([None], [1], 1, "a", user):
        for call in (
            partial(kernel(), BINS, num_bins=2),
            partial(kernel().bind, BINS, num_bins=2),
            bound,
            partial(reduce_by_index, 3, "sum", BINS, VALUES),
            partial(reduce_by_index, (3, 3), "sum", (BINS, BINS), VALUES),
        ):
            with pytest.raises(TypeError, match=r"^wait_for: expected a sequence of pyopencl.Event, got "):
                call(wait_for=events)
    user.set_status(cl.command_execution_status.COMPLETE)


def test_a_context_of_ones_own(queue):
    context = cl.Context([queue.device])
    other = cl.CommandQueue(context)
    with pytest.raises(ValueError, match=r"^queue: expected a queue of the context .*; pass queue.context to Hist"):
        kernel()(BINS, num_bins=2, queue=other)
    with pytest.raises(ValueError, match=r"^bins: expected an array of the context .*; pass bins.context to Hist"):
        kernel()(cl_array.to_device(other, BINS), num_bins=2)


def test_operands_that_are_missing():
    with pytest.raises(
        ValueError, match=r"^combine: expected a C expression of a and b, got 'a \+ bb', .* no b but bb$"
    ):
        Operator(np.int32, "a + bb", 0)
    with pytest.raises(
        ValueError, match=r"^lift: expected a C expression of v, got 'x \* y', which has no v but x, y$"
    ):
        Operator(np.int32, "a + b", 0, accumulator=np.int64, lift="x * y", finish="a")


def test_structs_are_short():
    wide = np.dtype([(f"field{k}", np.float64) for k in range(30)], align=True)
    operator = Operator(wide, "a.field0 < b.field0 ? b : a", (0.0,) * 30, verified=True)
    for call in (
        lambda: reduce_by_index(np.zeros(3, np.float32), operator, BINS, VALUES),
        lambda: reduce_by_index(3, operator, BINS, VALUES),
        lambda: reduce_by_index(3, operator, BINS, (VALUES, VALUES)),
        lambda: clhist.Accumulator(operator, 3, dest=np.zeros(3)),
        lambda: clhist.check_operator(operator, np.ones(3)),
        lambda: operators.add(wide),
    ):
        with pytest.raises((TypeError, ValueError)) as caught:
            call()
        assert len(str(caught.value)) < 400
        assert "formats" not in str(caught.value)


def test_types_of_stdint():
    x = np.array([0, 1, 1], np.int32)
    y = np.array([5, 6, 7], np.uint16)
    sums = kernel(arguments="const int32_t *x, const uint16_t *y, int64_t more", map="EMIT(x[i], y[i] + more)")
    assert sums(x, y, 1, num_bins=2).tolist() == [6, 15]


def test_one_shape_for_all_histograms_of_a_mapping():
    both = kernel(
        {"number": operators.count(), "sum": operators.add(np.float32)},
        arguments="const int *bins, const float *values",
        map="EMIT_number(bins[i], 1); EMIT_sum(bins[i], values[i])",
    )
    for num_bins in (6, (2, 3)):
        found = both(BINS, VALUES, num_bins=num_bins)
        assert found["number"].reshape(-1).tolist() == [1, 2, 0, 0, 0, 0]
        assert found["number"].shape == found["sum"].shape == ((6,) if num_bins == 6 else (2, 3))


def test_a_compilers_error_is_the_only_thing_that_is_shown():
    program = (
        "import numpy as np, clhist\n"
        "clhist.HistogramKernel(None, clhist.operators.add(np.int32), arguments='const int *x',\n"
        "    map='int bin = x[i];\\nEMIT(bin, x[i] + typo)')(np.zeros(3, np.int32), num_bins=3)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300)
    assert done.stdout == ""
    before, _, message = done.stderr.partition("clhist.errors.BuildError: ")
    assert before.count("Traceback") == 1
    assert "direct cause" not in done.stderr
    first, line, caret, last = message.rstrip().splitlines()
    assert first.startswith("map, line 2: ")
    assert line == "    EMIT(bin, x[i] + typo)"
    assert caret == "                     ^"
    assert "error.source" in last
