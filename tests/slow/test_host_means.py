"""Histograms of means that NumPy fills on the host: as exact arithmetic, and as a device."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

bh = pytest.importorskip("boost_histogram", reason="boost-histogram is not installed")

from hist_objects import assert_same, empty  # noqa: E402
from thresholds import threshold  # noqa: E402

import clhist.hist  # noqa: E402
from clhist._core.runtime import small  # noqa: E402
from clhist.hist import filling  # noqa: E402

N = 500
_random = np.random.default_rng(7)
X, Y = _random.normal(size=N), _random.random(N).astype(np.float32)
X[::50], X[3], X[4] = np.nan, np.inf, -np.inf
K = _random.integers(-3, 9, N)
LABELS = np.array(["a", "bb", "c", "d"])[_random.integers(0, 4, N)]
axis = bh.axis
AXES = {
    "even": ([axis.Regular(10, -2, 2)], (X,)),
    "bytes": ([axis.Regular(10, -2, 7)], (K.astype(np.int8),)),
    "many categories": ([axis.IntCategory(range(-2, 30, 2)), axis.IntCategory(range(1, 40))], (K, K.astype(np.uint8))),
    "no flow": ([axis.Regular(3, -1, 1, underflow=False, overflow=False), axis.Integer(0, 5, overflow=False)], (X, K)),
    "swapped": ([axis.Variable([-1, 0, 2]), axis.Boolean()], (X.astype(">f8"), K > 2)),
    "transforms": (
        [axis.Regular(4, 0.1, 3, transform=axis.transform.log), axis.Regular(3, -1, 1, circular=True)],
        (Y, X),
    ),
    "categories": (
        [axis.StrCategory(["c", "a"]), axis.IntCategory([1, 5], overflow=False), axis.Variable([0, 1, 3])],
        (LABELS, K, X),
    ),
    "growing": (
        [
            axis.StrCategory(["c"], growth=True),
            axis.IntCategory([], growth=True),
            axis.Integer(0, 2, growth=True),
            axis.Regular(3, -1, 1),
        ],
        (LABELS, K, K, Y),
    ),
    "scalars": ([axis.Regular(9, -2, 2), axis.StrCategory(["q"]), axis.IntCategory([4], growth=True)], (X, "r", 7)),
    "dropped": ([axis.Regular(10, -2, 2), axis.Integer(0, 3, overflow=False)], (X, 3)),
    "many bins": ([axis.Regular(300, -2, 2), axis.Integer(-5, 100)], (X, K)),
}
_RANDOM = _random.normal(size=N)
SAMPLES = {
    "plain": _RANDOM,
    "large": 3e14 + 100 * _RANDOM,
    "equal": np.full(N, 0.1),
    "outlier": np.where(np.arange(N) == 5, 1e12, _RANDOM),
    "integers": K,
    "not finite": np.where(np.arange(N) % 60 == 1, np.nan, np.where(np.arange(N) % 70 == 2, np.inf, _RANDOM)),
    "scalar": 4.1,
    "NaN": np.nan,
}
_POSITIVE = _random.random(N) + 0.1
WEIGHTS = {
    "none": None,
    "scalar": 2.0,
    "float32": _POSITIVE.astype(np.float32),
    "zeros": np.where(K > 1, 0.0, _POSITIVE),
    "integers": _random.integers(0, 3, N),
    "NaN": np.where(np.arange(N) == 9, np.nan, _POSITIVE),
}
STORAGES = {"Mean": bh.storage.Mean(), "WeightedMean": bh.storage.WeightedMean()}
_FIELDS = {
    "Mean": ("count", "value", "_sum_of_deltas_squared"),
    "WeightedMean": ("sum_of_weights", "value", "_sum_of_weighted_deltas_squared"),
}


@pytest.fixture(autouse=True)
def on_the_host(monkeypatch):
    """Leave all fills without a queue to the host, and none of means to boost-histogram."""
    monkeypatch.setitem(small.COSTS, "boost-histogram, means", threshold(1e9))
    monkeypatch.setattr(filling.BoostHistogram, "fill", lambda *args, **named: pytest.fail("boost-histogram filled"))


def filled(name, storage, times=1, **options):
    """Return a histogram that was filled with the data of one of `AXES`."""
    axes, args = AXES[name]
    h = empty(axes, STORAGES[storage])
    for _ in range(times):
        clhist.hist.fill(h, *args, **options)
    return h


@pytest.mark.parametrize("storage", STORAGES)
@pytest.mark.parametrize("name", AXES)
def test_both_ways_agree_on_axes(queue, name, storage):
    for weight in (None, WEIGHTS["zeros"]):
        options = {"sample": SAMPLES["plain"], "weight": weight, "times": 2}
        assert_same(filled(name, storage, **options), filled(name, storage, queue=queue, **options))


@pytest.mark.parametrize("storage", STORAGES)
@pytest.mark.parametrize("sample", SAMPLES)
@pytest.mark.parametrize("weight", WEIGHTS)
def test_both_ways_agree_on_samples(queue, sample, weight, storage):
    options = {"sample": SAMPLES[sample], "weight": WEIGHTS[weight]}
    found, expected = filled("even", storage, **options), filled("even", storage, queue=queue, **options)
    if sample == "equal":  # whose deviations are those of the rounded mean
        field = _FIELDS[storage][2]
        for h in (found, expected):
            squares = h.view(flow=True)[field]
            assert not (squares > N * np.spacing(0.1) ** 2).any()
            squares[np.isfinite(squares)] = 0
    assert_same(found, expected)


def exact(places, sample, weight):
    """Return the sum of weights, the mean and the weighted squared deviations of each place, by exact arithmetic."""
    found = {}
    for place in set(places):
        pairs = [
            (Fraction(float(x)), Fraction(float(w)))
            for p, x, w in zip(places, sample, weight, strict=True)
            if p == place
        ]
        total = sum(w for _, w in pairs)
        mean = sum(w * x for x, w in pairs) / total
        found[place] = total, mean, sum(w * (x - mean) ** 2 for x, w in pairs)
    return found


@pytest.mark.parametrize("storage", STORAGES)
@pytest.mark.parametrize("sample", ["plain", "large", "outlier", "integers"])
@pytest.mark.parametrize("bins", [4, 10_000])
def test_sums_are_those_of_exact_arithmetic(sample, storage, bins):
    """In few bins, and in more than there are samples."""
    places, weight = np.arange(N) % 4, WEIGHTS["float32"]
    h = bh.Histogram(axis.Integer(0, bins), storage=STORAGES[storage])
    clhist.hist.fill(h, places, sample=SAMPLES[sample], weight=weight)
    found = h.view()
    for place, (total, mean, deviations) in exact(places.tolist(), SAMPLES[sample], weight).items():
        ours = [found[field][place] for field in _FIELDS[storage]]
        assert ours[0] == pytest.approx(float(total), rel=1e-14)
        assert ours[1] == pytest.approx(float(mean), rel=1e-15, abs=1e-14)
        assert ours[2] == pytest.approx(float(deviations), rel=1e-12)
    assert not found["value"][4:].any()


@pytest.mark.parametrize("storage", STORAGES)
@pytest.mark.parametrize("on_device", [False, True])
@pytest.mark.parametrize(
    "cancelling", [(1.0, -1.0), (0.1, 0.2, -0.3), (1.0, -1.0, 1e-9), (-1.0, 1.0, 1.0, -1.0), (3.0, -2.5, 0.25)], ids=str
)
def test_weights_that_cancel_count(cancelling, on_device, storage, queue):
    """In the second of three fills, whose sum of weights is 0 or near it in bin 1, and 0 in bin 2."""
    rng, size = np.random.default_rng(7), len(cancelling)
    h = bh.Histogram(axis.Integer(0, 4), storage=STORAGES[storage])
    parts = [
        (np.arange(40) % 3, np.full(40, 1.5)),
        (np.array([0] * 9 + [1] * size + [2, 2]), np.array([1.0] * 9 + [*cancelling, 0.5, -0.5])),
        (np.arange(40) % 3, np.full(40, 0.5)),
    ]
    samples = [100 + rng.random(len(places)) for places, _ in parts]
    for (places, weight), sample in zip(parts, samples, strict=True):
        clhist.hist.fill(h, places, weight=weight, sample=sample, queue=queue if on_device else None)
    places, weight = map(np.concatenate, zip(*parts, strict=True))
    for place, expected in exact(places.tolist(), np.concatenate(samples), weight).items():
        ours = [h.view()[field][place] for field in _FIELDS[storage]]
        assert ours == pytest.approx([float(number) for number in expected], rel=1e-11)


@pytest.mark.parametrize("storage", STORAGES)
@pytest.mark.parametrize("on_device", [False, True])
def test_a_bin_whose_weights_cancel_stays_without_a_mean(on_device, storage, queue):
    h = bh.Histogram(axis.Integer(0, 2), storage=STORAGES[storage])
    for weight in ([1.0, -1.0, 1.0], [1.0, 2.0, 1.0]):
        clhist.hist.fill(
            h, [0, 0, 1], weight=np.array(weight), sample=np.array([5.0, 2, 3]), queue=queue if on_device else None
        )
        assert not np.isfinite(h.view()["value"][0])
    assert h.view()["value"][1] == 3


def test_fills_of_one_sample_and_in_parts():
    """Parts are joined as Chan, Golub and LeVeque do; one sample has no deviation."""
    sample, places = 1e6 + _RANDOM, np.zeros(N, np.int64)
    h = bh.Histogram(axis.Integer(0, 1), storage=bh.storage.Mean())
    clhist.hist.fill(h, places[:1], sample=sample[:1])
    assert h.view().tolist() == [(1.0, sample[0], 0.0)]
    for begin, end in ((1, 2), (2, 300), (300, N)):
        clhist.hist.fill(h, places[begin:end], sample=sample[begin:end])
    _, mean, deviations = exact(places.tolist(), sample, np.ones(N))[0]
    assert h.view()["count"] == [N]
    assert h.view()["value"] == pytest.approx(float(mean), rel=1e-15)
    # Each join squares a difference of means, which are rounded to 1.2e-10.
    assert h.view()["_sum_of_deltas_squared"] == pytest.approx(float(deviations), rel=1e-11)


def test_fillers_fill_on_the_host(queue):
    axes, args = AXES["growing"]
    found, expected = (
        clhist.hist.Filler(empty(axes, STORAGES["Mean"]), queue=q).fill(*args, sample=_RANDOM).result()
        for q in (None, queue)
    )
    assert_same(found, expected)


@pytest.mark.parametrize("size", [3, 100_000])
def test_fillers_refuse_threads_for_means_at_any_size(monkeypatch, size):
    monkeypatch.undo()
    h = bh.Histogram(axis.Regular(4, 0, 1), storage=bh.storage.Mean())
    with pytest.raises(RuntimeError) as expected:
        h.fill(np.zeros(size), sample=np.zeros(size), threads=2)
    with pytest.raises(RuntimeError) as found:
        clhist.hist.Filler(h).fill(np.zeros(size), sample=np.zeros(size), threads=2)
    assert str(found.value) == str(expected.value)


@pytest.mark.parametrize(
    "options",
    [
        {"args": (np.zeros(0),), "sample": np.zeros(0)},
        {"args": (np.zeros(3),), "sample": np.zeros(2)},
        {"args": (np.zeros(3),)},
        {"args": (np.zeros(3), np.zeros(3)), "sample": np.zeros(3)},
        {"args": (np.zeros(3),), "sample": np.zeros(3), "threads": 2},
        {"args": (np.zeros(3),), "sample": np.array(["a", "b", "c"])},
        {"args": (np.zeros(3),), "sample": np.zeros((3, 2))},
        {"args": (np.zeros(3),), "sample": np.zeros(3), "weight": np.zeros(4)},
    ],
    ids=["empty", "lengths", "no sample", "axes", "threads", "strings", "dimensions", "weights"],
)
def test_boost_histogram_takes_the_rest(monkeypatch, options):
    """Its errors are those of a fill, which changes no bin then."""
    monkeypatch.undo()
    args, named = options["args"], {name: value for name, value in options.items() if name != "args"}

    def outcome(fill):
        h = bh.Histogram(axis.Regular(4, 0, 1), storage=bh.storage.Mean())
        try:
            fill(h, *args, **named)
        except Exception as error:
            return type(error), str(error), h.view(flow=True).tolist()
        return h.view(flow=True).tolist()

    assert outcome(clhist.hist.fill) == outcome(bh.Histogram.fill)
