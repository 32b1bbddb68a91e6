"""Input, and NumPy reference, of loop inl1100 of 435.gromacs: the forces of a non-bonded pair list.

The loop (GROMACS 3: plain Coulomb and Lennard-Jones, no solvent optimisation) adds the force of each
pair of particles to one and subtracts it from the other: a generalized histogram with ``3 * n`` bins.
Units are those of GROMACS: nm, e, kJ/mol; forces are in kJ/(mol nm).
"""

from __future__ import annotations

import os
from dataclasses import MISSING, dataclass, fields
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from clhist.files.arrays import read_npz

__all__ = ["COULOMB", "NonbondedInput", "Reference", "load_nonbonded", "pair_forces", "reference_forces"]

Int32Array = npt.NDArray[np.int32]
Float32Array = npt.NDArray[np.float32]
Float64Array = npt.NDArray[np.float64]

COULOMB = 138.935485  # 1/(4 pi eps0) in kJ nm / (mol e^2)

_NDIM = {"ntype": 0, "facel": 0, "shiftvec": 2, "pos": 2, "faction": 2, "expected_faction": 2}  # else 1
_FLOATS = {"facel", "shiftvec", "pos", "faction", "charge", "nbfp", "expected_faction"}


@dataclass(frozen=True, eq=False)
class NonbondedInput:
    """The input of loop inl1100: a pair list and the particles it refers to.

    Row ``r`` pairs particle ``iinr[r]``, moved by ``shiftvec[shift[r]]``, with each of the particles
    ``jjnr[jindex[r]:jindex[r + 1]]``. Integers of any width are converted to int32 where they fit and
    floats to float32. An instance is always consistent: lengths agree, indices are in range and every
    float is finite; otherwise construction raises a ValueError that names the field.

    Attributes
    ----------
    jindex : int32 array, shape (nri + 1,)
        Where each row begins in `jjnr`; from 0 to ``len(jjnr)``, never decreasing.
    iinr, shift : int32 arrays, shape (nri,)
        The particle that each row belongs to, and its periodic shift: an index into `shiftvec`.
    jjnr : int32 array, shape (nrj,)
        The neighbours, row by row.
    types : int32 array, shape (n,)
        Lennard-Jones type of each particle, below `ntype`.
    ntype : int
        Number of Lennard-Jones types.
    facel : float32
        Coulomb's constant, kJ nm / (mol e^2).
    shiftvec, pos : float32 arrays, shapes (k, 3) and (n, 3)
        Periodic shift vectors and positions of the particles, nm.
    faction : float32 array, shape (n, 3)
        Forces that the loop adds to, kJ/(mol nm).
    charge : float32 array, shape (n,)
        Charges, e.
    nbfp : float32 array, shape (2 * ntype * ntype,)
        c6 in kJ nm^6 / mol and c12 in kJ nm^12 / mol for each pair of types.
    expected_faction : float32 array, shape (n, 3), optional
        Forces after the loop, as someone else computed them.

    Notes
    -----
    Data taken from SPEC CPU2006 is in units of its own, with forces up to 1e17.

    Examples
    --------
    >>> import clhist.cases
    >>> data = clhist.cases.NonbondedInput(
    ...     jindex=[0, 1], iinr=[0], shift=[0], jjnr=[1], types=[0, 0], ntype=1,
    ...     facel=np.float32(138.9),
    ...     shiftvec=np.zeros((1, 3), np.float32), pos=np.array([[0, 0, 0], [1, 0, 0]], np.float32),
    ...     faction=np.zeros((2, 3), np.float32), charge=np.array([1, 1], np.float32),
    ...     nbfp=np.zeros(2, np.float32),
    ... )
    >>> data.num_pairs
    1
    """

    jindex: Int32Array
    iinr: Int32Array
    jjnr: Int32Array
    shift: Int32Array
    types: Int32Array
    ntype: int
    facel: np.float32
    shiftvec: Float32Array
    pos: Float32Array
    faction: Float32Array
    charge: Float32Array
    nbfp: Float32Array
    expected_faction: Float32Array | None = None

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if value is not None:
                object.__setattr__(self, field.name, _convert(field.name, value))
        object.__setattr__(self, "ntype", int(self.ntype))
        self._check()

    def _check(self) -> None:
        _require(self.ntype >= 1, "ntype", "at least 1", self.ntype)
        n, rows, pairs, types, shifts = (len(self.pos), len(self.iinr), len(self.jjnr), self.ntype, len(self.shiftvec))
        shapes: dict[str, tuple[int, ...]] = {"shiftvec": (shifts, 3), "pos": (n, 3)}
        shapes |= {"faction": (n, 3), "expected_faction": (n, 3), "charge": (n,), "types": (n,)}
        shapes |= {"jindex": (rows + 1,), "shift": (rows,), "nbfp": (2 * types**2,)}
        for name, shape in shapes.items():
            got = getattr(self, name)
            why = f"shape {shape} for {rows} rows (iinr), {n} particles (pos), {types} types (ntype)"
            _require(got is None or got.shape == shape, name, why, f"shape {np.shape(got)}")

        starts = self.jindex
        falls = np.flatnonzero(starts[1:] < starts[:-1])
        got = f"{starts[0]} to {starts[-1]}" + (f", falling after index {falls[0]}" if len(falls) else "")
        ordered = starts[0] == 0 and starts[-1] == pairs and not len(falls)
        _require(ordered, "jindex", f"0 to {pairs} (the length of jjnr), never falling", got)
        for name, size in {"iinr": n, "jjnr": n, "shift": shifts, "types": types}.items():
            array = getattr(self, name)
            wrong = np.flatnonzero((array < 0) | (array >= size))
            if len(wrong):
                _require(False, name, f"indices from 0 to {size - 1}", f"{array[wrong[0]]} at index {wrong[0]}")

    @property
    def num_particles(self) -> int:
        """Number of particles, n."""
        return len(self.pos)

    @property
    def num_pairs(self) -> int:
        """Number of pairs, nrj."""
        return len(self.jjnr)

    @cached_property
    def owner(self) -> Int32Array:
        """Row of `iinr` and `shift` of each pair, an int32 array of shape (nrj,)."""
        return np.repeat(np.arange(len(self.iinr), dtype=np.int32), np.diff(self.jindex))


