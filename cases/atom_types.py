"""Charges and Lennard-Jones parameters of atoms by their names: water, ions, and a table of one's own."""

from __future__ import annotations

import csv
import io
import math
import os
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from clhist.cases.gro_file import Structure
from clhist.files.fields import float_of
from clhist.files.regular import open_regular

__all__ = ["BUILT_IN", "AtomType", "AtomTypes", "TypedParticles", "particles", "read_atom_types"]


class AtomType(NamedTuple):
    """Parameters of an atom for non-bonded forces: charge in e, c6 in kJ nm^6 / mol, c12 in kJ nm^12 / mol."""

    charge: float
    c6: float
    c12: float


AtomTypes = Mapping[tuple[str, str], AtomType]  # by names of residue and atom

# SPC water (Berendsen et al. 1981) and the ions of GROMOS 54A7, which is made for it. GROMOS has no potassium: that is
# Aqvist's (1990), also for SPC water, from sigma = 0.493463 nm and epsilon = 1.37235e-3 kJ/mol.
_OXYGEN, _HYDROGEN = AtomType(-0.82, 2.6173456e-3, 2.634129e-6), AtomType(0.41, 0, 0)
_IONS = {
    "NA+": AtomType(1, 7.884019264e-5, 7.29e-8),
    "K+": AtomType(1, 7.9259e-5, 1.14438e-6),
    "CL-": AtomType(-1, 1.28097124e-2, 6.0466176e-5),
    "MG2+": AtomType(2, 6.52864e-5, 3.4082244e-9),
    "CA2+": AtomType(2, 1.00489e-3, 4.9801249e-7),
    "ZN2+": AtomType(2, 4.182025e-4, 9.4400656e-9),
}
BUILT_IN: AtomTypes = {
    **{(water, "OW"): _OXYGEN for water in ("SOL", "HOH")},
    **{(water, atom): _HYDROGEN for water in ("SOL", "HOH") for atom in ("HW1", "HW2")},
    **{(name, name): ion for sign, ion in _IONS.items() for name in (sign, sign.rstrip("2+-"))},
}


class TypedParticles(NamedTuple):
    """The particles of a structure, as `clhist.cases.gromacs_data.NonbondedInput` has them.

    Attributes
    ----------
    charge : float32 array, shape (n,)
        e.
    types : int32 array, shape (n,)
        Lennard-Jones type of each, below `ntype`.
    ntype : int
        How many there are.
    nbfp : float32 array, shape (2 * ntype * ntype,)
        c6 and c12 of each pair of types, the geometric means of both (the rule of GROMOS).
    """

    charge: npt.NDArray[np.float32]
    types: npt.NDArray[np.int32]
    ntype: int
    nbfp: npt.NDArray[np.float32]


def particles(structure: Structure, types: AtomTypes = BUILT_IN) -> TypedParticles:
    """Look up what each atom of a structure is.

    Parameters
    ----------
    structure : Structure
        Residues and atoms by name.
    types : mapping of (residue, atom) to AtomType
        Such as ``BUILT_IN | read_atom_types(path)``.

    Raises
    ------
    ValueError
        An atom is not among `types`; the text names the first.
    """
    names = np.stack([structure.residues, structure.atoms])
    different, first, which = np.unique(names, axis=1, return_index=True, return_inverse=True)
    for position in np.sort(first).tolist():
        residue, atom = names[:, position].tolist()
        if (residue, atom) not in types:
            where = f"atom {atom} of residue {residue} (number {position + 1} of the structure)"
            raise ValueError(f"types: expected charge, c6 and c12 of {where}, got none")
    parameters = [types[residue, atom] for residue, atom in different.T.tolist()]
    charge, c6, c12 = np.array(parameters, np.float64).T
    lennard_jones, kind = np.unique(np.stack([c6, c12]), axis=1, return_inverse=True)
    roots = np.sqrt(lennard_jones)
    nbfp = np.moveaxis(roots[:, :, None] * roots[:, None, :], 0, -1)
    which = which.reshape(-1)
    return TypedParticles(
        charge.astype(np.float32)[which],
        kind.reshape(-1).astype(np.int32)[which],
        roots.shape[1],
        nbfp.astype(np.float32).ravel(),
    )


def read_atom_types(path: str | os.PathLike[str]) -> dict[tuple[str, str], AtomType]:
    """Read a table of atoms: residue, atom, charge in e, c6 in kJ nm^6 / mol, c12 in kJ nm^12 / mol.

    Parameters
    ----------
    path : str or path-like
        Text with commas; what follows a ``#`` is a comment, and a first line of names is skipped.

    Raises
    ------
    OSError
        The file cannot be read.
    ValueError
        A line is no such row. The text names the file, the line and the reason.
    """
    types: dict[tuple[str, str], AtomType] = {}
    try:
        with io.TextIOWrapper(open_regular(path), encoding="utf-8-sig", newline="") as file:
            for number, row in enumerate(csv.reader(line.partition("#")[0] for line in file), 1):
                cells = [cell.strip() for cell in row]
                header = not types and cells[:2] == ["residue", "atom"]
                if not any(cells) or header:
                    continue
                types[cells[0], cells[1] if len(cells) > 1 else ""] = _atom_type(number, cells)
    except (UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"{os.fspath(path)}: expected text with commas: {error}") from error
    except ValueError as error:
        raise ValueError(f"{os.fspath(path)}: {error}") from error
    if not types:
        raise ValueError(f"{os.fspath(path)}: expected rows of residue, atom, charge, c6 and c12, got none")
    return types


def _atom_type(number: int, cells: list[str]) -> AtomType:
    try:
        values = [float_of(cell) for cell in cells[2:]]
    except ValueError:
        values = []
    if len(values) != 3 or not all(cells[:2]) or not all(map(math.isfinite, values)) or min(values[1:]) < 0:
        expected = "residue, atom, charge, c6 and c12 (not negative)"
        raise ValueError(f"line {number}: expected {expected}, got {','.join(cells)!r}")
    return AtomType(*values)
