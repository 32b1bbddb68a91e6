"""Pairs of particles by distance, in boxes of all shapes, against all distances of all images."""

from __future__ import annotations

from functools import cache
from itertools import product

import numpy as np
import pyopencl.array as cl_array
import pytest

from clhist.rdf import RDF, counting

BOXES = {
    "cube": np.diag([8.0, 8, 8]),
    "three lengths": np.diag([8.0, 9, 16]),
    "triclinic": np.array([[8.0, 2, -1], [0, 9, 1.5], [0, 0, 10]]),
    "flat": np.diag([8.0, 10, 0]),
}
EDGES = np.arange(13) / 4  # numbers of few bits: distances of halves and quarters lie on them
TYPES = np.array(["C", "H", "O"])


@pytest.fixture(params=["by lanes", "one by one"])
def lanes(request, monkeypatch):
    """Let a CPU look at its particles as GPUs do as well."""
    if request.param == "one by one":
        monkeypatch.setattr(counting, "_lanes", lambda device, dtype: 1)


def drawn(box, number, rng, step=64):
    """Return points in a box and far from it, whose coordinates have few bits."""
    points = np.rint((rng.uniform(-1.5, 1.5, (number, 3)) @ np.where(box.any(axis=1), box, 0).T) * step) / step
    return points * box.any(axis=1)


def all_squares(points, others, box):
    """Return the squares of the distances of all images, one row for each."""
    edges = box + np.diag(~box.any(axis=1) * 1.0)
    found = []
    apart = others[None] - points[:, None]
    apart -= np.rint(apart @ np.linalg.inv(edges).T) @ edges.T  # one of the nearest
    for image in product((-1, 0, 1), repeat=3):
        if box.any(axis=1).all() or not image[2]:
            there = apart + edges @ image
            found.append(np.einsum("ijk,ijk->ij", there, there))  # a sum over three takes several times as long
    return np.array(found)


def counts(squares, wanted=None):
    near = squares < EDGES[-1] ** 2  # few: to sort all into bins takes most of the time; the last edge is of no bin
    return np.histogram(squares[near if wanted is None else near & wanted], EDGES**2)[0]


@cache
def particles_of(name):
    """Return points in a box and the squares of their distances."""
    box = BOXES[name]
    points = drawn(box, 400, np.random.default_rng(20))
    squares = all_squares(points, points, box)
    squares[:, np.arange(400), np.arange(400)] = np.inf  # their own images are further than 3
    return points, squares


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", BOXES)
def test_counts(name, dtype, lanes, rng):
    box, (points, squares) = BOXES[name], particles_of(name)
    rdf = RDF(12, 3.0)
    np.testing.assert_array_equal(rdf.compute((box, points.astype(dtype))).bin_counts, counts(squares))
    kinds, molecules = rng.integers(0, 3, 400), rng.integers(0, 150, 400)
    rdf.compute((box, points.astype(dtype)), types=TYPES[kinds], groups=molecules)
    assert rdf.types == ["C", "H", "O"]
    for a, b in product(range(3), repeat=2):
        wanted = (kinds[:, None] == a) & (kinds == b) & (molecules[:, None] != molecules)
        np.testing.assert_array_equal(rdf.partial_counts[a, b], counts(squares, wanted))


@pytest.mark.parametrize("name", BOXES)
def test_queries(name, lanes, rng):
    box = BOXES[name]
    points, queries = drawn(box, 500, rng), drawn(box, 90, rng)
    squares = all_squares(queries, points, box)
    kinds, of_queries = rng.integers(0, 2, 500), rng.integers(0, 3, 90)
    rdf = RDF(12, 3.0).compute((box, points), queries, types=TYPES[kinds], query_types=TYPES[of_queries])
    np.testing.assert_array_equal(rdf.bin_counts, counts(squares))
    for a, b in product(range(3), repeat=2):
        wanted = (of_queries[:, None] == a) & (kinds == b)
        np.testing.assert_array_equal(rdf.partial_counts[a, b], counts(squares, wanted))
    of = rng.integers(0, 4, 500), rng.integers(0, 4, 90)
    rdf.compute((box, points), queries, groups=of[0], query_groups=of[1])
    np.testing.assert_array_equal(rdf.bin_counts, counts(squares, of[1][:, None] != of[0]))
    rdf.compute((box, points), points[:90], {"exclude_ii": True})
    squares = all_squares(points[:90], points, box)
    np.testing.assert_array_equal(rdf.bin_counts, counts(squares, ~np.eye(90, 500, dtype=bool)))