def _require(condition: bool | np.bool_, name: str, expected: str, got: object) -> None:
    if not condition:
        raise ValueError(f"{name}: expected {expected}, got {got}")


def _convert(name: str, value: object) -> Any:
    """The value of a field as the int32 or float32 array (or scalar) that it has to be."""
    _require(not np.ma.is_masked(value), name, "no masked elements", "some")
    array = np.asarray(value)
    ndim = _NDIM.get(name, 1)
    _require(array.ndim == ndim, name, f"{ndim} dimensions", f"{array.ndim}, shape {array.shape}")
    if name in _FLOATS:
        _require(array.dtype.kind == "f", name, "floats", array.dtype)
        with np.errstate(over="ignore"):
            result = np.asarray(array, dtype=np.float32, order="C")
        wrong = np.argwhere(~np.isfinite(result))
        if len(wrong):
            where = tuple(int(i) for i in wrong[0])
            _require(False, name, "finite float32 values", f"{array[where]} at {where}")
    else:
        _require(array.dtype.kind in "iu", name, "integers", array.dtype)
        if array.size:
            low, high, limits = int(array.min()), int(array.max()), np.iinfo(np.int32)
            _require(limits.min <= low and high <= limits.max, name, "values that fit int32", f"{low} to {high}")
        result = np.asarray(array, dtype=np.int32, order="C")
    return result[()] if ndim == 0 else result


def load_nonbonded(path: str | os.PathLike[str]) -> NonbondedInput:
    """Read a pair list from an .npz file whose keys are the fields of `NonbondedInput`.

    Parameters
    ----------
    path : str or path-like
        The file. Nothing in it is trusted: no pickles, and no array larger than the file can hold.

    Raises
    ------
    FileNotFoundError
        There is no such file.
    ValueError
        It is not an .npz file, is damaged, lacks a key, or its content is inconsistent. The text names
        the file and the key, what was expected and what was there.
    """
    names = [field.name for field in fields(NonbondedInput) if field.default is MISSING]
    try:
        arrays: dict[str, Any] = dict(read_npz(path, names, optional=["expected_faction"]))
        return NonbondedInput(**arrays)
    except ValueError as error:
        raise ValueError(f"{os.fspath(path)}: expected an .npz file of a pair list: {error}") from error


