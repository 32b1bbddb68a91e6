"""Where `clhist bench` measures: the device's queues, the read floor, and one operator on one input, checked."""

from __future__ import annotations

from functools import partial
from itertools import cycle
from typing import Any

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array

from benchmarks.inputs import Input, InputSpec
from benchmarks.operators import OPERATORS, Benched
from clhist import Bound, HistogramKernel
from clhist._core.model.plan import Plan
from clhist._core.model.problem import COUNTER_BITS, PASS_ORDERS
from clhist._core.opencl.device import device_profile
from clhist._core.runtime.scatter import ScatterSpec, pair_spec, scatter_engine
from clhist.calibration.measure import Bench
from clhist.cli.timing import Samples, pipelined, read_floor, repeated
from clhist.errors import BuildError, UnsupportedError

Row = dict[str, Any]  # a row of the table, as --json writes it

LONGEST = 4.0  # seconds of one call: what is predicted to take longer is left out
_PROBE = 64  # one and two such parts of the input predict it
_PLAN = (
    "memory",
    "update",
    "copies",
    "cooperation",
    "passes",
    "pass_order",
    "counter_bits",
    "partitions",
    "work_groups",
    "work_group_size",
    "race_factor",
)

_WAYS: tuple[dict[str, Any], ...] = (
    {},
    *({"memory": "local", "pass_order": order, "counter_bits": 32} for order in PASS_ORDERS),
    *({"counter_bits": bits} for bits in reversed(COUNTER_BITS)),
    {"memory": "partitioned"},
    {"memory": "global"},
)


