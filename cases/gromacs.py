"""Loop inl1100 of 435.gromacs as one histogram (SC'20, section V-C): forces between pairs of particles.

Each pair adds the three components of its force to one particle and subtracts them from the other: six updates of
``3 * n`` bins. The map computes the force where it is used, so that nothing but the forces is ever stored.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array

from clhist import Bound, HistogramKernel, RaceFactor, default_queue, operators
from clhist.cases.atom_types import BUILT_IN, AtomTypes, particles
from clhist.cases.gro_file import Structure
from clhist.cases.gromacs_data import COULOMB, NonbondedInput
from clhist.cases.neighbours import find_neighbours

_ARGUMENTS = """
    const int *owner, const int *neighbour, const int *particle, const int *shift, const int *types,
    const float *position, const float *shift_vector, const float *charge, const float *lennard_jones,
    int num_types, float coulomb
"""

_MAP = """
    const int row = owner[i], p = particle[row], q = neighbour[i];
    const float3 at = vload3(p, position), step = vload3(shift[row], shift_vector), moved = at + step;
    const float3 moved_by = moved - at, lost = (at - (moved - moved_by)) + (step - moved_by);  // by rounding
    const float3 d = (moved - vload3(q, position)) + lost;
    const float inverse = INVERSE(d), inverse2 = inverse * inverse, inverse6 = inverse2 * inverse2 * inverse2;
    const int kind = 2 * (num_types * types[p] + types[q]);
    const float attraction = lennard_jones[kind] * inverse6;
    const float repulsion = lennard_jones[kind + 1] * inverse6 * inverse6;
    const float electric = coulomb * charge[p] * charge[q] * inverse;
    const float3 force = d * ((12 * repulsion - 6 * attraction + electric) * inverse2);
    EMIT(3 * p, force.x);
    EMIT(3 * p + 1, force.y);
    EMIT(3 * p + 2, force.z);
    EMIT(3 * q, -force.x);
    EMIT(3 * q + 1, -force.y);
    EMIT(3 * q + 2, -force.z);
"""


_PREAMBLE = "#define INVERSE(d) (1 / sqrt(dot(d, d)))"
# Division and square root are correctly rounded in double precision, in single precision not on all devices.
_EXACT_PREAMBLE = """
    #pragma OPENCL EXTENSION cl_khr_fp64 : enable
    #pragma OPENCL FP_CONTRACT OFF
    #define INVERSE(d) ((float)(1 / sqrt((double)d.x * d.x + (double)d.y * d.y + (double)d.z * d.z)))
