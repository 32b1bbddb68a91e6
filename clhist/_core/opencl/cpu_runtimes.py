"""The cost of a launch, and the fastest of several CPU runtimes, measured once and stored in the cache directory.

The choice at first use compiles nothing: it compares the time of a small command, for some milliseconds in all.
`measure_kernels`, behind ``clhist warm``, compares kernels as well. Note [The fastest CPU runtime],
docs/decisions/0003.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from math import inf, prod
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import platformdirs
import pyopencl as cl

from clhist._core.opencl.caches import is_writable
from clhist.errors import BuildError
from clhist.files.sealed import read_measurement, write_measurement

FIGURES = {
    "launch": "a launch",
    "bandwidth": "a sum of 16 MB",
    "reduction": "counts of 1 M values into 256 bins",
}
_MARGIN = 0.9  # a later runtime is chosen below this part of the time, so that noise does not decide
_ROUNDS, _REPEATS = 8, 5  # in turn; the least time is that without other work on the cores
_ZERO = np.zeros(1, np.int32)
_WORDS, _VALUES, _BINS = 2**22, 2**20, 256  # of the sum, and of the counts: see `FIGURES`
_SOURCE = f"""
kernel void clhist_launch(global const int *from, global int *to, const int n)
{{
    if (n < 0) to[0] = 0;
}}
kernel void clhist_bandwidth(global const int *from, global int *to, const int n)
{{
    int sum = 0;
    for (int i = get_global_id(0) * n; i < (get_global_id(0) + 1) * n; i++) sum += from[i];
    to[get_global_id(0)] = sum;
}}
kernel void clhist_reduction(global const int *from, global int *to, const int n)
{{
    global int *const copy = to + get_global_id(0) * {_BINS};
    for (int i = get_global_id(0) * n; i < (get_global_id(0) + 1) * n; i++) copy[from[i] & {_BINS - 1}]++;
}}
"""

Figures = dict[str, float]  # seconds by the names of `FIGURES`
_figures: dict[tuple[cl.Device, ...], list[Figures]] = {}


def fastest_first(devices: Sequence[cl.Device]) -> list[cl.Device]:
    """Return CPU devices of several runtimes, the fastest first; measure launches if nothing is stored.

    The order stays where nothing can be stored: processes that measure anew could choose differently.
    """
    figures = figures_of(devices)
    # A measurement that cannot be stored would be repeated, with noise, in each process.
    if figures is None and is_writable(platformdirs.user_cache_path("clhist")):
        figures = _store(devices, _in_turn([_commands(device) for device in devices]))
    if figures is None:
        return [*devices]
    # Only `clhist warm` measures kernels: figures that some device lacks decide nothing.
    names = [name for name in FIGURES if all(name in row for row in figures)]
    # Products compare runtimes by the ratios of all figures, whatever their units.
    times = [prod(row[name] for name in names) for row in figures]
    best = 0
    for n, time in enumerate(times):
        # The first device stays the best unless another one is clearly faster.
        best = n if time < _MARGIN * times[best] else best
    return [devices[best], *(device for n, device in enumerate(devices) if n != best)]


def figures_of(devices: Sequence[cl.Device]) -> list[Figures] | None:
    """Return the stored figures of each of these devices, which were measured together; None if there are none."""
    key = tuple(devices)
    if key not in _figures and (stored := read_measurement("runtimes", _facts(devices))) is not None:
        _figures[key] = stored
    return _figures.get(key)


def launch_seconds(device: cl.Device, context: cl.Context | None = None) -> float:
    """Return the least seconds of a small command of a device, in this process and in earlier ones.

    A measurement takes about a millisecond. One beside other work on the cores is several times too large, so that
    later processes correct it.

    Parameters
    ----------
    device : pyopencl.Device
        A CPU or a GPU.
    context : pyopencl.Context, optional
        Of the device; on a GPU a new one takes a tenth of a second.
    """
    (figures,) = _in_turn([_commands(device, context)])
    stored = figures_of([device])
    if stored is not None and stored[0]["launch"] <= figures["launch"]:
        return stored[0]["launch"]
    return _store([device], [figures], replace=True)[0]["launch"]


def comparison(devices: Sequence[cl.Device]) -> str | None:
    """Return the stored figures of these devices as text, the fastest first; None if there are none."""
    ordered = fastest_first(devices)
    stored = dict(zip(devices, figures_of(devices) or (), strict=False))
    if not stored:
        return None
    figures = [stored[device] for device in ordered]
    names = " / ".join(device.platform.name.strip() for device in ordered)
    rows = [
        f"{text} {' / '.join(f'{row[name] * 1e6:,.1f}' for row in figures)} µs"
        for name, text in FIGURES.items()
        if all(name in row for row in figures)
    ]
    return f"fastest CPU runtime ({names}): {', '.join(rows)}"


def measure_kernels(devices: Sequence[cl.Device]) -> list[Figures]:
    """Build kernels for each device, measure them, store the figures, and return them."""
    return _store(devices, _in_turn([_kernels(device) for device in devices]), replace=True)


def _store(devices: Sequence[cl.Device], figures: list[Figures], *, replace: bool = False) -> list[Figures]:
    """Store figures, and return those that other processes read: one of them may have been quicker."""
    # A figure is infinite after an error, which may not happen again: it is not stored.
    if inf not in (seconds for row in figures for seconds in row.values()):
        earlier = None if replace else read_measurement("runtimes", _facts(devices))
        if earlier is None:
            write_measurement("runtimes", _facts(devices), figures)
        figures = earlier or figures
    _figures[tuple(devices)] = figures
    return figures


def _facts(devices: Sequence[cl.Device]) -> list[Any]:
    """Return what the figures depend on."""
    # A new driver, another processor or another kernel needs new figures.
    drivers = [[d.platform.version, d.driver_version, d.name, d.max_compute_units] for d in devices]
    return [drivers, processor_aliases(CPUINFO), _SOURCE]


def _in_turn(runs: Sequence[dict[str, Callable[[], object]]]) -> list[Figures]:
    """Return the least seconds of the commands of each device, which take turns; infinite after an error."""
    figures: list[Figures] = [dict.fromkeys(commands, inf) for commands in runs]
    # Devices take turns, so that other work on the cores slows all of them alike.
    for _ in range(_ROUNDS):
        for commands, row in zip(runs, figures, strict=True):
            for name, run in commands.items():
                row[name] = min(row[name], _least_seconds(run))
    return figures


def _least_seconds(run: Callable[[], object]) -> float:
    """Return the least seconds of some calls; infinite if the first one raises."""
    least = inf
    with suppress(cl.Error):  # the other runtime may work
        for _ in range(_REPEATS):
            start = perf_counter()
            run()
            least = min(least, perf_counter() - start)
    return least


def _commands(device: cl.Device, context: cl.Context | None = None) -> dict[str, Callable[[], object]]:
    """Return a command that needs no compiler: a fill takes the way of a launch through the driver."""
    try:
        context = context or cl.Context([device])
        queue = cl.CommandQueue(context)
        buffer = cl.Buffer(context, cl.mem_flags.READ_WRITE, 64)
    except cl.Error:
        return {"launch": _failed}

    def launch(_context: cl.Context = context) -> None:  # a queue of Intel's runtime does not keep its context alive
        cl.enqueue_fill_buffer(queue, buffer, _ZERO, 0, 64)
        queue.finish()

    return {"launch": launch}


def _kernels(device: cl.Device) -> dict[str, Callable[[], object]]:
    from clhist._core.opencl.program import build  # here, since only `clhist warm` builds

    try:
        context = cl.Context([device])
        queue = cl.CommandQueue(context)
        program = build(context, _SOURCE)
        items = device.max_compute_units
        values = np.random.default_rng(0).integers(0, _BINS, _WORDS, dtype=np.int32)
        source = cl.Buffer(context, cl.mem_flags.COPY_HOST_PTR, hostbuf=values)
        target = cl.Buffer(context, cl.mem_flags.READ_WRITE, 4 * _BINS * items)
        cl.enqueue_fill_buffer(queue, target, _ZERO, 0, target.size)
    except (cl.Error, BuildError):
        return dict.fromkeys(FIGURES, _failed)

    def run(name: str, number: int) -> Callable[[], object]:
        kernel = cl.Kernel(program, f"clhist_{name}")
        kernel.set_args(source, target, np.int32(number // items))

        def launch(_alive: Any = (context, source, target)) -> None:  # which neither kernel nor queue keep alive
            cl.enqueue_nd_range_kernel(queue, kernel, (items,), (1,))
            queue.finish()

        return launch

    numbers = {"launch": 0, "bandwidth": _WORDS, "reduction": _VALUES}
    return {name: run(name, number) for name, number in numbers.items()}


def _failed() -> None:
    raise cl.RuntimeError("the device could not be prepared")


CPUINFO = Path("/proc/cpuinfo")  # of Linux
_FACT = re.compile(r"^[ \t]*([^:\n]*?)[ \t]*:[ \t]*(.*?)[ \t]*$", re.MULTILINE)  # a key and its value
_INSTRUCTION_SETS = ("amx_bf16", "avx512f", "avx2")  # tell virtual processors without a name apart


def processor_aliases(path: Path) -> tuple[str, ...]:
    """Return vendor, family, model and instruction sets of the host's processor as one text, if Linux tells them."""
    try:
        first = path.read_text(encoding="utf-8", errors="replace").partition("\n\n")[0]
    except OSError:
        return ()
    # The first paragraph is the first core: all others are taken to be alike.
    facts = dict(_FACT.findall(first))
    sets = [name for name in _INSTRUCTION_SETS if name in facts.get("flags", "").split()]
    if "vendor_id" not in facts:
        return ()
    return (" ".join([facts["vendor_id"], *(f"{k} {facts.get(k, '?')}" for k in ("cpu family", "model")), *sets]),)
