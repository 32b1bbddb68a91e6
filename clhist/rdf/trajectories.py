"""Radial distribution functions of MDAnalysis' trajectories."""

from __future__ import annotations

from typing import Any

import numpy as np
from MDAnalysis.analysis import rdf as theirs
from MDAnalysis.core.groups import UpdatingAtomGroup

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
        # PairCounter computes bins from one width.
        if not np.allclose(np.diff(edges), edges[1] - edges[0], rtol=1e-9):
            raise ValueError("nbins: expected a number of bins, got edges of several widths")
        self._counters: dict[tuple[bool, bool], PairCounter] = {}
        is_updating = any(isinstance(group, UpdatingAtomGroup) for group in (self.g1, self.g2))
        self._static = None if is_updating else self._groups()

    def _groups(self) -> tuple[bool, np.ndarray | None, np.ndarray | None]:
        """Return whether atoms are paired with themselves, and the groups of each atom, of which none are paired."""
        same = np.array_equal(self.g1.ix, self.g2.ix)
        if self._exclusion_block is not None:
            sizes = zip((len(self.g1), len(self.g2)), self._exclusion_block, strict=True)
            first, second = (np.arange(number) // size for number, size in sizes)
        elif self.exclude_same is not None:
            labels = [np.asarray(getattr(group, self.exclude_same)) for group in (self.g1, self.g2)]
            numbers = np.unique(np.concatenate(labels), return_inverse=True)[1].reshape(-1)
            first, second = numbers[: len(self.g1)], numbers[len(self.g1) :]
        else:
            return same, None, None
        # Unordered pairs can count once only if atoms and exclusions are the same on both sides.
        return same and np.array_equal(first, second), first.astype(np.int32), second.astype(np.int32)

    def _counter(self, same: bool, excludes: bool) -> PairCounter:
        """Return the empty counter for such pairs."""
        if (same, excludes) not in self._counters:
            edges = self.results.edges
            self._counters[same, excludes] = PairCounter(
                len(edges) - 1,
                float(edges[0]),
                float(edges[-1]),
                excludes=excludes,
                same=same,
                closed=True,
                dtype=np.dtype(np.float64),
            )
        counter = self._counters[same, excludes]
        counter.clear()
        return counter

    def _single_frame(self) -> None:
        # An updating group may select other atoms in each frame.
        same, first, second = self._static or self._groups()
        box: Any = self._ts.triclinic_dimensions if self._ts.dimensions is not None else None
        points, queries = Particles(self.g2.positions, None, second), Particles(self.g1.positions, None, first)
        try:
            simulation_box = box_within(box, self._maxrange, points.positions, queries.positions)
        except ValueError as error:
            raise ValueError(str(error).replace("r_max:", "range:", 1)) from error
        counter = self._counter(same, first is not None)
        counter.add(simulation_box, points, None if same else queries)
        counts = counter.counts()[0, 0]
        if same and first is None and self.results.edges[0] <= 0:
            counts[0] += len(self.g1)  # each with itself
        self.results.count += counts
        if self.norm == "rdf":
            self.results.volume_cum += self._ts.volume
