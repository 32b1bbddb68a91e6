"""Pairs found on the device against all pairs in all images, by NumPy in float64."""

from collections import Counter

import numpy as np
import pyopencl.array as cl_array
import pytest

import clhist
from clhist.cases.gromacs import nonbonded_forces, structure_pairs
from clhist.cases.gromacs_data import reference_forces
from clhist.cases.neighbours import find_neighbours
from clhist.cases.water import water_structure

EPS = 2.0**-23


def pairs_of(found):
    """Each pair (i, j, shift), as seen from the lower of the two, with how often it is there."""
    row = found.owner.get()
    i, shift, j = found.particle.get()[row], found.shift.get()[row], found.neighbour.get()
    swap = i > j
    i, j, shift = np.where(swap, j, i), np.where(swap, i, j), np.where(swap, 26 - shift, shift)
    return Counter(zip(i.tolist(), j.tolist(), shift.tolist(), strict=True))


def distances(found, molecule):
    """The pairs (i, j, shift), i < j, of different molecules, and their distances."""
    at, shifts = found.position.get().astype(float), found.shift_vector.get().astype(float)
    i, j = np.triu_indices(len(at), 1)
    other = molecule[i] != molecule[j]
    i, j = i[other], j[other]
    pairs = np.stack([np.repeat(i, 27), np.repeat(j, 27), np.tile(np.arange(27), len(i))], axis=1)
    return pairs, np.linalg.norm(at[i, None] + shifts - at[j, None], axis=2).ravel()


def check(positions, box, cutoff, molecule=None):
    molecule = np.arange(len(positions)) if molecule is None else molecule
    found = find_neighbours(positions, box, cutoff, molecule)
    at, edges = found.position.get(), np.asarray(box, float)
    # In the box, and where they were but for whole edges. Rounded are the position itself, the edge, its multiple, and
    # their difference; a position beyond the border by the rounding of the quotient is moved onto it.
    assert ((at >= 0) & (at <= edges.astype(np.float32))).all()
    moved = (at - positions) / edges
    reach = np.abs(positions).max(initial=0) + edges.max()
    assert np.abs(moved - np.rint(moved)).max() * edges.max() <= 4 * EPS * reach * edges.max() / edges.min()
    # A particle's sum with an edge is rounded by at most L * eps in each of three components, the difference to the
    # other by half an eps, the squares by 3/2 eps of the cut-off, which is at most L / 2.
    rounding = 4 * EPS * edges.max()
    pairs, distance = distances(found, molecule)
    got = pairs_of(found)
    assert set(got.values()) <= {1}
    must = set(map(tuple, pairs[distance < cutoff - rounding].tolist()))
    may = set(map(tuple, pairs[distance < cutoff + rounding].tolist()))
    assert must <= set(got) <= may
    starts = found.row_start.get()
    np.testing.assert_array_equal(np.repeat(np.arange(len(starts) - 1), np.diff(starts)), found.owner.get())
    assert found.shift_vector.get()[13].tolist() == [0, 0, 0]
    return got


@pytest.mark.parametrize(
    ("n", "box", "cutoff"),
    [
        (1, (1, 1, 1), 0.5),
        (2, (1, 1, 1), 0.5),
        (50, (1, 1, 1), 0.5),  # one cell
        (50, (1, 1, 1), 0.499),  # two
        (60, (1, 1, 1), 0.26),
        (60, (1.3, 2.9, 0.7), 0.35),
        (90, (20, 0.5, 0.5), 0.25),  # a tube
        (90, (0.6, 7, 9), 0.3),  # a slab
        (80, (3, 3, 3), 0.2),
        (300, (1, 1, 1), 0.2221),  # 64 cells, all of them needed
        (40, (1000, 1000, 1000), 0.01),  # far fewer particles than cells
        (40, (1000, 1000, 1000), 400.0),
        (100, (0.5, 0.5, 0.5), 1e-3),
    ],
)
@pytest.mark.parametrize("seed", [0, 1])
def test_random_boxes(n, box, cutoff, seed):
    rng = np.random.default_rng(seed)
    check(rng.uniform(0, 1, (n, 3)) * box, box, cutoff, rng.integers(0, n, n))
    check(rng.uniform(-3, 3, (n, 3)) * box, box, cutoff)  # out of the box