class Reference(NamedTuple):
    """Forces after the loop in float64, and the scale of their rounding errors.

    Attributes
    ----------
    forces : float64 array, shape (n, 3)
        ``faction`` plus the forces of all pairs, kJ/(mol nm).
    magnitude : float64 array, shape (n, 3)
        The sum of the absolute values of the same terms. A float32 result `got` is right where
        ``abs(got - forces) <= k * eps * magnitude``, eps = 2**-23. The force of a single pair, a high power of a
        distance, has lost dozens of eps already: k = 256 is safe.
    """

    forces: Float64Array
    magnitude: Float64Array


def reference_forces(
    data: NonbondedInput,
    chunk: int = 1 << 18,
    *,
    positions: Float64Array | None = None,
    box: Float64Array | None = None,
) -> Reference:
    """Loop inl1100 in float64. A pair of particles at the same place raises a ValueError.

    Parameters
    ----------
    data : NonbondedInput
        The pair list.
    chunk : int
        Number of pairs in flight, which bounds the memory.
    positions : float64 array of shape (n, 3), optional
        Positions that were not rounded to float32, in the box or out of it, in the place of ``pos``.
    box : float64 array of shape (3,), optional
        Edges of the box of `positions`, of which ``shiftvec`` are multiples.
    """
    pos, charge, shiftvec = (a.astype(np.float64) for a in (data.pos, data.charge, data.shiftvec))
    if positions is not None and box is not None:
        # Use the images of the positions from which the pairs were made.
        pos = positions - np.rint((positions - pos) / box) * box
        shiftvec = np.rint(shiftvec / box) * box
    c6, c12 = data.nbfp.astype(np.float64).reshape(-1, 2).T
    bins = 3 * data.num_particles
    forces = data.faction.astype(np.float64).ravel()
    magnitude = np.abs(forces)
    for begin in range(0, data.num_pairs, chunk):
        row, j = data.owner[begin : begin + chunk], data.jjnr[begin : begin + chunk]
        i = data.iinr[row]
        d = pos[i] + shiftvec[data.shift[row]] - pos[j]
        rsq = np.einsum("ij,ij->i", d, d)
        if not rsq.all():
            k = int(np.argmin(rsq))
            raise ValueError(f"pair {begin + k}: particles {i[k]} and {j[k]} are at the same place")
        rinvsq = 1 / rsq
        rinvsix = rinvsq**3
        kind = data.ntype * data.types[i] + data.types[j]
        vcoul = float(data.facel) * charge[i] * charge[j] * np.sqrt(rinvsq)
        fs = (12 * c12[kind] * rinvsix**2 - 6 * c6[kind] * rinvsix + vcoul) * rinvsq
        t = d * fs[:, None]
        index = (3 * np.concatenate([i, j]).astype(np.int64)[:, None] + np.arange(3)).ravel()
        terms = np.concatenate([t, -t]).ravel()
        forces += np.bincount(index, weights=terms, minlength=bins)
        magnitude += np.bincount(index, weights=np.abs(terms), minlength=bins)
    return Reference(forces.reshape(-1, 3), magnitude.reshape(-1, 3))


def pair_forces(data: NonbondedInput, pairs: npt.NDArray[np.integer]) -> Float32Array:
    """Return the forces on the owners of some pairs, shape (k, 3): bit for bit what the map of exact forces adds up."""
    row, q = data.owner[pairs], data.jjnr[pairs]
    p = data.iinr[row]
    at, step = data.pos[p], data.shiftvec[data.shift[row]]
    moved = at + step
    moved_by = moved - at
    d = (moved - data.pos[q]) + ((at - (moved - moved_by)) + (step - moved_by))
    x, y, z = d.astype(np.float64).T
    inverse = (1 / np.sqrt(x * x + y * y + z * z)).astype(np.float32)
    inverse2 = inverse * inverse
    inverse6 = inverse2 * inverse2 * inverse2
    c6, c12 = data.nbfp.reshape(-1, 2)[data.ntype * data.types[p] + data.types[q]].T
    attraction, repulsion = c6 * inverse6, c12 * inverse6 * inverse6
    electric = data.facel * data.charge[p] * data.charge[q] * inverse
    return d * ((12 * repulsion - 6 * attraction + electric) * inverse2)[:, None]
