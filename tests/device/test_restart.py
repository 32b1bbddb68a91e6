"""Streams that go on where a saved partial result ends, beside NumPy's results of the whole stream."""

from __future__ import annotations

import json
import pickle

import numpy as np
import pytest

from clhist import Accumulator, HistogramKernel, MultiAccumulator, Operator, Partial, Spec, merge, operators

pytestmark = pytest.mark.usefixtures("without_optimizer")

N, H = 5000, 7
PAIR = np.dtype([("value", np.float64), ("index", np.int32)], align=True)


def _positions(keys, values, name):
    """Return the value and position of each bin's first, last, smallest or largest element, by NumPy."""
    found = []
    for k in range(H):
        (at,) = np.nonzero(keys == k)
        place = {"first": 0, "last": -1}.get(name)
        place = getattr(np, name)(values[at]) if place is None else place
        found.append((values[at][place], at[place]))
    return found


def _expected(name, keys, values):
    if name in ("argmin", "argmax", "first", "last"):
        return np.array(_positions(keys, values, name), PAIR)
    if name == "count":
        return np.bincount(keys, minlength=H)
    if name == "max":
        return np.array([values[keys == k].max() for k in range(H)])
    return np.bincount(keys, values, minlength=H)


def _resumed(make, keys, values, rng, tmp_path, restarts=3, **load):
    """Return a stream in random chunks that was saved, dropped and resumed at random places; one time at the start."""
    stops = [0, *sorted(rng.integers(0, N + 1, restarts)), N]
    stream = make()
    for stop in stops:
        while stream.size < stop:
            end = min(stop, stream.size + int(rng.integers(1, 1500)))
            stream.add(keys[stream.size : end], values[stream.size : end] if np.ndim(values) else values)
        stream.partial().save(tmp_path / "saved.npz")
        stream = make()
        assert stream.merge(Partial.load(tmp_path / "saved.npz", **load)).size == stop
    return stream


@pytest.mark.parametrize("name", ["sum", "count", "max", "argmin", "argmax", "first", "last"])
@pytest.mark.parametrize("kind", [Accumulator, MultiAccumulator])
def test_a_stream_goes_on(name, kind, tmp_path, rng):
    keys, values = rng.integers(0, H, N), rng.integers(0, 40, N) / 8
    stream = _resumed(lambda: kind(name, H, dtype=np.float64), keys, 1 if name == "count" else values, rng, tmp_path)
    np.testing.assert_array_equal(stream.result(), _expected(name, keys, values))
    assert stream.size == N


def test_masked_elements_count_as_elements(tmp_path, rng):
    keys, values = rng.integers(0, H, N), rng.integers(0, 40, N) / 8
    masked = np.ma.array(keys, mask=rng.random(N) < 0.3)
    stream = _resumed(lambda: Accumulator("argmax", H, dtype=np.float64), masked, values, rng, tmp_path)
    expected = _positions(masked.filled(-1), values, "argmax")
    np.testing.assert_array_equal(stream.result(), np.array(expected, PAIR))


def test_a_kernel_gets_positions(tmp_path, rng):
    keys = rng.integers(0, H, N).astype(np.int32)
    kernel = HistogramKernel(None, {"last": operators.maximum(np.int64), "n": operators.count()},
                             arguments="const int *k, const int *v, long first",
                             map="EMIT_last(k[i], first + i); EMIT_n(k[i], v[i] > 0)")  # fmt: skip
    stream = _resumed(lambda: kernel.accumulator(H, first_index="first"), keys, keys, rng, tmp_path)
    found = stream.result()
    assert found["last"].tolist() == [np.nonzero(keys == k)[0][-1] for k in range(H)]
    assert found["n"].tolist() == [(k > 0) * np.count_nonzero(keys == k) for k in range(H)]


def _part(begin, end, keys, values, **start):
    return Accumulator("argmax", H, dtype=np.float64, **start).add(keys[begin:end], values[begin:end]).partial()