def test_cells_of_all_numbers(rng):
    """From one cell to many, along each edge: pairs that meet in images, and those of far cells."""
    for length in (6.0, 6.5, 9.0, 12.5, 40.0):
        box = np.diag([length, 6.0, 13.0])
        points = drawn(box, 250, rng)
        squares = all_squares(points, points, box)
        squares[:, np.arange(250), np.arange(250)] = np.inf
        np.testing.assert_array_equal(RDF(12, 3.0).compute((box, points)).bin_counts, counts(squares))


def test_without_a_box(rng):
    points = np.rint(rng.uniform(-20, 20, (700, 3)) * 64) / 64
    squares = ((points[None] - points[:, None]) ** 2).sum(-1)
    np.fill_diagonal(squares, np.inf)
    np.testing.assert_array_equal(RDF(12, 3.0).compute((None, points)).bin_counts, counts(squares))


@pytest.mark.parametrize("number", [0, 1, 2, 17])
def test_few_particles(number, rng):
    points = np.zeros((number, 3), np.float32)
    rdf = RDF(3, 3.0).compute(([8, 8, 8], points))
    assert rdf.bin_counts.tolist() == [number * (number - 1), 0, 0]
    rdf.compute(([8, 8, 8], points), neighbors={"exclude_ii": False})
    assert rdf.bin_counts.tolist() == [number**2, 0, 0]
    assert rdf.rdf.shape == rdf.n_r.shape == rdf.bin_centers.shape == (3,)


def test_frames_are_added_up(queue, rng):
    first, second = (rng.uniform(0, 8, (300, 3)).astype(np.float32) for _ in range(2))
    rdf, of_one = RDF(12, 3.0), RDF(12, 3.0)
    rdf.compute(([8, 8, 8], first)).compute(([8, 8, 8], cl_array.to_device(queue, second)), reset=False)
    expected = of_one.compute(([8, 8, 8], first)).bin_counts + of_one.compute(([8, 8, 8], second)).bin_counts
    np.testing.assert_array_equal(rdf.bin_counts, expected)
    mean = expected / 2
    shells = 4 / 3 * np.pi * np.diff(rdf.bin_edges**3)
    np.testing.assert_allclose(rdf.rdf, mean / 300 / (300 / 512) / shells)
    np.testing.assert_allclose(rdf.n_r, np.cumsum(mean) / 300)
    rdf.mode = "finite_size"
    np.testing.assert_allclose(rdf.rdf, mean / 299 / (300 / 512) / shells)
    with pytest.raises(ValueError, match=r"^reset: expected True"):
        rdf.compute(([8, 8, 8], first), reset=False, types=np.arange(300) % 2)


def test_positions_that_are_no_numbers_on_a_device(queue):
    points = np.array([[1, 1, 1], [np.nan, 1, 1], [1, 1, 1.5], [np.inf, 0, 0]], np.float32)
    rdf = RDF(3, 3.0).compute(([8, 8, 8], cl_array.to_device(queue, points)))
    assert rdf.bin_counts.tolist() == [2, 0, 0]


BOX = [5, 8, 8]
WRONG = {
    "box: expected edges that span a volume": lambda r, p: r.compute(([8, 8, np.nan], p)),
    "box: expected lengths that are not negative, got \\[-8": lambda r, p: r.compute(([-8, 8, 8], p)),
    "box: expected 3 lengths": lambda r, p: r.compute(([8, 8, 8, 8], p)),
    "box: expected lengths": lambda r, p: r.compute((["a", 8, 8], p)),
    "r_max: expected at most half the distance of opposite faces of the box, 2.5": lambda r, p: r.compute(
        ([5, 8, 8], p)
    ),
    r"points: expected shape \(N, 3\)": lambda r, p: r.compute(([8, 8, 8], p[:, :2])),
    "points: expected finite": lambda r, p: r.compute(([8, 8, 8], p * np.nan)),
    "points: expected an array of real numbers": lambda r, p: r.compute(([8, 8, 8], p * 1j)),
    "system: expected a tuple": lambda r, p: r.compute(p),
    "query_types: expected none": lambda r, p: r.compute(([8, 8, 8], p), query_types=[1]),
    r"types: expected shape \(9,\)": lambda r, p: r.compute(([8, 8, 8], p), types=[1]),
    "query_types: expected labels": lambda r, p: r.compute(([8, 8, 8], p), p, types=np.arange(9)),
    "neighbors: expected a dict": lambda r, p: r.compute(([8, 8, 8], p), neighbors={"num_neighbors": 3}),
    "neighbors: expected the r_max": lambda r, p: r.compute(([8, 8, 8], p), neighbors={"r_max": 2.0}),
    "bins: expected": lambda r, p: RDF(0, 3.0),
    "r_max: expected 0 <= r_min < r_max": lambda r, p: RDF(3, 3.0, 3.0),
    "r_min: expected a number": lambda r, p: RDF(3, 3.0, "0"),
    "normalization_mode: expected one of": lambda r, p: RDF(3, 3.0, normalization_mode="none"),
}


