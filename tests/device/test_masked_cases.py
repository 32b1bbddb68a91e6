"""Masked elements in what the case studies and `clhist.rdf` take: skipped, or refused by the argument's name."""

from __future__ import annotations

import numpy as np
import pytest

from clhist.cases import (
    angular_correlation,
    find_neighbours,
    histo,
    image_histogram,
    joint_histogram,
    kmeans,
    mutual_information,
    nonbonded_forces,
    pair_counts,
)
from clhist.cases.gromacs_data import NonbondedInput
from clhist.cases.water import water_box
from clhist.rdf import RDF

pytestmark = pytest.mark.usefixtures("without_optimizer")

GREY = np.arange(48, dtype=np.uint8).reshape(6, 8)
POINTS = np.random.default_rng(0).random((20, 3))
SKY = POINTS[:, :2] * 80
BOX = np.ones(3)


def masked(array):
    """Return an array of which one element is masked."""
    mask = np.zeros(array.shape, bool)
    mask.flat[1] = True
    return np.ma.masked_array(array, mask)


def with_masked_field(name):
    data = water_box(40, 0.4)
    arrays = {field: getattr(data, field) for field in NonbondedInput.__dataclass_fields__}
    return nonbonded_forces(NonbondedInput(**arrays | {name: masked(arrays[name])}))


CALLS = {
    "image": lambda: image_histogram(masked(GREY)),
    "fixed": lambda: joint_histogram(masked(GREY), GREY),
    "moving": lambda: joint_histogram(GREY, masked(GREY)),
    "joint": lambda: mutual_information(masked(np.ones((4, 4)))),
    "points": lambda: kmeans(masked(POINTS), 2),
    "init": lambda: kmeans(POINTS, 2, init=masked(POINTS[:2])),
    "a": lambda: pair_counts(masked(SKY)),
    "b": lambda: pair_counts(SKY, masked(SKY)),
    "edges": lambda: pair_counts(SKY, edges=masked(np.array([1.0, 2, 3]))),
    "data": lambda: angular_correlation(masked(SKY), SKY),
    r"random\[1\]": lambda: angular_correlation(SKY, [SKY, masked(SKY)]),
    "positions": lambda: find_neighbours(masked(POINTS), BOX, 0.3, np.arange(20)),
    "molecule": lambda: find_neighbours(POINTS, BOX, 0.3, masked(np.arange(20))),
    "pos": lambda: with_masked_field("pos"),
    "charge": lambda: with_masked_field("charge"),
    "jjnr": lambda: with_masked_field("jjnr"),
    "query_points": lambda: RDF(5, 0.4).compute((BOX, POINTS), masked(POINTS)),
    "types": lambda: RDF(5, 0.4).compute((BOX, POINTS), types=masked(np.arange(20))),
    "box": lambda: RDF(5, 0.4).compute((masked(BOX), POINTS)),
}


@pytest.mark.parametrize("name", CALLS)
def test_masked_elements_are_refused_by_name(name):
    with pytest.raises(ValueError, match=f"^{name}: expected .*(masked|missing) elements"):
        CALLS[name]()


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int16])
def test_histo_skips_masked_points(dtype):
    rng = np.random.default_rng(1)
    x, y = rng.integers(-500, 500, (2, 3000)).astype(dtype)
    x[:10], y[10:20] = 30_000, -30_000  # hidden by the masks: they would set the range
    hidden = (np.arange(3000) < 10) | (rng.random(3000) < 0.2), (np.abs(np.arange(3000) - 15) <= 5)
    counts, *edges = histo(np.ma.masked_array(x, hidden[0]), np.ma.masked_array(y, hidden[1]), 16)
    present = ~(hidden[0] | hidden[1])
    expected = np.histogram2d(x[present], y[present], 16)
    np.testing.assert_array_equal(counts, np.minimum(expected[0], 255))
    np.testing.assert_array_equal(edges, expected[1:])
    np.testing.assert_array_equal(histo(np.ma.masked_array(x, hidden[0]), x, 16)[0].sum(), (~hidden[0]).sum())


def test_arrays_without_masked_elements_are_taken():
    whole = np.ma.masked_array(GREY, np.zeros(GREY.shape, bool))
    np.testing.assert_array_equal(image_histogram(whole), np.bincount(GREY.ravel(), minlength=256))


def test_missing_elements_of_tables():
    """Those of pandas are skipped or refused as masked ones are; columns without any are arrays."""
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    rng = np.random.default_rng(2)
    x, y = rng.integers(0, 90, (2, 3000))
    present = rng.random(3000) < 0.8
    column = pandas.Series(x, dtype="Int16").where(present)
    counts, *_ = histo(column, pandas.Series(y), 16)
    expected = np.histogram2d(x[present], y[present], 16)
    np.testing.assert_array_equal(counts, np.minimum(expected[0], 255))
    table = pandas.DataFrame(POINTS, columns=["x", "y", "z"])
    np.testing.assert_array_equal(kmeans(table, 2, seed=0).labels, kmeans(POINTS, 2, seed=0).labels)
    table = table.convert_dtypes()
    table.iloc[1, 1] = pandas.NA
    with pytest.raises(ValueError, match=r"^points: expected an array without missing elements, got 1"):
        kmeans(table, 2)
    with pytest.raises(ValueError, match=r"^joint: expected an array without missing elements, got 1"):
        mutual_information(table)
