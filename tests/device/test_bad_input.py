"""Wrong arguments: each is refused before anything is computed, by its name."""

from __future__ import annotations

import re

import numpy as np
import pyopencl.array as cl_array
import pytest
from arrays import read_only, strided

from clhist import BuildError, HistogramKernel, Operator, UnsupportedError, operators

pytestmark = pytest.mark.usefixtures("without_optimizer")

SUM = operators.add(np.int32)


@pytest.fixture(scope="module")
def kernel():
    """Return a kernel of two arrays that it reads, one that it writes, and a scalar."""
    return HistogramKernel(
        None,
        SUM,
        arguments="const int *bins, const float *weight, short *seen, float scale",
        map="seen[i] = 1; EMIT(bins[i], (int)(scale * weight[i]))",
    )


@pytest.fixture
def good():
    """Return arguments that are right."""
    return {
        "bins": np.arange(9, dtype=np.int32) % 4,
        "weight": np.ones(9, np.float32),
        "seen": np.zeros(9, np.int16),
        "scale": 2.0,
        "num_bins": 4,
        "dest": np.arange(4, dtype=np.int32),
        "out": np.full(4, -1, np.int32),
    }


def call(kernel, arguments):
    positional = [arguments[name] for name in ("bins", "weight", "seen", "scale")]
    return kernel(
        *positional, **{name: v for name, v in arguments.items() if name not in ("bins", "weight", "seen", "scale")}
    )


def check_refused(kernel, arguments, changed, error, message):
    """Check that `changed` arguments are refused, and that no array was written."""
    arrays = {name: value for name, value in arguments.items() if hasattr(value, "dtype") and name not in changed}
    before = {name: np.array(array.get() if hasattr(array, "get") else array) for name, array in arrays.items()}
    with pytest.raises(error, match=f"^{message}"):
        call(kernel, {**arguments, **changed})
    for name, array in arrays.items():
        np.testing.assert_array_equal(array.get() if hasattr(array, "get") else array, before[name], err_msg=name)


def test_what_is_right_is_accepted(kernel, good):
    assert call(kernel, good).tolist() == [6, 5, 6, 7]
    assert good["seen"].all()