"""


@lru_cache(maxsize=16)
def force_kernel(context: cl.Context, exact: bool = False) -> HistogramKernel:
    """Return the histogram of forces: one element a pair, float32, three bins a particle.

    With `exact` all devices compute the same bits for a pair, those of `clhist.cases.gromacs_data.pair_forces`.
    """
    preamble = _EXACT_PREAMBLE if exact else _PREAMBLE
    return HistogramKernel(context, operators.add(np.float32), arguments=_ARGUMENTS, map=_MAP, preamble=preamble)


@lru_cache(maxsize=16)
def partner_kernel(context: cl.Context) -> HistogramKernel:
    """Return the histogram of pairs: one element a pair, counted for both of its particles, int32."""
    return HistogramKernel(
        context,
        operators.count(np.int32),
        arguments="const int *owner, const int *neighbour, const int *particle",
        map="EMIT(particle[owner[i]], 1); EMIT(neighbour[i], 1)",
    )


@dataclass(frozen=True)
class PairList:
    """A `NonbondedInput` on a device: what `force_kernel` takes, and the forces that it adds to."""

    arguments: tuple[Any, ...]
    dest: cl_array.Array
    queue: cl.CommandQueue

    @classmethod
    def upload(cls, data: NonbondedInput, queue: cl.CommandQueue | None = None) -> PairList:
        """Copy `data` to the device of `queue`, or to the default one."""
        queue = queue or default_queue()
        arrays = (
            data.owner,
            data.jjnr,
            data.iinr,
            data.shift,
            data.types,
            data.pos,
            data.shiftvec,
            data.charge,
            data.nbfp,
        )
        return cls(
            (*(cl_array.to_device(queue, array) for array in arrays), data.ntype, data.facel),
            cl_array.to_device(queue, data.faction.ravel()),
            queue,
        )

    def forces(self, **options: Any) -> Any:
        """Return ``faction`` plus the forces of all pairs, a float32 device array of shape (3 * n,), kJ/(mol nm).

        `options` are those of `clhist.HistogramKernel.__call__`. With ``reproducible=True`` the forces are exact sums,
        the same bits on every device; it must have double precision.
        """
        kernel = force_kernel(self.queue.context, options.get("reproducible", False))
        return kernel(*self.arguments, num_bins=self.dest.size, dest=self.dest, queue=self.queue, **options)

    def partners(self) -> cl_array.Array:
        """Return how many pairs each particle is in, an int32 device array of shape (n,)."""
        kernel = partner_kernel(self.queue.context)
        return kernel(*self.arguments[:3], num_bins=self.dest.size // 3, queue=self.queue)

    def race_factor(self) -> RaceFactor:
        """Measure how often neighbouring pairs update the same bins (SC'20, section III-D)."""
        kernel = force_kernel(self.queue.context)
        return kernel.race_factor(*self.arguments, num_bins=self.dest.size, queue=self.queue)

    def bind(self, **options: Any) -> Bound:
        """Return the call that computes the forces of all pairs, without ``faction``; `options` as of `forces`."""
        kernel = force_kernel(self.queue.context, options.get("reproducible", False))
        return kernel.bind(*self.arguments, num_bins=self.dest.size, queue=self.queue, **options)


def nonbonded_forces(data: NonbondedInput, *, queue: cl.CommandQueue | None = None, **options: Any) -> np.ndarray:
    """Return the forces after the loop (SC'20, section V-C).

    Parameters
    ----------
    data : NonbondedInput
        The pair list and the particles; nm, e, kJ/mol.
    queue : pyopencl.CommandQueue, optional
        Defaults to the default device's.
    **options
        Such as `race_factor`, `update` or `reproducible`; see `PairList.forces`.

    Returns
    -------
    float32 array of shape (n, 3)
        ``faction`` plus the forces of all pairs, kJ/(mol nm).

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
    >>> clhist.cases.nonbonded_forces(data).round(1)
    array([[-138.9,    0. ,    0. ],
           [ 138.9,    0. ,    0. ]], dtype=float32)
    """
    if not data.num_pairs:
        return data.faction.copy()
    return PairList.upload(data, queue).forces(**options).get().reshape(-1, 3)


def structure_pairs(
    structure: Structure, cutoff: float, types: AtomTypes = BUILT_IN, *, queue: cl.CommandQueue | None = None
) -> NonbondedInput:
    """Return the loop's input for a structure: its particles, and the pairs of different residues within a cut-off.

    Parameters
    ----------
    structure : Structure
        Such as `clhist.cases.gro_file.read_gro` gives.
    cutoff : float
        Of the distance between two atoms, nm; at most half the shortest edge of the box.
    types : mapping of (residue, atom) to AtomType
        Charges and Lennard-Jones parameters; combined by geometric means.
    queue : pyopencl.CommandQueue, optional
        Where the pairs are found. Defaults to the default device's.

    Returns
    -------
    NonbondedInput
        With ``faction`` of zeros and positions moved into the box.

    Raises
    ------
    ValueError
        If an atom is not among `types`, or the cut-off is too long.
    """
    which = particles(structure, types)
    neighbours = find_neighbours(structure.positions, structure.box, cutoff, structure.molecule, queue=queue)
    begins = neighbours.row_start.get()
    # Most images of a particle have no neighbours: drop their empty rows.
    rows = np.flatnonzero(np.diff(begins))
    return NonbondedInput(
        jindex=np.append(begins[rows], begins[-1]),
        iinr=neighbours.particle.get()[rows],
        jjnr=neighbours.neighbour.get(),
        shift=neighbours.shift.get()[rows],
        types=which.types,
        ntype=which.ntype,
        facel=np.float32(COULOMB),
        shiftvec=neighbours.shift_vector.get(),
        pos=neighbours.position.get(),
        faction=np.zeros(structure.positions.shape, np.float32),
        charge=which.charge,
        nbfp=which.nbfp,
    )