def test_a_grid_is_exact():
    # All numbers are exact in float32, so a pair at the cut-off is none, and one at half the box is met once or not.
    steps = np.arange(6) / 4
    grid = np.stack(np.meshgrid(steps, steps, steps, indexing="ij"), axis=-1).reshape(-1, 3)
    for cutoff, neighbours in ((0.25, 0), (0.251, 6), (0.36, 18), (0.5, 26), (0.501, 32)):
        assert len(check(grid, (1.5, 1.5, 1.5), cutoff)) == 216 * neighbours // 2


@pytest.mark.parametrize("cutoff", [0.5, 0.25, 0.2, 0.1])
def test_particles_at_the_borders_of_cells_and_of_the_box(cutoff):
    rng = np.random.default_rng(5)
    borders = np.arange(0, 1 + cutoff / 2, cutoff)
    at = np.concatenate([borders, np.nextafter(borders, -1), np.nextafter(np.float32(borders), np.float32(2)), [-1e-9]])
    check(rng.choice(at, (120, 3)), (1, 1, 1), cutoff)


def test_multiples_of_the_edges():
    edges = np.float32([0.7, 1.3, 2.9])
    multiples = np.arange(-8, 9, dtype=np.float32)[:, None] * edges
    at = np.concatenate([multiples, *(np.nextafter(multiples, np.float32(to)) for to in (-9, 0, 9))])
    check(at, edges, 0.3)


def test_all_in_one_place_or_cell():
    assert len(check(np.full((30, 3), 0.7), (3, 3, 3), 0.5)) == 30 * 29 // 2
    assert not check(np.full((30, 3), 0.7), (3, 3, 3), 0.5, np.zeros(30, int))
    rng = np.random.default_rng(6)
    assert len(check(rng.uniform(1, 1.1, (40, 3)), (9, 9, 9), 1.0)) == 40 * 39 // 2


def test_water_in_order_and_every_time_the_same():
    water = water_structure(200, seed=2)
    first, second = (find_neighbours(water.positions, water.box, 0.6, water.molecule) for _ in range(2))
    assert len(check(water.positions, water.box, 0.6, water.molecule)) == first.neighbour.size > 10_000
    for name in ("owner", "neighbour", "row_start", "particle", "shift"):
        np.testing.assert_array_equal(getattr(first, name).get(), getattr(second, name).get())
    one_cell = find_neighbours(water.positions, water.box, water.box[0] / 2, water.molecule)
    assert one_cell.particle.get()[:600].tolist() == list(range(600)), "chance has no part in the order"
    rows = np.diff(first.row_start.get())
    per_particle = np.bincount(first.particle.get(), weights=rows)
    assert per_particle.max() <= 2 * per_particle.mean(), "rows are of about equal length"


def test_arrays_of_the_device(queue, out_of_order_queue):
    water = water_structure(50, seed=1)
    expected = pairs_of(find_neighbours(water.positions.astype(np.float32), water.box, 0.4, water.molecule))
    for dtype in (np.float32, np.float64) if queue.device.double_fp_config else (np.float32,):
        at = cl_array.to_device(queue, water.positions.astype(dtype))
        molecule = cl_array.to_device(queue, np.append(7, water.molecule).astype(np.int32))[1:]
        found = find_neighbours(at, water.box, 0.4, molecule)
        assert found.neighbour.queue == queue
        assert pairs_of(found) == expected


def test_a_structure_far_from_the_box_has_the_same_pairs(queue):
    water = water_structure(100, seed=2)
    expected = pairs_of(find_neighbours(water.positions, water.box, 0.5, water.molecule))
    for steps in ((1000, -999, 5000), (-(10**6), 10**6, 3)):
        far = water.positions + np.array(steps) * water.box
        for positions in (far, cl_array.to_device(queue, far)):
            found = find_neighbours(positions, water.box, 0.5, water.molecule)
            assert np.abs(found.position.get() - water.positions % water.box).max() <= 0.6 * EPS
            difference = (pairs_of(found) - expected) + (expected - pairs_of(found))
            assert sum(difference.values()) <= 2  # at the cut-off, or the border of the box


