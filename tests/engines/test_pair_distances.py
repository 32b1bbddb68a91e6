"""Radial distribution functions as freud and MDAnalysis have them, on real trajectories, and MDAnalysis' own tests."""

from __future__ import annotations

import freud
import MDAnalysis
import numpy as np
import pytest
from MDAnalysis.analysis import rdf as theirs
from MDAnalysisTests import datafiles
from peers import run_tests

from clhist.rdf import RDF, InterRDF

PLUGIN = """
import clhist.rdf


def is_serial(item):  # in processes of its own OpenCL would be forked
    client = getattr(item, "callspec", None) and item.callspec.params.get("client_InterRDF")
    return not client or client.get("backend", "serial") == "serial"


def pytest_collection_modifyitems(items):
    items[:] = filter(is_serial, items)
    for item in items:
        item.module.InterRDF = clhist.rdf.InterRDF
"""
BOXES = {"cube": (10, 10, 10), "triclinic": (10, 12, 9, 0.2, -0.1, 0.3), "flat": (10, 8, 0)}


@pytest.mark.parametrize("mode", ["exact", "finite_size"])
@pytest.mark.parametrize("name", BOXES)
def test_freud(name, mode, rng):
    box = freud.box.Box(*BOXES[name])
    points = box.make_absolute(rng.random((3000, 3)).astype(np.float32))
    points[:, 2] *= not box.is2D
    queries = {"query_points": points[:700], "neighbors": {"mode": "ball", "r_max": 3.5, "exclude_ii": True}}
    for options in ({}, *([queries] if mode == "exact" else [])):
        ours, peer = (cls(60, 3.5, normalization_mode=mode) for cls in (RDF, freud.density.RDF))
        for k in range(2):
            for each in (ours, peer):
                each.compute((box, points), reset=k == 0, **options)
        # Of distances that are rounded to an edge of a bin.
        assert abs(ours.bin_counts - peer.bin_counts).sum() <= 2e-4 * ours.bin_counts.sum()
        np.testing.assert_allclose(ours.rdf, peer.rdf, atol=2e-3)
        np.testing.assert_allclose(ours.n_r, peer.n_r, atol=4e-3)
        np.testing.assert_allclose(ours.bin_edges, peer.bin_edges, rtol=1e-6)
        np.testing.assert_allclose(ours.bin_centers, peer.bin_centers, rtol=1e-6)


@pytest.fixture(scope="module")
def universe():
    return MDAnalysis.Universe(datafiles.GRO, datafiles.XTC)  # a protein in water, in a triclinic box


CASES = {
    "water": ("name OW", "name OW", {"range": (0, 6)}),
    "water, without itself": ("name OW", "name OW", {"range": (0, 6), "exclusion_block": (1, 1)}),
    "protein and water": ("name CA", "name OW", {"range": (1, 8), "nbins": 40, "norm": "density"}),
    "hydrogens": ("name HW1 HW2", "name HW1 HW2", {"range": (0, 4), "exclude_same": "residue", "norm": "none"}),
    "some of the others": ("protein", "name CA", {"range": (0, 7)}),
    "blocks of two sizes": ("name HW1 HW2", "name OW", {"range": (0, 4), "exclusion_block": (2, 1)}),
}


@pytest.mark.parametrize("name", CASES)
def test_mdanalysis(name, universe):
    first, second, options = CASES[name]
    groups = universe.select_atoms(first), universe.select_atoms(second)
    ours, peer = (cls(*groups, **options).run(stop=2) for cls in (InterRDF, theirs.InterRDF))
    # Their distances are of coordinates that are wrapped in float32.
    assert abs(ours.results.count - peer.results.count).sum() <= 5e-5 * peer.results.count.sum()
    np.testing.assert_allclose(ours.results.rdf, peer.results.rdf, rtol=1e-3, atol=1e-3 * peer.results.rdf.max())
    np.testing.assert_array_equal(ours.results.bins, peer.results.bins)


@pytest.mark.parametrize(
    ("second", "options"),
    [
        (None, {}),
        (None, {"exclusion_block": (1, 1)}),
        ("protein", {"exclude_same": "residue"}),
        ("name OW", {"exclude_same": "residue"}),
    ],
)
def test_updating_groups(second, options, universe):
    """Which atoms are near, and how many, differs from frame to frame."""
    first = universe.select_atoms("name OW and around 4 protein", updating=True)
    groups = first, first if second is None else universe.select_atoms(second)[:500]
    ours, peer = (cls(*groups, range=(0, 6), **options).run(stop=4) for cls in (InterRDF, theirs.InterRDF))
    assert abs(ours.results.count - peer.results.count).sum() <= 5e-5 * peer.results.count.sum()
    np.testing.assert_allclose(ours.results.rdf, peer.results.rdf, rtol=1e-3, atol=1e-3 * peer.results.rdf.max())


@pytest.mark.parametrize("options", [{"range": (3, 4), "nbins": 4}, {"range": (0, 4), "nbins": 8}])
def test_pairs_half_a_box_apart(options):
    lattice = MDAnalysis.Universe.empty(512, trajectory=True)
    lattice.atoms.positions = np.indices((8, 8, 8)).reshape(3, -1).T
    lattice.dimensions = [8, 8, 8, 90, 90, 90]
    for groups in ((lattice.atoms, lattice.atoms), (lattice.atoms, lattice.atoms[:100])):
        ours, peer = (cls(*groups, **options).run() for cls in (InterRDF, theirs.InterRDF))
        np.testing.assert_array_equal(ours.results.count, peer.results.count)


def test_too_far(universe):
    water = universe.select_atoms("name OW")[:100]
    with pytest.raises(ValueError, match=r"^range: expected at most half the distance of opposite faces"):
        InterRDF(water, water, range=(0, 60)).run(stop=1)


def test_frames_of_mdanalysis(universe):
    water = universe.select_atoms("name OW")
    universe.trajectory[0]
    rdf = RDF(50, 8.0).compute((universe.trajectory.ts.triclinic_dimensions, water.positions))
    counts = InterRDF(water, water, nbins=50, range=(0, 8), exclusion_block=(1, 1)).run(stop=1).results.count
    assert abs(rdf.bin_counts - counts).sum() <= 2e-4 * counts.sum()


def test_its_own_tests():
    # Four distances are 1, an edge of bins; theirs come out a little less.
    different = ["test_norm[client_InterRDF2-density", "test_norm[client_InterRDF2-rdf"]
    assert run_tests(PLUGIN, "--pyargs", "MDAnalysisTests.analysis.test_rdf", different=different)["passed"] >= 10
