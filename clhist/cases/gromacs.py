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

from clhist import operators
from clhist.cases.gromacs_data import NonbondedInput
from clhist.device import default_queue
from clhist.kernel import HistogramKernel
from clhist.model_draft import Plan

_ARGUMENTS = """
    const int *owner, const int *neighbour, const int *particle, const int *shift, const int *types,
    const float *position, const float *shift_vector, const float *charge, const float *lennard_jones,
    int num_types, float coulomb
"""

_MAP = """
    const int row = owner[i], p = particle[row], q = neighbour[i];
    const float3 d = vload3(p, position) + vload3(shift[row], shift_vector) - vload3(q, position);
    const float inverse = 1 / sqrt(dot(d, d)), inverse2 = inverse * inverse, inverse6 = inverse2 * inverse2 * inverse2;
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


@lru_cache(maxsize=16)
def force_kernel(context: cl.Context) -> HistogramKernel:
    """Return the histogram of forces: one element a pair, float32, three bins a particle."""
    return HistogramKernel(context, operators.add(np.float32), arguments=_ARGUMENTS, map=_MAP)


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

        `options` are those of `clhist.HistogramKernel.__call__`.
        """
        kernel = force_kernel(self.queue.context)
        return kernel(*self.arguments, num_bins=self.dest.size, dest=self.dest, queue=self.queue, **options)

    def timed(self, **choices: Any) -> dict[str, float]:
        """Return the seconds of each stage, on a queue of its own that measures them."""
        profiling = cl.CommandQueue(self.queue.context, self.queue.device, cl.command_queue_properties.PROFILING_ENABLE)
        kernel = force_kernel(self.queue.context)
        return kernel.timed(*self.arguments, num_bins=self.dest.size, queue=profiling, **choices)[1]

    def plan(self, **choices: Any) -> Plan:
        """Return how the forces are computed."""
        kernel = force_kernel(self.queue.context)
        return kernel.plan(self.arguments[0].size, self.dest.size, queue=self.queue, **choices)


def nonbonded_forces(data: NonbondedInput, *, queue: cl.CommandQueue | None = None, **options: Any) -> np.ndarray:
    """Return the forces after the loop (SC'20, section V-C).

    Parameters
    ----------
    data : NonbondedInput
        The pair list and the particles; nm, e, kJ/mol.
    queue : pyopencl.CommandQueue, optional
        Defaults to the default device's.
    **options
        Such as `race_factor` or `update`; see `clhist.HistogramKernel.__call__`.

    Returns
    -------
    float32 array of shape (n, 3)
        ``faction`` plus the forces of all pairs, kJ/(mol nm).
    """
    if not data.num_pairs:
        return data.faction.copy()
    return PairList.upload(data, queue).forces(**options).get().reshape(-1, 3)