def test_positions_that_nobody_knows_are_refused(rng):
    keys, values = rng.integers(0, H, N), rng.random(N)
    first, second = _part(0, 2000, keys, values), _part(2000, 3000, keys, values, start=2000)
    with pytest.raises(ValueError, match=r"^partials\[1\]: expected other elements, .* 0 to 999 again; start="):
        merge([first, _part(2000, 3000, keys, values)])
    later = _part(4000, N, keys, values, start=4000)
    stream = Accumulator("argmax", H, dtype=np.float64)
    for part in (first, later):
        stream.merge(part)
    with pytest.raises(ValueError, match=r"^add: expected start= .* 0 to 1999, 4000 to 4999 were merged"):
        stream.add(keys[2000:4000], values[2000:4000])
    stream.merge(second)
    assert stream.partial().positions == ((0, 3000), (4000, N))
    known = Accumulator("argmax", H, dtype=np.float64, start=3000)
    for part in (second, later, first):
        known.merge(part)
    with pytest.raises(ValueError, match=r"^add: expected other elements, got those at positions 4000 to 4009 again"):
        known.add(keys[3000:4010], values[3000:4010])
    known.add(keys[3000:4000], values[3000:4000])
    np.testing.assert_array_equal(known.result(), np.array(_positions(keys, values, "argmax"), PAIR))


def test_a_part_is_merged_once(tmp_path, rng):
    spec, keys = Spec("count", H), rng.integers(0, H, 100)
    expected = np.bincount(keys, minlength=H)
    part = spec.partial(keys, 1)
    part.save(tmp_path / "part.npz")
    again = [part, pickle.loads(pickle.dumps(part)), spec.load(tmp_path / "part.npz"), merge([spec.empty(), part])]
    for other in again:
        with pytest.raises(ValueError, match=r"^partials\[1\]: expected other elements, .*allow_repeat=True"):
            merge([part, other])
        for kind in (Accumulator, MultiAccumulator):
            stream = kind("count", H).merge(part)
            with pytest.raises(ValueError, match=r"^other: expected other elements, .*allow_repeat=True"):
                stream.merge(other)
            assert (stream.size, stream.result().tolist()) == (100, expected.tolist())
            stream.merge(other, allow_repeat=True)
            assert (stream.size, stream.result().tolist()) == (200, (2 * expected).tolist())
    assert merge(again, allow_repeat=True).result().tolist() == (4 * expected).tolist()
    assert merge([spec.partial(keys, 1), part]).result().tolist() == (2 * expected).tolist()  # another call
    assert merge([spec.empty()] * 3).size == 0


def test_two_states_of_a_stream_overlap_until_it_is_taken(rng):
    keys = rng.integers(0, H, 100)
    for kind in (Accumulator, MultiAccumulator):
        stream = kind("count", H).add(keys, 1)
        early = stream.partial()
        late = stream.add(keys, 1).partial()
        with pytest.raises(ValueError, match=r"^partials\[1\]: expected other elements"):
            merge([late, early])
        stream.take()
        assert merge([late, stream.add(keys, 1).partial()]).size == 300
        with_dest = kind("count", H, dest=np.ones(H, np.int64))
        with pytest.raises(ValueError, match="allow_repeat"):
            merge([with_dest.partial(), with_dest.partial()])


# Operators in files.

ONE_C = Operator(np.int64, "gcd_of(a, b)", 0, "gcd", preamble="""
long gcd_of(long a, long b) { while (b) { const long c = a % b; a = b; b = c; } return a; }""")  # fmt: skip
POINT = np.dtype([("x", np.float32), ("n", np.int32)], align=True)
PRODUCT = operators.product({"x": operators.add(np.float32), "n": operators.maximum(np.int32)}, POINT)


@pytest.mark.parametrize(
    "operator",
    [
        *(operators.add(t) for t in ("i1", "i8", "f2", "f4", "c8")),
        *(operators.mean("f4"), operators.variance("f8", 1), operators.standard_deviation("f4")),
        *(operators.argmax("f4"), operators.argmin("f8", "i8"), operators.first("i4"), operators.last("u1")),
        *(operators.reproducible_add("f4", 10.0), operators.reproducible_add("f8"), operators.count()),
        *(operators.saturating_add("u1", 200), operators.saturating_add("f4", 1.5), operators.logical_xor()),
        *(operators.fmax("f4"), operators.minimum("f8"), operators.multiply("c16"), operators.bitwise_and("u2")),
        *(PRODUCT, Operator(np.int32, "b+a", 0), Operator(np.float64, "a * b", 1, "scales")),
    ],
    ids=str,
)
def test_a_file_names_its_operator(operator, tmp_path):
    spec = Spec(operator, 4)
    spec.empty().save(tmp_path / "a.npz")
    found = Partial.load(tmp_path / "a.npz")
    found.check(spec.empty().outputs, spec.shapes)
    assert found.arrays[0].tobytes() == spec.empty().arrays[0].tobytes()


