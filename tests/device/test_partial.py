"""Partial results: merged, saved, pickled and refused; and functions over several devices."""

from __future__ import annotations

import json
import pickle

import numpy as np
import pytest
from covering import mostly_slow

import clhist
from clhist import Operator, Partial, Spec, operators
from clhist._core.opencl.device import profile_context
from clhist.partial import FORMAT
from clhist.selftest.cases import CASES, PRODUCTS, problem

pytestmark = pytest.mark.usefixtures("without_optimizer")

SUMS = Spec(operators.add(np.int64), 5)


def part(**options):
    return SUMS.partial(np.array([0, 1, 1, 7, -1]), np.array([5, 6, 7, 8, 9]), **options)


@pytest.mark.parametrize("name", mostly_slow(sorted(CASES | PRODUCTS), 5))
def test_parts_of_cpus_and_gpus_are_one(name, tmp_path, cpu_like, gpu_like):
    bins, values, check = problem(name)
    spec = Spec((CASES | PRODUCTS)[name].operator, 37)
    found = []
    for k, (begin, end) in enumerate(((0, 5), (5, 5), (5, 1500), (1500, len(bins)))):
        with profile_context(gpu_like if k % 2 else cpu_like):
            found.append(spec.accumulator())
            found[-1].add(bins[begin:end], values[begin:end])
            found[-1] = pickle.loads(pickle.dumps(found[-1].partial()))
    found.append(spec.empty())
    whole = clhist.merge(found[::-1])
    assert whole.size == len(bins)
    whole.save(tmp_path / "whole.npz")
    for each in (whole, spec.load(tmp_path / "whole.npz"), Partial.load(tmp_path / "whole.npz", spec)):
        check(spec.result(each))


def test_several_histograms_are_saved_by_name(tmp_path):
    spec = Spec({"n": operators.count(), "top": operators.maximum(np.float32)}, {"n": 3, "top": (2, 2)},
                arguments="const int *k, const float *x", map="EMIT_n(k[i], 1); EMIT_top(k[i], x[i])")  # fmt: skip
    whole = spec.partial(np.array([0, 1, 1], np.int32), np.array([1, 2, 3], np.float32))
    whole.save(tmp_path / "a.npz")
    found = spec.result(spec.load(tmp_path / "a.npz"))
    assert found["n"].tolist() == [1, 2, 0]
    assert found["top"].tolist() == [[1, 3], [-np.inf, -np.inf]]
    assert list(whole.accumulators) == ["n", "top"]
    other = Spec({"n": operators.count(), "low": operators.maximum(np.float32)}, 3, arguments=spec.arguments,
                 map="EMIT_n(k[i], 1); EMIT_low(k[i], x[i])")  # fmt: skip
    with pytest.raises(ValueError, match=r"expected histograms n, low, got n, top$"):
        other.load(tmp_path / "a.npz")
    assert hash(spec) == hash(pickle.loads(pickle.dumps(spec)))
    assert spec == pickle.loads(pickle.dumps(spec))


