"""The input of `clhist gromacs`: a file of pairs, a structure whose pairs are found, or a box of water."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path

import click
import numpy as np

from clhist.cases.atom_types import BUILT_IN, read_atom_types
from clhist.cases.gro_file import Structure, read_gro, write_gro
from clhist.cases.gromacs import structure_pairs
from clhist.cases.gromacs_data import NonbondedInput, Reference, load_nonbonded, reference_forces
from clhist.cases.neighbours import find_neighbours
from clhist.cases.water import water_box, water_structure
from clhist.cli.cases.options import save

MOLECULES, QUICK_MOLECULES = 7726, 500  # the paper's size, and one that takes a second
CUTOFF = 0.9  # nm, of the atoms of a structure


@dataclass(frozen=True)
class GromacsSource:
    """The options that say what is computed; those that do not go together are refused."""

    data: Path | None
    structure: Path | None
    cutoff: float | None
    types: Path | None
    scale: int
    quick: bool
    output: Path | None

    def __post_init__(self) -> None:
        file = self.data or self.structure
        refused = {
            "--data: expected either that or --structure, got both": self.data and self.structure,
            "--cutoff: expected only with --structure": self.cutoff is not None and not self.structure,
            "--types: expected only with --structure": self.types and not self.structure,
            "--scale: expected only for the generated box, a file cannot be scaled": self.scale > 1 and file,
            "--quick: expected only for the generated box, and not with --scale": self.quick
            and (file or self.scale > 1),
            "--output: expected an .npz file with --data, which has no names of atoms": self.data
            and self.output
            and self.output.suffix.lower() == ".gro",
        }
        for text, wrong in refused.items():
            if wrong:
                raise click.UsageError(text)

    def read(self) -> tuple[NonbondedInput, Structure | None]:
        """Return the pair list, and the structure if the atoms have names."""
        if self.data:
            return load_nonbonded(self.data), None
        if not self.structure:
            molecules = QUICK_MOLECULES if self.quick else self.scale * MOLECULES
            return water_box(molecules), water_structure(molecules)
        atoms = read_gro(self.structure)
        atom_types = {**BUILT_IN, **(read_atom_types(self.types) if self.types else {})}
        try:
            return structure_pairs(atoms, CUTOFF if self.cutoff is None else self.cutoff, atom_types), atoms
        except ValueError as error:
            raise ValueError(f"{self.structure}: {error}") from error

    def references(self, pairs: NonbondedInput, structure: Structure | None) -> tuple[Reference, ...]:
        """Return the forces by NumPy in float64: of the rounded positions, and of a structure's own."""
        try:
            rounded = reference_forces(pairs)
            if structure is None:
                return (rounded,)
            # The second shows what rounding the positions to float32 costs.
            return rounded, reference_forces(pairs, positions=structure.positions, box=structure.box)
        except ValueError as error:
            raise ValueError(f"{self.name}: {error}") from error

    def why_no_pairs(self, structure: Structure | None) -> str:
        """Return why there are no pairs."""
        if structure is None:
            return "jjnr: expected at least one pair, got none"
        cutoff, atoms = CUTOFF if self.cutoff is None else self.cutoff, np.arange(len(structure.positions))
        near = find_neighbours(structure.positions, structure.box, cutoff, atoms).owner.size
        why = f"all {near:,} pairs within it are of one residue" if near else "no two atoms are within it"
        return f"expected pairs of different residues within the cut-off of {cutoff:g} nm, got none: {why}"

    @property
    def name(self) -> str:
        """The name of the input: its file, or the structure that is generated."""
        return str(self.data or self.structure or "box of SPC water")

    def write(self, pairs: NonbondedInput, structure: Structure | None, forces: np.ndarray) -> None:
        """Write what ``--output`` asks for."""
        if self.output and self.output.suffix.lower() == ".npz":
            arrays = {field.name: getattr(pairs, field.name) for field in fields(pairs)}
            save(self.output, forces=forces, **{name: a for name, a in arrays.items() if a is not None})
        elif self.output and structure:
            write_gro(self.output, structure)
