"""Boxes of SPC water: what the GROMACS case computes where no data are given.

Simple point charge water (Berendsen et al. 1981) in the units of GROMACS: nm, e, kJ/mol.
"""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import numpy.typing as npt

from clhist.cases.atom_types import particles
from clhist.cases.gro_file import Structure
from clhist.cases.gromacs_data import COULOMB, Float64Array, NonbondedInput

__all__ = ["water_box", "water_structure"]

_MOLECULES_PER_NM3 = 33.43
_OH_LENGTH, _HOH_ANGLE = 0.1, math.radians(109.47)


def water_structure(num_molecules: int = 7726, seed: int = 0) -> Structure:
    """A periodic cube of SPC water at the density of the liquid.

    The molecules lie in random orientation on a jittered face-centred cubic lattice some of whose sites are empty.

    Parameters
    ----------
    num_molecules : int
        Number of molecules, of three particles each (O, H, H); at least 1.
    seed : int
        Seed of the random numbers; equal arguments give equal boxes.
    """
    if num_molecules < 1:
        raise ValueError(f"num_molecules: expected at least 1, got {num_molecules}")
    edge = (num_molecules / _MOLECULES_PER_NM3) ** (1 / 3)
    rng = np.random.default_rng(seed)
    centre = _lattice(num_molecules, edge, rng)
    atoms = centre[:, None] + _orientations(num_molecules, rng)
    return Structure(
        residue_numbers=np.repeat(np.arange(1, num_molecules + 1), 3),
        residues=np.full(3 * num_molecules, "SOL"),
        atoms=np.tile(["OW", "HW1", "HW2"], num_molecules),
        positions=atoms.reshape(-1, 3),
        box=np.full(3, edge),
        title=f"{num_molecules} molecules of SPC water, clhist gromacs, seed {seed}",
    )