def test_positions_are_merged_once():
    first, second, later = part(start=0), part(start=5), part(start=20)
    whole = clhist.merge([second, later, first])
    assert (whole.positions, whole.size) == (((0, 10), (20, 25)), 15)
    with pytest.raises(
        ValueError, match=r"^partials\[1\]: expected other elements, got those at positions 5 to 9 again; "
    ):
        clhist.merge([whole, second])
    assert clhist.merge([whole, part()]).positions is None
    assert first.result().tolist() == [5, 13, 0, 0, 0]  # which merging left alone
    stream = SUMS.accumulator(start=0)
    stream.add(np.zeros(4, int), 1)
    with pytest.raises(ValueError, match=r"^other: expected other elements, got those at positions 0 to 3 again; "):
        stream.merge(first)
    assert stream.result().tolist() == [4, 0, 0, 0, 0]


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (lambda: Spec(operators.add(np.int64), 6).empty(), r"partials\[1\]: expected 5 bins, got 6$"),
        (lambda: Spec(operators.multiply(np.int64), 5).empty(), r"partials\[1\]: expected accumulators of .* a \+ b>"),
        (lambda: Spec(operators.add(np.int32), 5).empty(), r"partials\[1\]: expected accumulators of .*int64.*int32"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused_by_name(other, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        clhist.merge([part(), other()])


def test_bad_input(tmp_path):
    with pytest.raises(ValueError, match=r"^partials: expected at least one, got none"):
        clhist.merge([])
    with pytest.raises(TypeError, match=r"^partials\[0\]: expected a clhist.Partial, got ndarray"):
        clhist.merge([np.zeros(5)])
    with pytest.raises(TypeError, match=r"^partial: expected a clhist.Partial"):
        SUMS.result(np.zeros(5))
    with pytest.raises(TypeError, match=r"^map: expected C that emits values"):
        Spec("sum", 3, dtype=int, arguments="const int *x")
    with pytest.raises(ValueError, match=r"^num_bins: expected one dimension"):
        Spec("sum", (3, 4), dtype=int)
    (tmp_path / "no.npz").write_bytes(b"nothing")
    with pytest.raises(ValueError, match=r"no.npz: expected what clhist.Partial.save wrote"):
        SUMS.load(tmp_path / "no.npz")
    part().save(tmp_path / "a.npz")
    with pytest.raises(
        ValueError, match=r"a.npz: expected accumulators of <Operator multiply .*, got those of <Operator add"
    ):
        Spec(operators.multiply(np.int64), 5).load(tmp_path / "a.npz")
    with pytest.raises(ValueError, match=r"a.npz: expected 6 bins, got 5$"):
        Spec(operators.add(np.int64), 6).load(tmp_path / "a.npz")
    with np.load(tmp_path / "a.npz") as archive:
        arrays = dict(archive)
    described = json.loads(str(arrays["description"])) | {"format": FORMAT + 1}
    np.savez(tmp_path / "b.npz", **arrays | {"description": np.array(json.dumps(described))})
    with pytest.raises(ValueError, match=rf"b.npz: expected format {FORMAT} of partial results, got {FORMAT + 1}"):
        SUMS.load(tmp_path / "b.npz")
    part(start=7).save(tmp_path / "c.npz")
    with np.load(tmp_path / "c.npz") as archive:
        arrays = dict(archive)
    described = json.loads(str(arrays["description"]))
    for changed, message in (
        ({"size": 6}, r"positions of 6 elements that rise, got \[\[7, 12\]\]"),
        ({"positions": [[7, 9], [8, 11]]}, r"positions of 5 elements that rise, got \[\[7, 9\], \[8, 11\]\]"),
        ({"positions": [[12, 7]]}, "positions of 5 elements that rise"),
        *(({name: value}, "what clhist.Partial.save wrote, got another description") for name, value in (
            ("positions", [[-5, 0]]), ("positions", 3), ("size", -5), ("size", 5.5), ("outputs", [{}]),
        )),
        ({"outputs": [described["outputs"][0] | {"num_bins": [6]}]}, r"\[6\] accumulators, got \[5\]"),
    ):  # fmt: skip
        np.savez(tmp_path / "c.npz", **arrays | {"description": np.array(json.dumps(described | changed))})
        with pytest.raises(ValueError, match=f"c.npz: expected {message}"):
            SUMS.load(tmp_path / "c.npz")
    np.savez(tmp_path / "c.npz", **arrays, accumulators1=arrays["accumulators0"])
    with pytest.raises(ValueError, match=r"c.npz: expected the accumulators of 1 histograms, got 2$"):
        SUMS.load(tmp_path / "c.npz")
    np.save(tmp_path / "no.npy", arrays["accumulators0"])
    with pytest.raises(ValueError, match=r"no.npy: expected what clhist.Partial.save wrote"):
        SUMS.load(tmp_path / "no.npy")
    np.savez(tmp_path / "c.npz", **arrays | {"description": np.array("[1]")})
    with pytest.raises(ValueError, match=r"c.npz: expected what clhist.Partial.save wrote"):
        SUMS.load(tmp_path / "c.npz")
    restore, (_, *state) = part().__reduce__()
    with pytest.raises(ValueError, match=rf"^partial: expected format {FORMAT}, got {FORMAT + 1} of clhist"):
        restore(FORMAT + 1, *state)


def test_limits_hold_for_the_whole():
    few = Operator(np.int8, "a + b", 0, "few", most_values=8)
    spec = Spec(few, 2)
    one = spec.partial(np.zeros(5, int), 1)
    with pytest.raises(OverflowError, match=r"^partials\[1\]: expected at most 8 values for few in all, got 10"):
        clhist.merge([one, one], allow_repeat=True)
    many = clhist.Partial(one.outputs, one.arrays, 3, 3)
    assert clhist.merge([one, many]).result().tolist() == [10, 0]


def test_counts_of_eight_billion_elements():
    spec = Spec("count", 3)
    one = spec.partial(np.zeros(2, int), 1)
    full = Partial(one.outputs, (one.arrays[0] * 2**30,), 2**31, 2**31)  # as if so many had been counted
    whole = clhist.merge([full] * 4)
    assert (whole.size, spec.result(whole).tolist()) == (2**33, [2**33, 0, 0])
    most = Partial(one.outputs, (one.arrays[0] * 2**60 * 3,), 3 * 2**61, 3 * 2**61)
    other = Partial(one.outputs, (one.arrays[0][::-1] * 2**60 * 3,), 3 * 2**61, 3 * 2**61)
    assert spec.result(clhist.merge([most, other])).tolist() == [3 * 2**61, 0, 3 * 2**61]
    with pytest.raises(OverflowError, match=rf"^partials\[1\]: expected counts of at most {2**63 - 1} in all, got a"):
        clhist.merge([most, most])
    assert most.accumulators.tolist() == [3 * 2**61, 0, 0]


@pytest.mark.slow
def test_functions_over_several_devices(queue, other_queue, rng, monkeypatch):
    monkeypatch.setattr("clhist.multi_device.CHUNK_BYTES", 4096)
    devices = [queue, other_queue]
    x, w = rng.integers(0, 50, 5000), rng.random(5000)
    f = rng.normal(size=5000).astype(np.float32)
    np.testing.assert_array_equal(clhist.bincount(x, devices=devices), np.bincount(x), strict=True)
    np.testing.assert_allclose(clhist.bincount(x, w, 60, devices=devices), np.bincount(x, w, 60))
    for bins, ends in ((20, None), (20, (-1, 1)), ([-1, 0, 0.5], None), ("fd", None)):
        for data in (f, x, x.astype(np.uint8)):
            found, expected = clhist.histogram(data, bins, ends, devices=devices), np.histogram(data, bins, ends)
            for one, other in zip(found, expected, strict=True):
                np.testing.assert_array_equal(one, other, strict=True)
    found = clhist.histogram(f, 20, weights=w, density=True, devices="all")[0]
    np.testing.assert_allclose(found, np.histogram(f, 20, weights=w, density=True)[0])
    for op in ("sum", "argmax", "count", np.maximum):
        expected = clhist.reduce_by_index(50, op, x, w)
        found = clhist.reduce_by_index(50, op, x, w, devices=devices)
        assert found.dtype == expected.dtype
        if found.dtype.names:
            np.testing.assert_array_equal(found, expected)
        else:
            np.testing.assert_allclose(found, expected)
    dest = np.arange(50.0)
    np.testing.assert_allclose(clhist.reduce_by_index(dest, np.add, x, w, devices=devices), np.bincount(x, w) + dest)
    assert clhist.bincount(x[:0], devices=devices).tolist() == []
    with pytest.raises(TypeError, match=r"^queue: expected none with devices="):
        clhist.bincount(x, queue=queue, devices="all")
    with pytest.raises(ValueError, match="negative"):
        clhist.bincount(x - 9, devices=devices)