@pytest.mark.parametrize("message", WRONG)
def test_wrong_arguments(message, rng):
    points = rng.uniform(0, 8, (9, 3))
    rdf = RDF(3, 3.0).compute(([8, 8, 8], points))
    before = rdf.bin_counts
    with pytest.raises((TypeError, ValueError), match=f"^{message}"):
        WRONG[message](rdf, points)
    np.testing.assert_array_equal(rdf.bin_counts, before)
    with pytest.raises(AttributeError, match="nothing has been counted yet"):
        _ = RDF(3, 3.0).bin_counts


@pytest.mark.parametrize("name", BOXES)
def test_positions_are_moved_into_the_box_before_they_are_rounded(name, rng):
    """On a device without double precision, far from the box."""
    box = BOXES[name]
    points = rng.uniform(-0.5, 0.5, (300, 3)) @ box.T
    found = []
    for positions in (points, points + np.array([1000, -500, 2000]) @ box.T):
        counter = counting.PairCounter(12, 0.0, 3.0, dtype=np.dtype(np.float32))
        counter.add(counting.box_within(box, 3.0), counting.Particles(positions))
        found.append(counter.counts()[0, 0])
    assert np.abs(found[0] - found[1]).sum() <= 4  # ordered pairs that rounding moves to the next bin


HALVES = {
    "cube": (np.diag([8.0, 8, 8]), 4.0),
    "shortest edge": (np.diag([8.0, 9, 16]), 4.0),
    "tilted": (np.array([[8.0, 2, 0], [0, 8, 0], [0, 0, 6]]), 3.0),
    "tilted along the shortest": (np.array([[8.0, 0, 3], [0, 8, 0], [0, 0, 6]]), 3.0),
    "flat": (np.diag([8.0, 10, 0]), 4.0),
}


@cache
def halves_of(name):
    """Return points, queries, and the squares of the least distances to the points of the points and the queries."""
    box, rng = HALVES[name][0], np.random.default_rng(20)
    grid = np.stack(np.meshgrid(*[np.arange(8.0)] * 3), -1).reshape(-1, 3) * box.any(axis=1)
    points = np.unique(grid, axis=0)
    queries = np.concatenate([points[rng.permutation(len(points))[:50]], rng.integers(0, 16, (50, 3)) / 2])
    queries *= box.any(axis=1)
    nearest = all_squares(points, points, box).min(axis=0)
    np.fill_diagonal(nearest, np.inf)
    return points, queries, nearest, all_squares(queries, points, box).min(axis=0)


@pytest.mark.parametrize(("dtype", "typed"), [(np.float32, True), (np.float64, False)])
@pytest.mark.parametrize("name", HALVES)
def test_pairs_half_a_period_apart_count_once(name, dtype, typed, rng):
    """The end of the last bin belongs to it, as in MDAnalysis: a pair is met in two images there."""
    box, r_max = HALVES[name]
    points, queries, of_points, of_queries = halves_of(name)
    types = rng.integers(0, 2, len(points)) if typed else None
    for others, nearest in ((None, of_points), (queries, of_queries)):
        of = points if others is None else others
        edges = np.linspace(0, r_max, 9)
        expected = np.histogram(np.sqrt(nearest), np.append(edges[:-1], np.nextafter(r_max, np.inf)))[0]
        options = {"types": 2, "dtype": np.dtype(dtype)} if typed else {"dtype": np.dtype(dtype)}
        counter = counting.PairCounter(8, 0.0, r_max, same=others is None, closed=True, **options)
        labels = None if types is None else types.astype(np.int32)
        labels_of_queries = None if labels is None else np.zeros(len(of), np.int32)
        given = None if others is None else counting.Particles(others.astype(dtype), labels_of_queries)
        counter.add(counting.box_within(box, r_max), counting.Particles(points.astype(dtype), labels), given)
        np.testing.assert_array_equal(counter.counts().sum(axis=(0, 1)), expected)


def test_labels_of_other_numbers_are_refused():
    counter = counting.PairCounter(4, 0.0, 1.0, excludes=True, dtype=np.dtype(np.float64))
    particles = counting.Particles(np.zeros((5, 3)), None, np.zeros(4, np.int32))
    with pytest.raises(ValueError, match="expected one label for each of 5 positions, got 4"):
        counter.add(counting.box_within([4, 4, 4], 1.0), particles)