def water_box(num_molecules: int = 7726, cutoff: float = 0.6572, seed: int = 0) -> NonbondedInput:
    """The pair list of a `water_structure`.

    Each molecule is a charge group, as in GROMACS: two molecules whose centres are closer than `cutoff` contribute all
    nine pairs of their atoms, once. The defaults give the size that the paper (SC'20) measures: 23 178 particles and
    about 1.38 million pairs. `faction` is zero.

    Parameters
    ----------
    num_molecules : int
        Number of molecules, of three particles each (O, H, H).
    cutoff : float
        Cut-off between centres of molecules, nm; at most half the edge of the box.
    seed : int
        Seed of the random numbers; equal arguments give equal boxes.
    """
    edge = (max(num_molecules, 0) / _MOLECULES_PER_NM3) ** (1 / 3)
    if not 0 < cutoff <= edge / 2:
        limit = f"half the box of {num_molecules} molecules, {edge / 2:.4g} nm"
        raise ValueError(f"cutoff must be positive and at most {limit}; got {cutoff}")
    structure = water_structure(num_molecules, seed)
    which = particles(structure)
    centre = np.mod(structure.positions.reshape(-1, 3, 3).mean(axis=1), edge)
    # The first axis varies fastest; number 13 is no shift.
    steps = np.array(list(product((-1, 0, 1), repeat=3)))[:, ::-1]

    image, partner = _molecule_pairs(centre, edge, cutoff)
    rows, first, count = np.unique(image, return_index=True, return_counts=True)
    atom = np.arange(3)
    lengths = np.repeat(3 * count, 3)  # each row of a molecule is a row of each of its atoms
    partners = (3 * partner[:, None] + atom).astype(np.int32).ravel()
    return NonbondedInput(
        jindex=np.concatenate([[0], np.cumsum(lengths)]),
        iinr=(3 * (rows // 27)[:, None] + atom).ravel(),
        jjnr=partners[_ranges(np.repeat(3 * first, 3), lengths)],
        shift=np.repeat(rows % 27, 3),
        types=which.types,
        ntype=which.ntype,
        facel=np.float32(COULOMB),
        shiftvec=(steps * edge).astype(np.float32),
        pos=structure.positions.astype(np.float32),
        faction=np.zeros((3 * num_molecules, 3), np.float32),
        charge=which.charge,
        nbfp=which.nbfp,
    )


def _lattice(count: int, edge: float, rng: np.random.Generator) -> Float64Array:
    """Points on a jittered face-centred cubic lattice in a periodic cube."""
    half_cells = 2 * math.ceil(math.cbrt(count / 4) - 1e-9)
    sites: npt.NDArray[np.int64] = np.indices((half_cells,) * 3).reshape(3, -1).T
    sites = sites[sites.sum(axis=1) % 2 == 0]
    sites = sites[np.sort(rng.choice(len(sites), count, replace=False))]
    spacing = edge / half_cells
    jitter = 0.06 * math.sqrt(2) * spacing  # of the distance between neighbours
    points: Float64Array = np.mod((sites + 0.5) * spacing + rng.uniform(-jitter, jitter, sites.shape), edge)
    return points


def _orientations(count: int, rng: np.random.Generator) -> Float64Array:
    """O, H and H of molecules in random orientation around their centres: shape (count, 3, 3)."""
    axis, normal = rng.normal(size=(2, count, 3))
    axis /= np.linalg.norm(axis, axis=1, keepdims=True)
    across = np.cross(axis, normal)
    across /= np.linalg.norm(across, axis=1, keepdims=True)
    along, aside = _OH_LENGTH * math.cos(_HOH_ANGLE / 2) * axis, _OH_LENGTH * math.sin(_HOH_ANGLE / 2) * across
    atoms: Float64Array = np.stack([np.zeros_like(axis), along + aside, along - aside], axis=1)
    atoms -= atoms.mean(axis=1, keepdims=True)
    return atoms


def _molecule_pairs(centre: Float64Array, edge: float, cutoff: float) -> tuple[npt.NDArray[np.int64], ...]:
    """Pairs of points closer than a cut-off, each once, by a cell list.

    Returns ``27 * i + shift`` in ascending order and ``j``. Of each pair, the point i is the one from which j
    follows within half the numbering (cyclic), as GROMACS balances its rows; within a row, j goes by cell.
    """
    n = len(centre)
    cells = max(1, min(int(edge / cutoff), math.ceil(math.cbrt(n))))  # per edge
    cell = np.minimum((centre * (cells / edge)).astype(np.int64), cells - 1)
    strides = np.array([cells**2, cells, 1])
    number = cell @ strides
    by_cell = np.argsort(number, kind="stable")
    population = np.bincount(number, minlength=cells**3)
    start = np.cumsum(population) - population

    pairs = []
    for step in product((-1, 0, 1), repeat=3):
        neighbour = cell + step
        # The number of edges by which i is shifted to meet j.
        wrap = -(neighbour // cells)
        target = (neighbour % cells) @ strides
        i = np.repeat(np.arange(n), population[target])
        j = by_cell[_ranges(start[target], population[target])]
        ahead = (j - i) % n
        mine = (ahead > 0) & ((2 * ahead < n) | ((2 * ahead == n) & (i < j)))
        i, j = i[mine], j[mine]
        distance = centre[i] + wrap[i] * edge - centre[j]
        near = np.einsum("ij,ij->i", distance, distance) < cutoff**2
        i, j = i[near], j[near]
        pairs.append((27 * i + (wrap[i] + 1) @ np.array([1, 3, 9]), j))
    image, partner = (np.concatenate(parts) for parts in zip(*pairs, strict=True))
    order = np.argsort(image, kind="stable")
    return image[order], partner[order]


def _ranges(start: npt.NDArray[np.int64], count: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The concatenation of ``arange(s, s + c)`` for each s and c."""
    end = np.cumsum(count)
    return np.repeat(start - (end - count), count) + np.arange(count.sum())
