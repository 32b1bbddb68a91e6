"""The gromacs case: the fused histogram against the float64 loop."""

import math
from dataclasses import replace

import numpy as np
import pyopencl.array as cl_array
import pytest

from clhist.cases.gromacs import PairList, nonbonded_forces
from clhist.cases.gromacs_data import pair_forces, reference_forces
from clhist.cases.water import water_box
from clhist.cli.cases.gromacs_table import compare, missing_atomics

pytestmark = pytest.mark.usefixtures("with_optimizer")

EPS = float(np.finfo(np.float32).eps)


@pytest.fixture(scope="module")
def box():
    return water_box(num_molecules=500, cutoff=0.6)


def scaled(box, factor):
    return replace(box, pos=box.pos * np.float32(factor), shiftvec=box.shiftvec * np.float32(factor))


def moved(box, distance):
    return replace(box, pos=box.pos + np.float32(distance))


@pytest.mark.parametrize(
    "data",
    [
        lambda box: box,
        lambda box: scaled(box, 2**20),
        lambda box: scaled(box, 0.5),
        lambda box: moved(box, 1024.0),
        lambda box: replace(box, shiftvec=np.where(box.shiftvec, np.float32(1e30), 0)),
    ],
)
def test_the_verdict_fails_for_wrong_forces_wherever_the_particles_are(data, box):
    data = data(box)
    reference, forces = reference_forces(data), nonbonded_forces(data)
    error = compare(forces, data, reference)["float64 reference"]
    assert error["value"] <= error["tolerance"] == 256 * EPS
    largest = np.unravel_index(np.abs(reference.forces).argmax(), forces.shape)
    for wrong in (1.001, 0, -1, np.inf, np.nan):
        corrupted = forces.copy()
        corrupted[largest] *= np.float32(wrong)
        assert not compare(corrupted, data, reference)["float64 reference"]["value"] <= error["tolerance"]


@pytest.mark.parametrize("update", [None, "private", "cas", "lock"])
@pytest.mark.parametrize("memory", ["local", "global"])
def test_forces_are_those_of_the_loop(box, update, memory):
    forces = nonbonded_forces(box, update=update, memory=memory, race_factor=20.0)
    reference = reference_forces(box)
    assert forces.shape == (1500, 3)
    assert forces.dtype == np.float32
    assert (np.abs(forces - reference.forces) <= 256 * EPS * reference.magnitude).all()


def test_forces_are_added_to_what_was_there(box):
    data = water_box(num_molecules=500, cutoff=0.6)
    object.__setattr__(data, "faction", np.full((1500, 3), 7, np.float32))
    difference = nonbonded_forces(data) - nonbonded_forces(box)
    assert np.abs(difference - 7).max() <= 256 * EPS * reference_forces(data).magnitude.max()


def test_a_box_without_pairs_keeps_its_forces():
    alone = water_box(num_molecules=500, cutoff=1e-3)
    assert alone.num_pairs == 0
    assert (nonbonded_forces(alone) == alone.faction).all()


def test_only_the_forces_are_as_large_as_the_particles(box):
    plan = PairList.upload(box).bind().plan
    assert plan.num_bins == 3 * box.num_particles
    assert plan.num_elements == box.num_pairs


@pytest.mark.parametrize("race_factor", [1.0, "sample", "sample once"])
@pytest.mark.parametrize("update", ["native", "cas", None])
def test_each_of_the_papers_scenarios(box, update, race_factor):
    pairs = PairList.upload(box)
    if update == "native" and missing_atomics(pairs):
        with pytest.raises(ValueError, match="'native' is not available for add on float32"):
            pairs.forces(update=update, race_factor=race_factor)
        return
    reference = reference_forces(box)
    for options in ({"race_factor": race_factor}, {"memory": "global", "copies": 1, "passes": 1}):
        forces = pairs.forces(update=update, **options).get().reshape(-1, 3)
        assert (np.abs(forces - reference.forces) <= 256 * EPS * reference.magnitude).all()


def test_exact_forces_are_the_same_bits_by_any_plan_and_in_any_order(box, rng):
    pairs, terms = PairList.upload(box), pair_forces(box, np.arange(box.num_pairs))
    bins = 3 * np.stack([box.iinr[box.owner], box.jjnr])[..., None] + np.arange(3)
    groups = np.split(np.stack([terms, -terms]).ravel()[np.argsort(bins, None)], np.cumsum(np.bincount(bins.ravel())))
    expected = np.array([*map(math.fsum, groups[:-1])], np.float32)
    order = rng.permutation(box.num_pairs)
    shuffled = [cl_array.to_device(pairs.queue, array[order]) for array in (box.owner, box.jjnr)]
    pairs = replace(pairs, arguments=(*shuffled, *pairs.arguments[2:]))
    for options in ({}, {"memory": "global", "copies": 1, "update": "lock"}, {"memory": "local", "passes": 3}):
        forces = pairs.forces(reproducible=True, **options)
        np.testing.assert_array_equal(forces.get().view(np.int32), expected.view(np.int32))


def test_partners_are_both_sides_of_the_pairs(box):
    partners = PairList.upload(box).partners().get()
    assert partners.dtype == np.int32
    both = np.concatenate([box.iinr[box.owner], box.jjnr])
    np.testing.assert_array_equal(partners, np.bincount(both, minlength=box.num_particles))


def test_race_factor_is_that_of_the_map(box):
    # Windows of as many pairs as emit H updates; each pair updates all three components of both particles.
    i, j = box.iinr[box.owner], box.jjnr
    length = 3 * box.num_particles // 6
    starts = np.linspace(0, box.num_pairs - length, 16).astype(int)
    distinct = sum(3 * len({*i[k : k + length].tolist(), *j[k : k + length].tolist()}) for k in starts)
    assert PairList.upload(box).race_factor().value == 16 * 6 * length / distinct