@pytest.mark.parametrize(
    ("changed", "error", "message"),
    [
        ({"bins": np.arange(9)}, TypeError, "bins: expected an array of int32, got one of int64"),
        ({"weight": np.ones(9)}, TypeError, "weight: expected an array of float32, got one of float64"),
        ({"bins": None}, TypeError, "bins: expected a NumPy or PyOpenCL array of int32, got NoneType"),
        ({"weight": np.float32(1)}, TypeError, "weight: expected a NumPy or PyOpenCL array of float32, got float32"),
        ({"weight": np.ones(8, np.float32)}, ValueError, "weight: expected at least 9 elements, got 8"),
        ({"seen": strided(np.zeros(9, np.int16))}, ValueError, "seen: expected a contiguous array, got one with"),
        ({"seen": read_only(np.zeros(9, np.int16))}, ValueError, "seen: expected an array that can be written"),
        ({"seen": np.zeros(9, ">i2")}, TypeError, "seen: expected an array of int16, got one of >i2"),
        ({"scale": np.ones(9, np.float32)}, TypeError, "scale: expected a scalar of float32, got ndarray"),
        ({"scale": "2"}, TypeError, "scale: expected a scalar of float32, got str"),
        ({"scale": 1j}, ValueError, "scale: 1j does not fit float32"),
        ({"num_bins": 0}, ValueError, "num_bins: expected at least 1, got 0"),
        ({"num_bins": -4}, ValueError, "num_bins: expected at least 1, got -4"),
        ({"num_bins": 4.0}, TypeError, "num_bins: expected an integer, got 4.0"),
        ({"num_bins": None}, TypeError, "num_bins: expected the number of bins, or a shape, got none"),
        ({"num_bins": 5}, ValueError, "(dest|out): expected shape .5,., got .4,."),
        ({"size": -1}, ValueError, "size: expected at least 0, got -1"),
        ({"size": 1.5}, TypeError, "size: expected an integer, got 1.5"),
        ({"size": 10}, ValueError, "bins: expected at least 10 elements, got 9"),
        ({"dest": np.zeros(5, np.int32)}, ValueError, "dest: expected shape .4,., got .5,."),
        ({"dest": np.zeros((2, 2), np.int32)}, ValueError, "dest: expected shape .4,., got .2, 2."),
        ({"dest": np.zeros(4)}, TypeError, "dest: expected an array of int32, got one of float64"),
        ({"dest": [0, 0, 0, 0]}, TypeError, "dest: expected a NumPy or PyOpenCL array of int32, got list"),
        ({"out": np.zeros(3, np.int32)}, ValueError, "out: expected shape .4,., got .3,."),
        ({"out": np.zeros(4, np.uint32)}, TypeError, "out: expected an array of int32, got one of uint32"),
        ({"out": np.zeros(4, ">i4")}, TypeError, "out: expected an array of int32, got one of >i4"),
        ({"out": strided(np.zeros(4, np.int32))}, ValueError, "out: expected a contiguous array, got one with strides"),
        ({"out": read_only(np.zeros(4, np.int32))}, ValueError, "out: expected an array that can be written"),
        ({"out": [0, 0, 0, 0]}, TypeError, "out: expected a NumPy or PyOpenCL array of int32, got list"),
        ({"update": "atomic"}, ValueError, "update: expected one of private, native, carry, cas, lock, sort, gather,"),
        ({"memory": "shared"}, ValueError, "memory: expected one of local, global, partitioned, got 'shared'"),
        ({"copies": 0}, ValueError, "copies: expected at least 1, got 0"),
        ({"copies": "two"}, TypeError, "copies: expected an integer, got 'two'"),
        ({"copies": 1.5}, TypeError, "copies: expected an integer, got 1.5"),
        ({"passes": -1}, ValueError, "passes: expected at least 1, got -1"),
        ({"passes": 2.0}, TypeError, "passes: expected an integer, got 2.0"),
        ({"work_group_size": 0}, ValueError, "work_group_size: expected at least 1, got 0"),
        ({"work_group_size": 10**6, "update": "cas", "memory": "local"}, ValueError, "work_group_size: .*got 1000000"),
        ({"work_group_size": 10**6, "update": "cas", "memory": "global"}, ValueError, "work_group_size: .*got 1000000"),
        ({"work_group_size": "32"}, TypeError, "work_group_size: expected an integer, got '32'"),
        ({"race_factor": 0.9}, ValueError, "race_factor: expected .*at least 1, got 0.9"),
        ({"race_factor": np.nan}, ValueError, "race_factor: expected .*at least 1, got nan"),
        ({"race_factor": "63"}, TypeError, "race_factor: expected a number, 'sample' or 'sample once', got '63'"),
        ({"memory_budget": 0}, ValueError, "memory_budget: expected at least 1, got 0"),
        ({"memory_budget": "1 GB"}, TypeError, "memory_budget: expected an integer, got '1 GB'"),
        ({"memory_budget": 15}, MemoryError, "memory_budget: one copy of 4 bins takes 16 bytes, got 15 bytes"),
    ],
)  # fmt: skip
def test_refused(kernel, good, changed, error, message):
    check_refused(kernel, good, changed, error, message)


def test_more_bins_than_memory(kernel, good):
    del good["dest"], good["out"]
    check_refused(kernel, good, {"num_bins": 2**50}, MemoryError, "memory_budget: one copy of 1125899906842624 bins")


@pytest.mark.parametrize("number", [3, 5])
def test_another_number_of_arguments(kernel, good, number):
    given = [good["bins"], good["weight"], good["seen"], 1.0, 2.0][:number]
    message = rf"expected 4 arguments \(bins, weight, seen, scale\), got {number}"
    with pytest.raises(TypeError, match=message):
        kernel(*given, num_bins=4)


def test_without_arrays_the_size_is_needed():
    kernel = HistogramKernel(None, SUM, arguments="int n", map="EMIT(i, n)")
    with pytest.raises(
        TypeError, match=r"size: expected a number of elements, since no argument is an array; got None"
    ):
        kernel(3, num_bins=4)


def test_updates_that_this_device_has_not(good):
    kernel = HistogramKernel(None, operators.multiply(np.int32), arguments="const int *bins", map="EMIT(bins[i], 2)")
    with pytest.raises(
        ValueError, match=r"update: 'native' is not available for multiply on int32 in local memory .*: private, "
    ):
        kernel(good["bins"], num_bins=4, update="native", memory="local")


@pytest.fixture
def on_device(good, queue):
    """Return right arguments on the device."""
    return {
        name: cl_array.to_device(queue, value) if isinstance(value, np.ndarray) else value
        for name, value in good.items()
    }


