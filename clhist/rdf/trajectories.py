"""Radial distribution functions of MDAnalysis' trajectories."""

from __future__ import annotations

from typing import Any

import numpy as np
from MDAnalysis.analysis import rdf as theirs

from clhist.rdf.counting import PairCounter, Particles, box_within


class InterRDF(theirs.InterRDF):
    """The radial distribution function of two groups of atoms: ``MDAnalysis.analysis.rdf.InterRDF`` on a device.

    Parameters, results and normalisation are those of that class; `backend` is without meaning. Distances are computed
    in float64 where the device has it, from its coordinates of float32.

    Raises
    ------
    ValueError
        By ``run``, where `range` reaches beyond half the distance of opposite faces of the box: nearer images of an
        atom than the nearest one do not exist, but further ones do, which that class leaves out.

    Examples
    --------
    >>> import MDAnalysis
    >>> from MDAnalysisTests.datafiles import GRO, XTC
    >>> from clhist.rdf import InterRDF
    >>> water = MDAnalysis.Universe(GRO, XTC).select_atoms("name OW")
    >>> rdf = InterRDF(water, water, range=(0, 10), exclusion_block=(1, 1)).run(stop=2)
    >>> round(float(rdf.results.rdf.max()), 2)
    2.99
    """

    @classmethod
    def get_supported_backends(cls) -> tuple[str, ...]:
        """Return which of MDAnalysis' backends run it: the device is one already."""
        return ("serial",)

    _analysis_algorithm_is_parallelizable = False

    def _prepare(self) -> None:
        super()._prepare()
        edges = self.results.edges
        if not np.allclose(np.diff(edges), edges[1] - edges[0], rtol=1e-9):
            raise ValueError("nbins: expected a number of bins, got edges of several widths")
        self._own = np.array_equal(self.g1.ix, self.g2.ix)
        first, second = self._groups()
        self._labels = first, second
        excludes, low, high = first is not None, float(edges[0]), float(edges[-1])
        self._counter = PairCounter(
            len(edges) - 1, low, high, excludes=excludes, same=self._own, closed=True, dtype=np.dtype(np.float64)
        )
        self._with_themselves = len(self.g1) if self._own and not excludes and low <= 0 else 0

    def _groups(self) -> tuple[np.ndarray | None, np.ndarray | None]:
        """Return the group of each atom, of which none are paired."""
        if self._exclusion_block is not None:
            sizes = zip((len(self.g1), len(self.g2)), self._exclusion_block, strict=True)
            first, second = (np.arange(number) // size for number, size in sizes)
        elif self.exclude_same is not None:
            given = [np.asarray(getattr(group, self.exclude_same)) for group in (self.g1, self.g2)]
            numbers = np.unique(np.concatenate(given), return_inverse=True)[1].reshape(-1)
            first, second = numbers[: len(self.g1)], numbers[len(self.g1) :]
        else:
            return None, None
        if self._own and not np.array_equal(first, second):
            self._own = False
        return first.astype(np.int32), second.astype(np.int32)

    def _single_frame(self) -> None:
        first, second = self._labels
        box: Any = self._ts.triclinic_dimensions if self._ts.dimensions is not None else None
        points, queries = Particles(self.g2.positions, None, second), Particles(self.g1.positions, None, first)
        try:
            found = box_within(box, self._maxrange, points.positions, queries.positions)
        except ValueError as error:
            raise ValueError(str(error).replace("r_max:", "range:", 1)) from error
        self._counter.clear()
        self._counter.add(found, points, None if self._own else queries)
        counts = self._counter.counts()[0, 0]
        counts[0] += self._with_themselves
        self.results.count += counts
        if self.norm == "rdf":
            self.results.volume_cum += self._ts.volume