def test_files_of_an_older_format_need_an_operator(tmp_path, rng):
    keys = rng.integers(0, H, 100)
    spec = Spec("count", H)
    spec.partial(keys, 1).save(tmp_path / "a.npz")
    with np.load(tmp_path / "a.npz") as archive:
        arrays = dict(archive)
    described = json.loads(str(arrays["description"])) | {"format": 1}
    del described["sources"], described["named"], described["outputs"][0]["description"]
    np.savez(tmp_path / "b.npz", **arrays | {"description": np.array(json.dumps(described))})
    stream = Accumulator("count", H).merge(spec.load(tmp_path / "b.npz"))
    assert (stream.size, stream.result().tolist()) == (100, np.bincount(keys, minlength=H).tolist())
    with pytest.raises(ValueError, match=r"b.npz: expected operator=, since the file only names its operator"):
        Partial.load(tmp_path / "b.npz")
    restore, (_, version, *state) = spec.partial(keys, 1).__reduce__()
    assert restore(1, version, *state[:-1]).sources == frozenset()


@pytest.mark.parametrize(
    "changed",
    [
        *({"ready": name} for name in ("eval", "__import__", 3, None, [])),
        *({"ready": "add", "arguments": a} for a in ({}, {"dtype": "O"}, {"dtype": "<f8", "preamble": "x"}, 5, None)),
        *({"ready": "add", "arguments": {"dtype": dtype}} for dtype in ("<U8", "|V8", "f8, f8", 8, [["x", "<f8"]])),
        *({"combine": combine} for combine in ("a", 5, {}, {".x": "a + b"}, {"": "a + b"}, {"x": "a + b"}, None)),
        *({"name": name} for name in ("*/ evil", "a\nb", 3, "x" * 1000)),
        *({"neutral": data} for data in ("", "00", "zz", 5)),
        *({"most_values": n} for n in (-1, True, "9", 1e9)),
        *({"dtype": {"fields": fields, "itemsize": 8}} for fields in ([["x; evil()", "<f8", 0]], [["x", "O", 0]], 3)),
        *({name: "f(a) + v"} for name in ("lift", "finish", "preamble")),
        {"positional": 1},
        5,
        [],
        "add",
    ],
    ids=repr,
)
def test_no_description_of_a_file_is_trusted(changed, tmp_path):
    spec = Spec(Operator(np.float64, "b+a", 0), H)  # recognised, but not ready
    spec.empty().save(tmp_path / "a.npz")
    with np.load(tmp_path / "a.npz") as archive:
        arrays = dict(archive)
    described = json.loads(str(arrays["description"]))
    description = described["outputs"][0]["description"]
    assert "combine" in description
    described["outputs"][0]["description"] = description | changed if isinstance(changed, dict) else changed
    np.savez(tmp_path / "b.npz", **arrays | {"description": np.array(json.dumps(described))})
    with pytest.raises(ValueError, match=r"b\.npz: expected ") as caught:
        Partial.load(tmp_path / "b.npz")
    assert str(caught.value).isprintable()
    spec.load(tmp_path / "b.npz")  # which looks at its own operator


def test_several_operators_in_a_file(tmp_path):
    several = {"n": operators.count(), "top": operators.maximum(np.float32)}
    for each in (several, list(several.values())):
        names = ["n", "top"] if each is several else (0, 1)
        suffix = "_" if each is several else ""
        spec = Spec(each, 3, arguments="const int *k", map="".join(f"EMIT{suffix}{n}(k[i], 1);" for n in names))
        spec.partial(np.array([0, 2], np.int32)).save(tmp_path / "a.npz")
        found = Partial.load(tmp_path / "a.npz").result()
        assert type(found) is (dict if each is several else tuple)
        assert [x.tolist() for x in (found.values() if each is several else found)] == [[1, 0, 1], [1, -np.inf, 1]]


def test_c_expressions_of_a_file_are_taken_only_on_trust(tmp_path, rng):
    keys, values = rng.integers(0, H, N), 6 * rng.integers(1, 9, N)
    with pytest.raises(ValueError, match=r"saved.npz: expected operator= for its operator <Operator gcd.*trusted=True"):
        _resumed(lambda: Accumulator(ONE_C, H), keys, values, rng, tmp_path)
    stream = _resumed(lambda: Accumulator(ONE_C, H), keys, values, rng, tmp_path, trusted=True)
    assert stream.result().tolist() == [np.gcd.reduce(values[keys == k]) for k in range(H)]
    stream = _resumed(lambda: Accumulator(ONE_C, H), keys, values, rng, tmp_path, operator=ONE_C)
    assert stream.result().tolist() == [np.gcd.reduce(values[keys == k]) for k in range(H)]
