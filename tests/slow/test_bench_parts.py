"""What `clhist bench` is made of: inputs, references, timing, peers, plots."""

import shutil

import numpy as np
import pytest

from benchmarks import peer_c
from benchmarks import plot as bench_plot
from benchmarks.inputs import DISTRIBUTIONS, Host, Input, InputSpec, keys, weights
from benchmarks.lab import Lab, difference
from benchmarks.operators import OPERATORS, SATURATION
from benchmarks.peer_libraries import peers
from benchmarks.peer_problems import PROBLEMS, ROW_PROBLEMS, fields, row_problem
from clhist.cli.timing import Samples, interleaved, pipelined, repeated

N, H = 20_000, 200


def make(queue, distribution="uniform", race_factor=1, *, cache=1, weighted=True, image=False, size=N, bins=H):
    spec = InputSpec(size, bins, race_factor, distribution, image)
    return Input(queue, spec, weighted=weighted, cache=cache)


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_distributions(queue, distribution):
    counts = make(queue, distribution).host.counts
    assert counts.size == H, "no bin is outside"
    mean = N / H
    if distribution in ("uniform", "sorted"):
        assert 0.5 * mean < counts.min() <= counts.max() < 1.5 * mean
    elif distribution == "zipf":
        assert counts[0] == pytest.approx(N * np.log(2) / np.log(H + 1), rel=0.1)
        assert counts[0] > 1.5 * counts[1] > 2 * counts[9] > 4 * counts[-1] > 0
    else:
        rest = np.delete(counts, H // 2)
        share = 0.5 if distribution == "half in one" else 1
        assert counts[H // 2] == pytest.approx(N * share, rel=0.1)
        assert (rest > 0).all() if share < 1 else not rest.any()


def test_sorted_bins_ascend(queue):
    assert (np.diff(make(queue, "sorted").host.bins) >= 0).all()


@pytest.mark.parametrize(("race_factor", "bins"), [(1, H), (7, H), (63, H), (63, 31)])
def test_the_race_factor_of_the_paper(queue, race_factor, bins):
    found = make(queue, race_factor=race_factor, bins=bins).host.bins
    assert np.unique(found).tolist() == [k * race_factor for k in range(max(1, bins // race_factor))]


@pytest.mark.parametrize("image", [False, True])
def test_what_the_device_has_is_what_the_host_computes(queue, image):
    given = make(queue, image=image, size=4999)
    assert given.host.bins.dtype == (np.uint8 if image else np.int32)
    for bins, values in given.arrays(("bins", "weights")):
        assert (bins.get() == given.host.bins).all()
        assert (values.get() == weights(4999)).all()
        assert values.offset % 16 == 0, "wide loads"


def test_rows_that_the_device_has_are_what_the_host_computes(queue):
    spec = InputSpec(4999, H, components=3)
    given = Input(queue, spec, weighted=True, cache=1)
    ((_, values),) = given.arrays(("bins", "weights"))
    rows = values.get().reshape(4999, 3)
    for component in range(3):
        assert (rows[:, component] == given.host_of(component).weights).all()
    assert spec.shape == (H, 3)


@pytest.mark.parametrize(
    ("size", "components", "number"), [(1000, 64, 64), (2_000_000, 64, 33), (2**30, 64, 2), (9, 1, 1)]
)
def test_components_that_are_compared(size, components, number):
    found = InputSpec(size, H, components=components).checked_components()
    assert (len(found), found[0], found[-1]) == (number, 0, components - 1)


def test_weights_are_odd_and_keys_differ():
    found = weights(N)
    assert set(np.unique(found)) == set(range(-127, 128, 2))
    assert np.unique(keys(N)).size == N


def test_equal_inputs_take_turns_until_the_cache_is_too_small(queue):
    assert len(make(queue, cache=N).copies) == 1
    several = make(queue, cache=10 * N)
    assert (len(several.copies), several.is_cold) == (5, True), "twice the cache, of 4-byte bins"
    warm = make(queue, cache=10**6 * N)
    assert (len(warm.copies), warm.is_cold) == (64, False)
    first, *others = (array.get() for (array,) in several.arrays(("bins",)))
    assert all((other == first).all() for other in others)
    assert len({copy.base_data.int_ptr for copy in several.copies}) == 5


def test_references_by_brute_force():
    bins = np.random.default_rng(3).integers(0, 40, 500).astype(np.int32)
    bins[bins == 11] = 12
    host = Host(bins, 40)
    of_bin = [np.flatnonzero(bins == k) for k in range(40)]
    w, key = weights(500), keys(500)
    assert OPERATORS["count"].reference(host).tolist() == [len(found) for found in of_bin]
    assert OPERATORS["add"].reference(host).tolist() == [sum(w[found].tolist()) for found in of_bin]
    assert OPERATORS["maximum"].reference(host).tolist() == [max(w[found], default=-np.inf) for found in of_bin]
    best = [int(found[np.argmax(key[found])]) if len(found) else None for found in of_bin]
    none = {"argmax": (-(2**31), 2**31 - 1), "lock": (-(2**31), -1)}
    for name, empty in none.items():
        expected = [empty if k is None else (int(key[k]), k) for k in best]
        assert OPERATORS[name].reference(host).tolist() == expected
    many = Host(np.zeros(SATURATION + 5, np.int8), 2)
    assert OPERATORS["sat"].reference(many).tolist() == [SATURATION, 0]


def test_differences_are_named():
    assert difference(np.array([1.0, 2.0]), np.array([1, 2])) == ""
    assert difference(np.array([1, 3]), np.array([1, 2])) == "bin 1 is 3, expected 2; 1 of 2 bins differ"
    assert difference(np.zeros(2), np.zeros(3)) == "shape (2,), expected (3,)"
    assert "1 of 1 bins" in difference(np.array([np.nan]), np.array([0.0]))


def test_samples():
    samples = Samples((1.0, 4.0, 2.0))
    assert (samples.median, samples.spread) == (2, 1.5)
    assert samples.record() == {"median": 2, "spread": 1.5, "samples": [1, 4, 2]}


@pytest.mark.parametrize(("about", "runs"), [(0.0, 15), (0.1, 5), (10.0, 3)])
def test_the_number_of_runs_depends_on_how_long_one_takes(about, runs):
    assert repeated(lambda: 1.0, about).seconds == (1.0,) * runs


def test_many_calls_are_enqueued_before_one_wait(monkeypatch):
    monkeypatch.setattr("clhist.cli.timing._LOOP_SECONDS", 1000)  # however long the first call takes
    log = []
    found = pipelined(lambda: log.append("call"), lambda last: log.append("finish"))
    first, *loops = " ".join(log).split("finish")[:-1]
    assert first.split() == ["call"]
    assert {len(loop.split()) for loop in loops} == {100}
    assert len(found.whole.seconds) == len(found.host.seconds) == len(loops)
    assert all(host <= whole for host, whole in zip(found.host.seconds, found.whole.seconds, strict=True))


def test_the_read_floor_is_of_the_bytes_that_are_read(queue):
    given, lab = make(queue, cache=10 * N), Lab(queue)
    for names, nbytes in ((("bins",), 4 * N), (("bins", "weights"), 80_128 + 4 * N)):
        assert given.nbytes(names) == nbytes
        assert lab.floor(given, nbytes).median > 0


def test_a_call_that_would_wait_for_itself_is_predicted(queue):
    lab, given = Lab(queue), make(queue)
    choices = {"update": "lock", "memory": "global", "copies": 1}
    plan = lab._plan(given, OPERATORS["lock"], choices)
    assert lab._predicted(given, OPERATORS["lock"], plan, choices) > 0
    free = lab._plan(given, OPERATORS["count"], {"update": "native"})
    assert lab._predicted(given, OPERATORS["count"], free, {}) == 0, "native updates have a bound"


@pytest.mark.parametrize("problem", PROBLEMS.values(), ids=PROBLEMS)
@pytest.mark.parametrize("bins", [1, 9, 200])
def test_every_peer_that_is_installed_is_right(problem, bins, installed):
    bins = problem.num_bins or bins
    for size in (1, 3001):
        arrays = problem.make(size, bins)
        differs = problem.expected(arrays, bins)
        for peer in installed:
            if problem.name in peer.ways:
                result = peer.ways[problem.name](*peer.put(arrays), bins)
                peer.finish(result)
                assert differs(peer.fetch(result), False) == "", peer.name


@pytest.fixture(scope="module")
def installed():
    return peers()


def test_which_peers_there_are(installed):
    names = [peer.name for peer in installed]
    assert {"numpy", "numpy.bincount", "numpy.ufunc.at"} <= set(names)
    assert all(peer.ways.keys() <= PROBLEMS.keys() for peer in installed)
    compiler = any(map(shutil.which, ("cc", "gcc", "clang")))
    assert sum(name.startswith("C, ") for name in names) == 2 * compiler
    every = {name for peer in installed for name in peer.ways}
    assert every >= PROBLEMS.keys() - {"binned_statistic"}, "which SciPy has"


@pytest.mark.parametrize("name", ROW_PROBLEMS)
def test_what_peers_make_of_rows(installed, name):
    problem = row_problem(name, 6)
    arrays = problem.make(3000, 40)
    assert arrays[1].shape == (3000, 6)
    differs, found = problem.expected(arrays, 40), [peer for peer in installed if peer.way(problem)]
    assert found or name == "mean"
    for peer in found:
        result = peer.fetch(peer.way(problem)(*peer.put(arrays), 40))
        assert differs(result, False) == "", peer.name
    assert differs({"": np.zeros((40, 5))}, False) == "result: shape (40, 5), expected (40, 6)"


def test_every_loop_of_c_is_right():
    """The suite takes the fastest of them, whichever that is."""
    library = peer_c._compiled()
    if library is None:
        assert not any(map(shutil.which, ("cc", "gcc", "clang"))), "a compiler, but nothing that it compiled"
        return
    for name in peer_c._LOOPS:
        problem = PROBLEMS[name]
        bins = problem.num_bins or 100
        for size in (1, 8, 3001):
            arrays = problem.make(size, bins)
            differs = problem.expected(arrays, bins)
            for copies in (1, 2, 4, 8, *([peer_c._PAIRS] if name.startswith("image8") else [])):
                loop = peer_c._Loop(library, name, bins, copies, threads=3)
                for _ in range(2):  # with what the first left behind
                    assert differs(fields(loop(*arrays)), True) == "", (name, size, copies)


def test_results_of_functions_are_compared_field_by_field():
    problem, bins = PROBLEMS["group_by"], 50
    arrays = problem.make(2000, bins)
    differs, right = problem.expected(arrays, bins), problem.reference(*arrays, bins)
    assert differs(right, True) == ""
    for name in right:
        wrong = dict(right, **{name: right[name].copy()})
        wrong[name][3] += 1
        assert differs(wrong, True) == f"{name} of bin 3 is {wrong[name][3]}, expected {right[name][3]}; 1 of 50 differ"
    assert differs(dict(right, mean=right["mean"][1:]), True) == "mean: shape (49,), expected (50,)"


def test_calls_take_turns():
    log = []
    calls = {
        name: (lambda name=name: log.append(name), lambda last: log.append("wait"), about)
        for name, about in (("fast", 0.04), ("slow", 1.0))
    }
    found = interleaved(calls)
    assert (len(found["fast"].seconds), len(found["slow"].seconds)) == (12, 5)
    assert log.count("fast") == 12, "neither takes two calls of a turn, nor one before"
    assert all(log[n + 1] == "wait" for n in range(0, len(log), 2))
    first = log.index("slow")
    assert "fast" in log[:first], "not one after the other"
    assert "fast" in log[first:]
    assert interleaved({}) == {}


def test_plots_have_lines_over_bins_and_bars_over_words(tmp_path):
    pytest.importorskip("matplotlib")
    lines = {"Auto": [(31, 2.0), (505, 3.0)], "M = 1": [(505, 4.0), (31, 4.0)], "F": [(31, 1.0), (31, 1.0)]}
    bars = {"device arrays": [("bincount", 3.0)], "NumPy arrays": [("reduce_by_index", 1.0)]}
    panels = {"native": lines, "cas": lines, "lock": lines, "host": bars, "another": lines}
    bench_plot.draw(panels, "title", tmp_path / "plot.svg", "elements")
    text = (tmp_path / "plot.svg").read_text()
    assert all(
        f"<!-- {word} -->" in text
        for word in ("native", "Auto", "M = 1", "bincount", "NumPy arrays", "title", "elements")
    )