@pytest.mark.parametrize("name", ["bins", "weight", "seen", "dest", "out"])
def test_device_arrays_refused(kernel, good, on_device, name, queue, other_queue):
    array = good[name]
    wrong = cl_array.to_device(queue, array.astype(np.uint64))
    check_refused(
        kernel, on_device, {name: wrong}, TypeError, f"{name}: expected an array of {array.dtype}, got one of u"
    )
    with_gaps = cl_array.to_device(queue, np.repeat(array, 2))[::2]
    check_refused(
        kernel, on_device, {name: with_gaps}, ValueError, f"{name}: expected a contiguous array, got one with s"
    )
    elsewhere = cl_array.to_device(other_queue, array)
    check_refused(kernel, on_device, {name: elsewhere}, ValueError, f"{name}: expected an array of the context")
    kinds = (
        "(bins|weight|seen|dest|out): expected a PyOpenCL array as (bins|weight|seen|dest|out) is, got a NumPy array"
    )
    check_refused(kernel, on_device, {name: array}, TypeError, kinds)
    check_refused(kernel, good, {name: cl_array.to_device(queue, array)}, TypeError, kinds)


def test_a_queue_of_another_context(kernel, good, on_device, other_queue):
    for arguments in (good, on_device):
        check_refused(kernel, arguments, {"queue": other_queue}, ValueError, "queue: expected a queue of the context")


@pytest.mark.parametrize(
    ("where", "code"),
    [
        ("combine", "a + b + undeclared_one"),
        ("map", "EMIT(0, undeclared_one)"),
        ("preamble", "undeclared_one f(void);"),
    ],
)
def test_code_that_does_not_compile(where, code, good):
    operator = Operator(np.int32, code if where == "combine" else "a + b", 0)
    map, preamble = (code if where == "map" else "EMIT(bins[i], 1)"), (code if where == "preamble" else "")
    kernel = HistogramKernel(None, operator, arguments="const int *bins", map=map, preamble=preamble)
    dest, out = good["dest"], good["out"]
    for _ in range(2):  # a program that failed must not be taken for a built one
        with pytest.raises(BuildError) as caught:
            kernel(good["bins"], num_bins=4, dest=dest, out=out)
        first, line, caret, *_ = str(caught.value).splitlines()
        assert re.match(rf"{where}(, line 1)?: .*(undeclared|unknown)", first)
        assert line.strip() == code
        assert line[caret.index("^") :].startswith("undeclared_one")
        assert code in caught.value.source
        assert "undeclared_one" in caught.value.log
        assert caught.value.__context__ is None
    assert dest.tolist() == [0, 1, 2, 3]
    assert out.tolist() == [-1] * 4


@pytest.mark.parametrize(
    ("changed", "error", "message"),
    [
        ({"operator": np.add}, TypeError, "operator: expected a clhist.Operator, got <ufunc 'add'>"),
        ({"operator": "a + b"}, TypeError, "operator: expected a clhist.Operator, got 'a [+] b'"),
        ({"map": "x[i]"}, ValueError, r"map: expected C that calls EMIT\(bin, value\), got 'x\[i\]'"),
        ({"arguments": "int i"}, ValueError, "arguments: the name 'i' is taken"),
        ({"arguments": "int min"}, ValueError, "arguments: the name 'min' is taken"),
        ({"arguments": "const int *x__base"}, ValueError, "arguments: the name 'x__base' is taken"),
        ({"arguments": "thing *x"}, ValueError, "arguments: the type 'thing' of 'x' is unknown"),
        ({"structs": {"a b": "i4"}}, ValueError, "structs: expected C identifiers as names, got 'a b'"),
        ({"structs": {"value_t": "i4"}}, ValueError, "structs: the name 'value_t' is taken"),
    ],
)
def test_kernels_refused(changed, error, message):
    arguments = {"operator": SUM, "arguments": "const int *x", "map": "EMIT(x[i], 1)", **changed}
    with pytest.raises(error, match=f"^{message}"):
        HistogramKernel(None, arguments.pop("operator"), **arguments)


@pytest.mark.parametrize(
    ("operator", "arguments", "named"),
    [
        (operators.add(np.float64), "const int *x", "operator"),
        (operators.multiply(np.complex128), "const int *x", "operator"),
        (Operator(np.float32, "a + b", 0, accumulator=np.float64), "const int *x", "operator"),
        (SUM, "const int *x, double scale", "scale"),
        (SUM, "const double2 *z", "z"),
    ],
)
def test_devices_without_double_precision(operator, arguments, named, monkeypatch):
    monkeypatch.setattr("clhist._core.opencl.device.has_fp64", lambda device: False)
    with pytest.raises(UnsupportedError, match=rf"^{named}: .* has no double precision \(cl_khr_fp64\)"):
        HistogramKernel(None, operator, arguments=arguments, map="EMIT(0, 1)")
    HistogramKernel(None, SUM, arguments="const int *x", map="EMIT(0, 1)")