@pytest.mark.parametrize("dtype", [np.int64, np.uint64, np.uint32, np.int32, np.uint8])
def test_molecules_are_told_apart_by_all_their_bits(dtype, queue):
    points = np.random.default_rng(0).random((40, 3))
    info = np.iinfo(dtype)
    largest = int(info.max)
    labels = np.array([0, 2 ** min(32, info.bits - 2), largest, int(info.min) or 1, largest // 2 + 1], dtype)
    molecule = labels[np.arange(40) % 5]
    which = np.unique(molecule, return_inverse=True)[1].astype(np.int32)
    expected = pairs_of(find_neighbours(points, (1, 1, 1), 0.4, which))
    for given in (molecule, cl_array.to_device(queue, molecule)):
        assert pairs_of(find_neighbours(points, (1, 1, 1), 0.4, given)) == expected


def test_what_is_not_a_number_has_no_neighbours(queue):
    at = np.float32([[0.1, 0.1, 0.1], [np.nan, 0.1, 0.1], [0.1, np.inf, 0.1], [0.2, 0.1, 0.1]])
    found = find_neighbours(cl_array.to_device(queue, at), (1, 1, 1), 0.5, np.arange(4))
    assert pairs_of(found) == {(0, 3, 13): 1}


POINTS, BOX, OWN = np.zeros((4, 3)), (1.0, 2.0, 3.0), np.arange(4)


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ((POINTS.astype(int), BOX, 0.5, OWN), TypeError, "positions: expected an array of floats, got dtype"),
        ((POINTS.tolist(), BOX, 0.5, OWN), TypeError, "positions: expected an array of floats"),
        ((POINTS[:, :2], BOX, 0.5, OWN), ValueError, r"positions: expected shape \(n, 3\).* got \(4, 2\)"),
        ((POINTS[:0], BOX, 0.5, OWN[:0]), ValueError, "positions: expected shape"),
        ((np.full((4, 3), np.nan), BOX, 0.5, OWN), ValueError, "positions: expected finite"),
        ((POINTS, (1, 2), 0.5, OWN), ValueError, "box: expected three positive edges"),
        ((POINTS, (1, 2, 0), 0.5, OWN), ValueError, "box: expected three positive edges"),
        ((POINTS, (1, 2, np.inf), 0.5, OWN), ValueError, "box: expected three positive edges"),
        ((POINTS, BOX, 0.51, OWN), ValueError, "cutoff: .* at most half the shortest edge, 0.5 nm, got 0.51"),
        ((POINTS, BOX, 0.0, OWN), ValueError, "cutoff: expected more than 0"),
        ((POINTS, BOX, np.nan, OWN), ValueError, "cutoff: expected more than 0"),
        ((POINTS, BOX, 0.5, OWN[:3]), ValueError, r"molecule: expected shape \(4,\)"),
        ((POINTS, BOX, 0.5, OWN / 2), TypeError, "molecule: expected an array of integers"),
    ],
)
def test_bad_arguments_are_named(arguments, error, text):
    with pytest.raises(error, match=f"^{text}"):
        find_neighbours(*arguments)


def test_forces_of_a_structure():
    water = water_structure(300, seed=4)
    data = structure_pairs(water, 0.7, queue=clhist.default_queue())
    assert data.faction.shape == (900, 3)
    assert (np.diff(data.jindex) > 0).all(), "rows without pairs are left out"
    reference = reference_forces(data)
    assert (np.abs(nonbonded_forces(data) - reference.forces) <= 256 * EPS * reference.magnitude).all()
    # The same from the minimum image of each pair, without lists or shifts.
    at, charge = water.positions, data.charge.astype(float)
    c6, c12 = data.nbfp.astype(float).reshape(data.ntype, data.ntype, 2)[data.types[:, None], data.types].T
    d = at[:, None] - at
    d -= water.box * np.rint(d / water.box)
    r = np.linalg.norm(d, axis=-1)
    r[(r >= 0.7) | (water.molecule[:, None] == water.molecule)] = np.inf
    strength = (12 * c12 / r**12 - 6 * c6 / r**6 + float(data.facel) * charge[:, None] * charge / r) / r**2
    forces = (np.where(np.isfinite(r), strength, 0)[..., None] * np.where(np.isfinite(r)[..., None], d, 0)).sum(axis=1)
    assert (np.abs(reference.forces - forces) <= 256 * EPS * reference.magnitude).all()
