"""Private copies that are updated by way of buckets; see `clhist.planning.bucketed`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from clhist.codegen.layout import bucket_layout
from clhist.engine.stages import Enqueued, Sweep, Tasks
from clhist.opencl.memory import Allocator, allocated
from clhist.planning.bucketed import BucketedPlan


@dataclass(frozen=True, eq=False, kw_only=True)
class BucketedSweep(Sweep):
    """A sweep whose work-items have buckets, in scratch memory of their own."""

    plan: BucketedPlan

    def enqueue(self, enqueued: Enqueued, tasks: Tasks, values: Mapping[str, object], allocate: Allocator) -> None:
        """Enqueue it.

        Raises
        ------
        MemoryError
            If the buckets cannot be allocated.
        """
        plan, spec = self.plan, self.spec
        layout, size = bucket_layout(plan, 0 if spec.value is not None else spec.outputs[0].operator.dtype.itemsize)
        more = {
            "clhist_waiting": allocated(allocate, size, self.purpose),
            "clhist_buckets": plan.buckets,
            "clhist_bucket_bits": plan.place_bits,
            "clhist_bucket_room": plan.room,
        }
        super().enqueue(enqueued, tasks, {**values, **layout, **more}, allocate)