@pytest.mark.parametrize(
    ("changed", "error", "message"),
    [
        ({"num_histograms": 2}, ValueError, "num_histograms: expected a divisor of the 9 elements, got 2"),
        ({"num_histograms": 0}, ValueError, "num_histograms: expected at least 1, got 0"),
        ({"num_histograms": -3}, ValueError, "num_histograms: expected at least 1, got -3"),
        ({"num_histograms": 3.0}, TypeError, "num_histograms: expected an integer, got 3.0"),
        ({"num_histograms": 3, "size": 8}, ValueError, "num_histograms: expected a divisor of the 8 elements, got 3"),
        ({"num_histograms": 3, "offsets": [0, 9]}, ValueError, "offsets: expected either num_histograms or offsets"),
        ({"offsets": [0, 5, 4, 9]}, ValueError, "offsets: .* do not decrease, got 5 and then 4 at 1"),
        ({"offsets": np.array([0, 5, 4], np.uint64)}, ValueError, "offsets: .* do not decrease, got 5 and then 4 at 1"),
        ({"offsets": [0, 10]}, ValueError, "offsets: expected at most the 9 elements that there are, got 10"),
        ({"offsets": [0, 5], "size": 4}, ValueError, "offsets: expected at most the 4 elements that there are, got 5"),
        ({"offsets": np.array([0, 2**63], np.uint64)}, ValueError, "offsets: expected numbers of .* got 92233720"),
        ({"offsets": [-1, 5]}, ValueError, "offsets: expected no negative entries, got -1"),
        ({"offsets": [0.0, 5.0]}, TypeError, "offsets: expected integers, got float64"),
        ({"offsets": [False, True]}, TypeError, "offsets: expected integers, got bool"),
        ({"offsets": []}, ValueError, "offsets: expected one dimension and at least two entries, got shape .0,."),
        ({"offsets": [[0], [0, 1]]}, ValueError, "offsets: expected one dimension, got"),
        ({"offsets": [3]}, ValueError, "offsets: expected one dimension and at least two entries, got shape .1,."),
        ({"offsets": [[0, 5]]}, ValueError, "offsets: expected one dimension and at least two .* shape .1, 2."),
        ({"offsets": 5}, ValueError, "offsets: expected one dimension and at least two entries, got shape .."),
        ({"offsets": ["0", "9"]}, TypeError, "offsets: expected integers, got <U1"),
        ({"offsets": None, "num_histograms": "3"}, TypeError, "num_histograms: expected an integer, got '3'"),
        ({"offsets": [0, 4, 9]}, ValueError, "(dest|out): expected shape .2, 4., got .4,."),
        ({"locks": 3}, ValueError, "locks: expected a power of two, got 3"),
        ({"locks": 4, "update": "cas"}, ValueError, "locks: expected none with update='cas', got 4; pass u"),
        ({"locks": 0}, ValueError, "locks: expected at least 1, got 0"),
        ({"locks": 2.0}, TypeError, "locks: expected an integer, got 2.0"),
        ({"locks": 2**40, "update": "lock", "memory": "local"}, ValueError, "locks: 1099511627776 locks of 4 bytes"),
        ({"num_bins": ()}, ValueError, "num_bins: expected at least one dimension, got .."),
        ({"num_bins": (2, 0)}, ValueError, "num_bins: expected at least 1, got 0"),
        ({"num_bins": (2, 2.0)}, TypeError, "num_bins: expected an integer, got 2.0"),
        ({"num_bins": [2, 2]}, TypeError, "num_bins: expected an integer, got .2, 2."),
        ({"num_bins": (2, 2)}, ValueError, "(dest|out): expected shape .2, 2., got .4,."),
        ({"dest": (np.zeros(4, np.int32),)}, TypeError, "dest: expected one array of int32, which has no fields, got"),
        ({"out": (np.zeros(4, np.int32),)}, TypeError, "out: expected one array of int32, which has no fields, got"),
        ({"allocator": 3}, TypeError, "allocator: expected a function that takes a number of bytes .*, got 3"),
        ({"race_factor": "sometimes"}, TypeError, "race_factor: expected a number, 'sample' or 'sample once', got"),
    ],
)  # fmt: skip
def test_what_a_call_asks_for_besides(kernel, good, changed, error, message):
    check_refused(kernel, good, changed, error, message)


@pytest.mark.parametrize("race_factor", [np.True_, 1 + 0j])
def test_a_race_factor_is_no_number_although_it_equals_one_of_an_earlier_call(kernel, good, race_factor):
    bins, weight, seen, scale = (good.pop(name) for name in ("bins", "weight", "seen", "scale"))
    kernel(bins, weight, seen, scale, **good)
    with pytest.raises(TypeError, match=r"^race_factor: expected a number"):
        kernel(bins, weight, seen, scale, **good, race_factor=race_factor)