class Lab:
    """A device to measure.

    Parameters
    ----------
    queue : pyopencl.CommandQueue
        Where calls are enqueued; kernels are timed on another one, which has profiling.
    """

    def __init__(self, queue: cl.CommandQueue) -> None:
        self.queue, self.context, self.device = queue, queue.context, queue.device
        self.profiling = cl.CommandQueue(self.context, properties=cl.command_queue_properties.PROFILING_ENABLE)
        self.profile = device_profile(self.device)
        self._bench = Bench(self.context, self.profiling)
        self._kernels: dict[tuple[str, int], HistogramKernel] = {}

    def kernel(self, benched: Benched, components: int = 1) -> HistogramKernel:
        """Return the kernel of an operator, the same one every time; that of rows is `clhist.reduce_by_index`'s."""
        key = benched.name, components
        if key not in self._kernels:
            if components > 1:
                kernel = HistogramKernel.of(benched.operator, scatter_engine(self.context, self._spec_of_rows(*key)))
            else:
                kernel = HistogramKernel(self.context, benched.operator, arguments=benched.arguments, map=benched.map)
            self._kernels[key] = kernel
        return self._kernels[key]

    def _spec_of_rows(self, name: str, components: int) -> ScatterSpec:
        operator, indices = OPERATORS[name].operator, np.empty(0, np.int32)
        return pair_spec(operator, indices, (np.empty(0, operator.dtype),), components, self.device, False)

    def arguments(self, data: Input, benched: Benched) -> list[tuple[Any, ...]]:
        """Return the kernel's arguments for each of the equal inputs."""
        more = (data.spec.num_bins,) if data.spec.components > 1 else ()
        return [(*arrays, *more) for arrays in data.arrays(benched.arrays)]

    def size(self, spec: InputSpec, benched: Benched) -> int:
        """Return N as the kernel counts: values or, where a work-item has whole rows, rows."""
        if spec.components == 1:
            return spec.num_elements
        by_rows = self._spec_of_rows(benched.name, spec.components).by_rows
        return spec.num_elements if by_rows else spec.num_weights

    def input(self, spec: InputSpec, *, weighted: bool) -> Input:
        """Make an input.

        Raises
        ------
        MemoryError
            If the device has no room for it.
        """
        needed = spec.nbytes(weighted)
        room = min(self.device.max_mem_alloc_size, self.device.global_mem_size // 2)
        if needed > room:
            raise MemoryError(
                f"--num-elements: expected an input of at most {room:,} bytes on {self.device.name.strip()}, got "
                f"{spec.num_elements:,} {'elements' if spec.components == 1 else 'rows'} of {needed:,} bytes"
            )
        return Input(self.queue, spec, weighted=weighted, cache=self.profile.l2_cache)

    def floor(self, data: Input, nbytes: int) -> Samples:
        """Return F: the seconds that reading so many bytes of the input takes."""
        return read_floor(self._bench, [copy.data for copy in data.copies], nbytes)

    def measure(
        self, data: Input, benched: Benched, *, calls: bool = True, longest: float = LONGEST, **choices: Any
    ) -> Row:
        """Check an operator on an input, then time it.

        Parameters
        ----------
        data : Input
            What is read.
        benched : Benched
            What is computed.
        calls : bool
            Whether whole calls are timed as well as kernels.
        longest : float
            Seconds of one call: what is predicted to take longer is left out.
        **choices
            What the call is given besides; see `HistogramKernel.__call__`.

        Returns
        -------
        dict
            All about it, times in seconds. What is wrong, fails or would take too long is not timed: "note" says so,
            and "failed" is true unless it is only too long.
        """
        spec = data.spec
        row: Row = {
            "op": benched.name,
            "num_elements": spec.num_elements,
            "num_bins": spec.num_bins,
            "components": spec.components,
            "race_factor": spec.race_factor,
            "distribution": spec.distribution,
            "bytes": data.nbytes(benched.arrays),
            "is_cold": data.is_cold,
        }
        try:
            plan = self._plan(data, benched, choices)
            row["plan"] = {key: getattr(plan, key, None) for key in _PLAN}  # some are of one strategy
            predicted = self._predicted(data, benched, plan, choices)
            if predicted > longest:
                return row | {"note": f"left out: about {predicted:.1f} s a call"}
            return row | self._timed(data, benched, choices, calls)
        except (MemoryError, BuildError, UnsupportedError, cl.Error) as error:  # the other rows may still be had
            return row | {"failed": True, "note": f"{type(error).__name__}: {str(error).splitlines()[0][:100]}"}

    def ways(self, spec: InputSpec, benched: Benched, race_factor: float) -> list[dict[str, Any]]:
        """Return the choices that lead to each of the plans that could be taken, the automatic one first."""
        kernel, ways, seen = self.kernel(benched, spec.components), [], set()
        for way in _WAYS:
            choices = {"update": benched.update, **way}
            try:
                size = self.size(spec, benched)
                plan = kernel.plan(size, spec.shape, queue=self.queue, race_factor=race_factor, **choices)
            except (ValueError, MemoryError):  # impossible
                continue
            what = tuple(getattr(plan, name, None) for name in _PLAN)
            if what not in seen and not (way.get("pass_order") and plan.passes == 1):
                seen.add(what)
                ways.append(choices)
        return ways

    def _timed(self, data: Input, benched: Benched, choices: dict[str, Any], calls: bool) -> Row:
        spec = data.spec
        kernel, bins, arguments = self.kernel(benched, spec.components), spec.shape, self.arguments(data, benched)
        choices = choices | {"size": self.size(spec, benched)}
        run = partial(kernel.timed, num_bins=bins, queue=self.profiling, **choices)
        result, stages = run(*arguments[0])
        wrong = _wrong(result, data, benched)
        if wrong:
            return {"failed": True, "note": f"WRONG: {wrong}"}
        nbytes = data.nbytes(benched.arrays)
        floor = self.floor(data, nbytes)

        out = cl_array.empty(self.queue, bins, result.dtype)

        def bound(queue: cl.CommandQueue) -> cycle[Bound]:
            return cycle([kernel.bind(*args, num_bins=bins, out=out, queue=queue, **choices) for args in arguments])

        profiled = bound(self.profiling)  # into the same memory as calls: the first to touch new memory waits for it

        def of_kernels() -> float:
            return max(1e-9, sum(sum(stage_times.values()) for stage_times in next(profiled).timed()))

        def recorded(kernels: Samples) -> Row:
            return {
                "kernel": kernels.record(),
                "floor": floor.record(),
                "kernel_per_floor": kernels.median / floor.median,
                "bytes_per_second": nbytes / kernels.median,
            }

        if not calls:
            return recorded(repeated(of_kernels, sum(stages.values())))

        calling = bound(self.queue)

        def call() -> Any:
            return next(calling)()

        call()
        loop = pipelined(call, lambda last: self.queue.finish(), of_kernels)
        return recorded(loop.beside) | {
            "call": loop.whole.record(),
            "host": loop.host.record(),
            "call_per_floor": loop.whole.median / floor.median,
        }

    def _plan(self, data: Input, benched: Benched, choices: dict[str, Any]) -> Plan:
        spec, factor = data.spec, choices.get("race_factor", 1.0)
        kernel = self.kernel(benched, spec.components)
        if isinstance(factor, str):
            factor = kernel.race_factor(*self.arguments(data, benched)[0], num_bins=spec.shape).value
        others = choices | {"race_factor": factor}
        return kernel.plan(self.size(spec, benched), spec.shape, queue=self.queue, **others)

    def _predicted(self, data: Input, benched: Benched, plan: Plan, choices: dict[str, Any]) -> float:
        """Return about how many seconds a call takes where work-items may wait for each other without bound."""
        if plan.update not in ("cas", "lock"):
            return 0.0
        same = choices | plan.choices
        spec = data.spec
        run = partial(self.kernel(benched, spec.components).timed, *self.arguments(data, benched)[0], **same)

        def seconds(parts: int) -> float:
            size = max(1, self.size(spec, benched) * parts // _PROBE)
            runs = (run(num_bins=spec.shape, queue=self.profiling, size=size) for _ in range(2))
            return min(sum(stages.values()) for _, stages in runs)

        one, two = seconds(1), seconds(2)
        return one + (_PROBE - 1) * max(0.0, two - one)


def _wrong(result: Any, data: Input, benched: Benched) -> str:
    """Return where a result differs from the host's, or nothing; of rows, in the components that are looked at."""
    got = result.get()
    if data.spec.components == 1:
        return difference(got, benched.reference(data.host))
    for component in data.spec.checked_components():
        wrong = difference(got[:, component], benched.reference(data.host_of(component)))
        if wrong:
            return f"component {component} of {wrong}"
    return ""


def difference(got: np.ndarray, expected: np.ndarray) -> str:
    """Return where a result differs from what was expected, or nothing."""
    if got.shape != expected.shape:
        return f"shape {got.shape}, expected {expected.shape}"
    wrong = np.flatnonzero(got != expected)
    if not wrong.size:
        return ""
    first = wrong[0]
    return f"bin {first} is {got[first]}, expected {expected[first]}; {wrong.size} of {got.size} bins differ"
