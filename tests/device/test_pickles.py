"""What a process may return to another: pickled with equal content, or refused by what can be sent instead."""

from __future__ import annotations

import copy
import dataclasses
import functools
import pickle
from types import MappingProxyType

import numpy as np
import pyopencl.array as cl_array
import pytest

import clhist
from clhist import errors, operators
from clhist._core.opencl.memory import OutOfMemoryError

K, X = np.arange(1000) % 7, np.arange(1000.0)
PROFILE, PROBLEM = clhist.named_profile("nvidia-h200"), clhist.Problem.of(operators.add("i4"), 100, 1000)
MADE = {
    "a table": lambda: clhist.group_by(K).agg(a=(X, ["mean", "sum"])),
    "a table of two keys": lambda: clhist.group_by((K, K % 2)).agg(a=(X, "max")),
    "a table of names": lambda: clhist.group_by(np.array(["b", "a"])[K % 2]).agg(a=(X, "sum"), b=(K, "min")),
    "a masked table": lambda: clhist.group_by(K).agg(a=(_nullable(), "min")),
    "a partial result": lambda: clhist.Spec("count", 7).partial(K, 1, start=3),
    "a spec": lambda: clhist.Spec({"n": operators.count()}, 7, arguments="const int *k", map="EMIT_n(k[i], 1)"),
    "an operator": lambda: operators.argmax("f4"),
    "a custom operator": lambda: clhist.Operator("i4", "f(a, b)", 0, preamble="int f(int a, int b) { return a | b; }"),
    "a plan": lambda: clhist.plan(PROBLEM, PROFILE),
    "plans": lambda: clhist.plan_sweeps(PROBLEM, PROFILE),
    "a profile": lambda: PROFILE,
    "the device's profile": lambda: clhist.device_profile(clhist.default_queue().device),
    "a problem": lambda: PROBLEM,
    "choices": lambda: clhist.Choices(copies=2),
    "a histogram": lambda: clhist.histogram(X, 5),
    "unique keys": lambda: clhist.unique(K, return_counts=True),
    **{
        name: lambda kind=getattr(errors, name): kind("said")
        for name in ("DeviceLostError", "NoDeviceError", "ProfileError", "UnsupportedError")
    },
    "BuildError": lambda: clhist.BuildError("said", "source", "log"),
    "OutOfMemoryError": lambda: OutOfMemoryError("said", 77),
}


def _nullable():
    pandas = pytest.importorskip("pandas")
    return pandas.array(np.where(K == 3, np.nan, X), "Int64")  # group 3 has no value


def plain(value):
    """Return what a value holds, as lists, dicts and numbers that can be compared."""
    if isinstance(value, np.ma.MaskedArray):
        return "masked", str(value.dtype), value.tolist()
    if isinstance(value, np.ndarray | np.generic):
        return str(value.dtype), value.tolist()
    if isinstance(value, dict | MappingProxyType):
        return {key: plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if isinstance(value, functools.partial):
        return value.func, plain(value.args), plain(value.keywords)
    if isinstance(value, BaseException):
        return type(value).__name__, value.args, vars(value)
    if dataclasses.is_dataclass(value):
        fields = (field.name for field in dataclasses.fields(value))
        return type(value).__name__, {name: plain(getattr(value, name)) for name in fields}
    return value


@pytest.mark.parametrize("name", MADE)
@pytest.mark.parametrize("protocol", [2, pickle.HIGHEST_PROTOCOL])
def test_pickles_have_the_same_content(name, protocol):
    value = MADE[name]()
    found = pickle.loads(pickle.dumps(value, protocol))
    assert type(found) is type(value)
    assert plain(found) == plain(value)
    assert plain(pickle.loads(pickle.dumps(found))) == plain(value)  # what came from a process goes to the next


@pytest.mark.parametrize("name", [name for name in MADE if "table" in name])
@pytest.mark.parametrize("how", [lambda t: pickle.loads(pickle.dumps(t)), copy.copy, copy.deepcopy])
def test_tables_keep_their_keys(name, how):
    pd = pytest.importorskip("pandas")
    table = MADE[name]()
    pd.testing.assert_frame_equal(how(table).to_pandas(), table.to_pandas())


def test_tables_of_a_device_say_what_can_be_sent(queue):
    keys, values = cl_array.to_device(queue, K.astype(np.int32)), cl_array.to_device(queue, X.astype(np.float32))
    table = clhist.group_by(keys, 7).agg(a=(values, "max"))
    with pytest.raises(TypeError, match=r"^Table: cannot be pickled, since \['a'\]\['max'\] is on a device"):
        pickle.dumps(table)
    assert copy.copy(table)["a"]["max"] is table["a"]["max"]
    pickle.dumps(table.to_pandas())
