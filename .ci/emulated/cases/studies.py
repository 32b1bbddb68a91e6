"""The case studies at a tiny size, and the reproducible sums of which every device has the same bits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyopencl as cl

from clhist.cases.gromacs import nonbonded_forces
from clhist.cases.gromacs_data import reference_forces
from clhist.cases.kmeans import blobs, kmeans
from clhist.cases.water import water_box
from clhist.rdf import RDF
from clhist.selftest import digests
from emulated.cases.case import Action, Case, same, words_of

_MOLECULES, _CUTOFF, _POINTS, _CLUSTERS, _ITERATIONS = 100, 0.5, 600, 5, 3
_ROUNDING = 256 * float(np.finfo(np.float32).eps)


def _forces(**options: Any) -> Action:
    """The loop of 435.gromacs: forces within their rounding of those in float64."""

    def action(queue: cl.CommandQueue, rng: np.random.Generator) -> None:
        box = water_box(num_molecules=_MOLECULES, cutoff=_CUTOFF)
        reference = reference_forces(box)
        error = np.abs(nonbonded_forces(box, queue=queue, **options) - reference.forces)
        assert (error <= _ROUNDING * reference.magnitude).all(), f"forces are off by up to {error.max():.3g}"

    return action


def _clusters(queue: cl.CommandQueue, rng: np.random.Generator) -> None:
    """Lloyd's algorithm, against the same iterations in float64."""
    points = blobs(_POINTS, 8, _CLUSTERS, seed=1).astype(np.float64)
    centers = init = points[:_CLUSTERS]
    for _ in range(_ITERATIONS):
        labels = ((points[:, None] - centers) ** 2).sum(-1).argmin(1)
        centers = np.array([points[labels == k].mean(0) for k in range(_CLUSTERS)])
    found = kmeans(points, _CLUSTERS, init=init, max_iter=_ITERATIONS, tol=0, queue=queue)
    same(found.labels, ((points[:, None] - centers) ** 2).sum(-1).argmin(1).astype(np.int32))
    np.testing.assert_allclose(found.centers, centers, rtol=1e-9, atol=1e-9)


def _pair_distances(queue: cl.CommandQueue, rng: np.random.Generator) -> None:
    """Pairs of 150 particles by distance and type, against all distances to the nearest images."""
    points, kinds = rng.integers(0, 64, (150, 3)) / 8, rng.integers(0, 2, 150)
    apart = points[:, None] - points
    apart -= 8 * np.rint(apart / 8)
    squares = (apart**2).sum(-1)
    np.fill_diagonal(squares, np.inf)
    found = RDF(6, 3.0, queue=queue).compute(([8, 8, 8], points.astype(np.float32)), types=kinds)
    for a, b in np.ndindex(2, 2):
        expected = np.histogram(squares[kinds == a][:, kinds == b], np.append(np.arange(7) ** 2 / 4, np.inf))[0][:-1]
        same(found.partial_counts[a, b], expected)


def _digest(case: digests.DigestCase) -> Action:
    def action(queue: cl.CommandQueue, rng: np.random.Generator) -> None:
        digests.check_case(case, queue, ways=digests.WAYS[:1])

    return action


def study_cases() -> Iterator[Case]:
    """Yield a case for each."""
    for update in ("native", "cas"):
        for options in ({"update": update}, {"update": update, "race_factor": 20.0}):
            given = ", race factor 20" * ("race_factor" in options)
            covers = frozenset(["study gromacs", *words_of(options)])
            yield Case(f"study: gromacs, {update}{given}", _forces(**options), update=update, covers=covers)
    yield Case("study: kmeans", _clusters, covers=frozenset(["study kmeans"]))
    yield Case("study: pair distances", _pair_distances, covers=frozenset(["study pair distances"]))
    for case in digests.CASES:
        if not case.is_large:
            yield Case(f"digest: {case.name}", _digest(case), covers=frozenset(["reproducible", "digest"]))
