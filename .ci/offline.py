"""Compile every kind of kernel for hardware that is not here, and look for the instructions that are meant.

    .ci/offline.py TOOLS [TARGET ...]

TOOLS is a directory into which Debian's packages were unpacked (.ci/tools): clang-16, rocm-device-libs, libclc-16 and
intel-opencl-icd; what is installed will do as well. Programs are planned and rendered as for a device of which OpenCL
says what TARGETS say; of hardware atomics that must be proven on the device, it has those that the compiler knows.
"""

from __future__ import annotations

import multiprocessing
import re
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from compilers import NVIDIA, TARGETS, Target, Tools
from isa import lock_faults, of_assembly

from clhist import operators
from clhist._core.devices.profile import Profile, Report, merge
from clhist._core.devices.profile_files import load_profiles
from clhist._core.devices.vendors import PROVEN_FENCE, features_of, to_prove
from clhist._core.kernels.digit_sort import lanes_of
from clhist._core.kernels.from_plan import Programs, programs_of, sweep_spec
from clhist._core.kernels.key_ranges import key_sizes
from clhist._core.kernels.key_table import KeySpec
from clhist._core.kernels.maps import RowText
from clhist._core.kernels.render import (
    render_combine,
    render_digits,
    render_keys,
    render_measure,
    render_partition,
    render_rows,
    render_sampled_keys,
    render_scan,
    render_sort_pairs,
    render_strategy,
    render_sweep,
)
from clhist._core.kernels.scan import lanes_of as lanes_to_scan
from clhist._core.kernels.source import Source
from clhist._core.kernels.specs import CombineSpec, SweepPart
from clhist._core.model.feature import CyclicPasses, PackedCounters
from clhist._core.model.packed import WIDTHS
from clhist._core.model.plan import Plan
from clhist._core.model.problem import FREE, SIDE_BY_SIDE, Choices, Problem, Rows
from clhist._core.model.sweeps import plan
from clhist._core.model.updates import BY_NAME
from clhist._core.opencl.probe import probe_code
from clhist._core.runtime.sort import pairs_scan
from clhist.axes.block_search import EVEN, KEYED, LINEAR
from clhist.axes.edges import EdgesKind
from clhist.binned.even_edges import EvenEdgesSpec, render_even_edges
from clhist.binned.extent_kernel import ExtentSpec, render_extent
from clhist.binned.numbers import NumbersSpec, render_numbers
from clhist.binned.sweep import BinnedKind
from clhist.operators.operator import Operator
from clhist.strategies import STRATEGIES, DeviceLimits, NotApplicable, StrategyRecipe
from clhist.strategies import StrategyProblem as Counting

WORKERS = 2


@dataclass(frozen=True)
class Program:
    """Source, options, regular expressions of what must be in the machine's code, and of what must not."""

    name: str
    source: str
    options: tuple[str, ...] = ()
    wanted: tuple[str, ...] = ()
    unwanted: tuple[str, ...] = ()


def profile_of(target: Target, tools: Tools) -> Profile:
    """Return the profile, with the features that such a device shows."""
    vendor, extensions, platform, version = target.driver
    said = features_of(f"{extensions} {target.more}", platform, version)
    found, fence = set(said), PROVEN_FENCE.feature
    for atomic in to_prove(said):
        if atomic.word != "double" or "fp64" in said:
            code, _ = tools.compile(target, probe_code([atomic]), atomic.options)
            if "clhist_prove0" in code:
                found.add(str(atomic.feature))
    if (
        fence in found
        and "clhist_prove_fence" not in tools.compile(target, probe_code([]), PROVEN_FENCE.fence_options)[0]
    ):
        found.remove(fence)
    aliases = (target.name,) if vendor == NVIDIA[0] else ()
    report = Report(
        target.device, vendor, "gpu", target.compute_units, target.group, target.local_memory, 2**22, 64, aliases,
        frozenset(found),
    )  # fmt: skip
    merged = merge(report, load_profiles())
    return replace(
        merged, features=frozenset(found), local_memory=min(merged.local_memory, target.local_memory), rates={}
    )


def instruction(vendor: str, part: SweepPart, memory: str) -> str:
    """Return the regular expression of what `part` must become; Intel's local memory is what has no "a64" addresses."""
    bits, atomic = 8 * part.part.cell_bytes, BY_NAME[part.update].atomic
    local = memory == "local"
    of_float = part.part.dtype.kind == "f"
    assert atomic != "operation" or part.part.operation == "add"
    if vendor == "amd":
        wide = "_x2" if bits == 64 else ""
        return {
            "exchange": r"ds_wrxchg_rtn_b32" if local else r"(global|flat)_atomic_swap\b",
            "compare-exchange": rf"ds_cmpst_rtn_b{bits}" if local else rf"(global|flat)_atomic_cmpswap{wide}[ \t]",
            "operation": rf"{'ds' if local else 'global_atomic'}_add_(rtn_)?f{bits}" if of_float
            else rf"ds_add_(rtn_)?u{bits}" if local else rf"(global|flat)_atomic_add{wide}[ \t]",
        }[atomic]  # fmt: skip
    if vendor == "nvidia":
        space = "shared" if local else "global"
        return {
            "exchange": rf"atom\.{space}\.exch\.b32",
            "compare-exchange": rf"atom\.{space}\.cas\.b{bits}",
            "operation": rf"(red|atom)\.{space}\.add\.{'f' if of_float else '[us]'}{bits}",
        }[atomic]
    if vendor != "intel":
        raise ValueError(f"vendor: expected one whose instructions are known here, got {vendor!r}")
    narrowest = "(32|64)" if local and bits == 64 else bits  # of 64 bits the compiler makes a lock in local memory
    address = r"untyped (?!a64)(?!.*a64)" if local else r"untyped .*"
    return {
        "exchange": rf"{address}.*atomic.*int32 store|{address}.*atomic.*xchg",
        "compare-exchange": rf"{address}.*atomic.*int{narrowest} integer compare and swap",
        # Of floats in local memory the compiler makes a loop.
        "operation": rf"a64 float atomic add|{address}.*atomic.*(float.* add|integer compare and swap)" if of_float
        else rf"{address}.*atomic.*int{narrowest} integer (add|increment|compare and swap)",
    }[atomic]  # fmt: skip


LOOPS = {"amd": r"cmpswap|cmpst", "nvidia": r"atom\.\w+\.cas", "intel": r"never"}
FENCE = {"amd": r"buffer_wbinvl1|buffer_gl0_inv", "nvidia": r"membar\.gl", "intel": r"[Ff]ence"}
X, XW = "const int *x", "const int *x, const float *w"
LARGER = operators.argmax(np.int64, np.int64)


def found_ranges(fp64: bool) -> Iterator[Program]:
    """Yield what finds extremes, what makes bins between them in double precision, and numbers of bins."""
    for dtype in map(np.dtype, ("float16", "float32", "uint64")):
        data = np.dtype(np.int16) if dtype == np.float16 else dtype
        yield Program(f"extent of {dtype}", render_extent(ExtentSpec(dtype, data, True, 2, 1, 256)))
    for dtype in map(np.dtype, ("float32", "float64", "int16", "uint64") * fp64):
        edges = EvenEdgesSpec(EdgesKind(dtype, EVEN, as_bits=False, from_data=True), 1024, 256)
        yield Program(f"even edges of {dtype}", render_even_edges(edges))
    for dtype, guess in (("float32", EVEN), ("int64", LINEAR), *[("float64", KEYED)] * fp64):
        kind = BinnedKind((EdgesKind(np.dtype(dtype), guess, as_bits=False, steps=2 * (guess != EVEN)),), masked=True)
        yield Program(
            f"numbers of bins of {dtype}", render_numbers(NumbersSpec(replace(kind, masked=False)), in_shares=False)
        )
        yield Program(f"bins of {dtype}", render_numbers(NumbersSpec(kind, places=True), in_shares=False))


def programs(target: Target, profile: Profile) -> Iterator[Program]:
    """Yield what is compiled: each update in each memory, and everything else once."""
    features = profile.features or frozenset()
    fp64 = "fp64" in features
    counts = operators.add(np.int32)
    for memory in ("local", "global"):
        for operator in (counts, operators.add(np.float32), *[operators.add(np.float64)] * fp64):
            arguments, code = (X, "EMIT(x[i], 1)") if operator is counts else (XW, "EMIT(x[i], w[i])")
            yield from sweep(target, profile, operator, arguments, code, 2000, choices=Choices(memory=memory))
        yield from sweep(target, profile, counts, X, "EMIT(x[i], 1)", 100, choices=Choices("private", memory))
        for operator in (operators.saturating_add(np.int32, 2**24), operators.add(np.float32)):
            code = "EMIT(x[i], 1)"
            yield from sweep(target, profile, operator, X, code, 2000, choices=Choices("cas", memory))
        if "int64_base_atomics" in features:
            yield from sweep(
                target, profile, operators.multiply(np.int64), X, "EMIT(x[i], 3)", 500, choices=Choices("cas", memory)
            )
        larger = "EMIT(x[i], ((value_t){x[i], i}))"
        yield from sweep(target, profile, LARGER, X, larger, 500, choices=Choices(memory=memory))
    for operator, value in ((counts, "1"), (LARGER, "((value_t){x[i], i})")):
        source = Source.of(X, f"EMIT(x[i], {value})", [operator])
        alone = replace(planned(source, profile, 500, Choices(memory="local")), work_groups=1, is_one_launch=True)
        spec = sweep_spec(alone, source, profile, aligned=True)
        yield Program(f"one launch, {operator.name}", render_sweep(spec), spec.options)
    for bits in WIDTHS:  # and what is behind them: passes, or partitions of many bins
        for bins in (profile.local_memory * 3 // 8, profile.local_memory * 4):
            choices = Choices(counter_bits=bits)
            yield from sweep(target, profile, counts, X, "EMIT(x[i], 1)", bins, choices=choices)
        for batch in ("", "ragged"):
            packed = CombineSpec(counts, "interleaved", 32, 8, batch, features=(PackedCounters(bits),))
            yield Program(f"combine counters of {bits} bits, {batch or 'passes'}", render_combine(packed))
    for operator in (operators.add(np.float32), LARGER):  # cyclic passes
        value = "1" if operator is not LARGER else "((value_t){x[i], i})"
        choices = Choices(memory="local", pass_order=SIDE_BY_SIDE)
        yield from sweep(target, profile, operator, X, f"EMIT(x[i], {value})", profile.local_memory, choices=choices)
        yield Program(
            f"combine cyclic passes of {operator.name}",
            render_combine(CombineSpec(operator, "interleaved", features=(CyclicPasses(),))),
        )
    for operator, value in ((counts, "1"), (operators.add(np.float32), "w[i]"), (LARGER, "((value_t){x[i], i})")):
        arguments, bins = XW if "w" in value else X, 10_000 if operator is LARGER else 100_000
        choices = Choices(memory="partitioned")
        yield from sweep(target, profile, operator, arguments, f"EMIT(x[i], {value})", bins, choices=choices)
    for batch in ("equal", "ragged"):
        yield from sweep(target, profile, counts, X, "EMIT(x[i], 1)", 50, batch=batch, name=batch)
    if fp64:
        yield from sweep(target, profile, operators.mean(np.float32), XW, "EMIT(x[i], w[i])", 500, name="two parts")
    for operator in (counts, operators.variance(np.float32, accumulator=np.float32), LARGER):
        for rows in (1, 16):
            yield Program(
                f"combine {operator.name}, {rows} rows", render_combine(CombineSpec(operator, "interleaved", 32, rows))
            )
    for components, bins in ((64, 100_000), (3, 500)):
        rows = RowText(Rows(components, is_element=False), "x[i]", "w[element]", "w")
        source = Source.of(XW, "EMIT(x[i], w[i])", [operators.add(np.float32)], rows=rows)
        for size in (2000, 10**6):
            asked = Problem(
                source.histograms([bins * components]), size * components, choices=Choices("gather"),
                memory_budget=2**33, rows=rows.rows,
            )  # fmt: skip
            found = programs_of(plan(asked, profile), source, profile, aligned=True).rows
            yield Program(f"{size} rows of {components}", render_rows(found))
    source = Source.of(X, "EMIT(x[i], ((value_t){x[i], i}))", [LARGER])
    spec = replace(sweep_spec(planned(source, profile, 500), source, profile, aligned=False), work_group_size=256)
    yield Program("pairs to sort", render_sort_pairs(spec, 1))
    scan = pairs_scan(LARGER)
    lanes = lanes_to_scan(scan.item_bytes, 256, profile.local_memory)
    yield Program(f"scan of sorted pairs, {lanes} work-items", render_scan(scan, lanes))
    for name in ("local_memory", "local_argument", "read", "scatter", "stride", "residents", "nothing"):
        yield Program(f"measure {name}", render_measure(name, words=4096))
    for dtype in map(np.dtype, ("int32", "float32", *["int64", "datetime64[ns]"] * ("int64_base_atomics" in features))):
        yield Program(f"keys of {dtype}", render_keys(KeySpec(dtype, first=True), several=True))
        sizes = key_sizes(KeySpec(dtype).word, profile.local_memory, 256, first=True)
        spec = KeySpec(dtype, first=True)
        yield from (Program(f"{stage} of {dtype}", render_sampled_keys(spec, sizes, stage)) for stage in sizes.stages)
        yield Program(f"near keys of {dtype}", render_keys(KeySpec(dtype, first=True, marked=True), several=True))
    yield from found_ranges(fp64)
    for word in map(np.dtype, (np.uint32, np.uint64)):
        yield Program(f"keys to sort of {word}", render_digits(word, lanes_of(word, 256, profile.local_memory)))


def planned(
    source: Source, profile: Profile, bins: int, choices: Choices = FREE, histograms: int | None = None,
    equal_shares: bool = True,
) -> Plan:  # fmt: skip
    """Return the plan of a call with one operator."""
    return plan(
        Problem(
            source.histograms([bins]), 10_000_000, histograms, equal_shares, choices=choices, memory_budget=2**33,
            read_bytes=source.read_bytes,
        ),
        profile,
    )  # fmt: skip


def sweep(
    target: Target, profile: Profile, operator: Operator, arguments: str, code: str, bins: int, *,
    choices: Choices = FREE, batch: str = "", name: str = "",
) -> Iterator[Program]:  # fmt: skip
    """Yield the programs of one sweep, with the instructions that its parts must become."""
    source = Source.of(arguments, code, [operator])
    chosen = planned(source, profile, bins, choices, 1000 if batch else None, batch != "ragged")
    programs = programs_of(chosen, source, profile, aligned=True)
    title = name or f"{operator.name} {operator.accumulator if operator.accumulator.names is None else 'struct'}"
    yield from compiled(target, programs, f"{title}, {chosen.strategy}")


def compiled(target: Target, programs: Programs, title: str) -> Iterator[Program]:
    """Yield these programs, with the instructions that they must become, and those of what is behind them."""
    if programs.behind is not None:
        yield from compiled(target, programs.behind, f"behind {title}")
    spec = programs.sweep
    if programs.partition is not None:
        increment = {
            "amd": r"ds_(inc|add)_rtn_u32", "nvidia": r"atom\.shared\.(inc|add)\.[us]32",
            "intel": r"atomic int32 integer (increment|add)",
        }  # fmt: skip
        split = render_partition(programs.partition)
        yield Program(f"{title}: split and index", split, (), (increment[target.vendor],))
    wanted = {instruction(target.vendor, part, spec.memory) for part in spec.parts if part.update != "private"}
    unwanted = set()
    looks_ahead = spec.replaces_cells  # by hashing
    may_loop = (spec.hot_bin and spec.memory == "local") or looks_ahead
    if all(part.update == "native" for part in spec.parts) and not may_loop:
        unwanted.add(LOOPS[target.vendor])
    if spec.update == "lock" and spec.memory == "global":
        wanted.add(FENCE[target.vendor])
    if spec.warp.reconvergence:
        wanted.add(r"bar\.warp\.sync")
    how = "; ".join([f"{spec.memory} {spec.update}", *filter(None, (each.comment() for each in spec.features))])
    yield Program(f"{title}, {how}", render_sweep(spec), spec.options, tuple(wanted), tuple(unwanted))


def published(target: Target, profile: Profile) -> Iterator[Program]:
    """Yield the kernels of the published strategies."""
    room, sub_groups = min(target.local_memory, 49152), "core" if target.vendor == "intel" else ""
    limits = DeviceLimits(profile, room, target.compute_units, target.group, 2**30, sub_groups)
    for strategy in STRATEGIES.values():
        try:
            recipe = strategy.plan(Counting(1_000_000, 100, "int", "x", limits))
        except NotApplicable:
            continue
        if isinstance(recipe, StrategyRecipe) and recipe.template != "registers":  # its array is in scratch memory
            text = render_strategy(recipe.template, element="int", bin="x", **recipe.constants)
            yield Program(strategy.name, text, recipe.options)


def different(programs: Iterable[Program]) -> list[Program]:
    """Return the programs that differ in more than their names: what is behind several is often the same."""
    return list({replace(program, name=""): program for program in programs}.values())


def check(given: tuple[str, Target, Program]) -> str:
    """Return what is wrong with a program on a target."""
    directory, target, program = given
    code, wrong = Tools(directory).compile(target, program.source, program.options)
    if not code:
        return wrong.strip()[:2000] or "no code"
    missing = [f"no {pattern}" for pattern in program.wanted if not re.search(pattern, code)]
    there = [f"unwanted {pattern}" for pattern in program.unwanted if re.search(pattern, code)]
    locks = lock_faults(of_assembly(code)) if target.vendor == "amd" else []
    return "; ".join([*([wrong] if wrong else []), *missing, *there, *locks])


def main(directory: str, *names: str) -> int:
    """Compile all for all; return 1 if anything is wrong, or a compiler is missing."""
    begin, failed = time.monotonic(), 0
    directory = str(Path(directory).resolve())
    tools = Tools(directory)
    with multiprocessing.get_context("fork").Pool(WORKERS) as pool:
        work = []
        for target in (each for each in TARGETS if not names or each.name in names):
            if missing := tools.missing(target.vendor):
                print(f"SKIPPED {target.name}: no {', '.join(missing)}")
                failed += 1
                continue
            profile = profile_of(target, tools)
            proven = sorted(f.split(":")[1] for f in profile.features or () if ":" in f)
            print(f"{target.name}: {profile.name}; proven by compiling: {', '.join(proven) or 'nothing'}")
            found = different([*programs(target, profile), *published(target, profile)])
            work.append((target, found, pool.map_async(check, [(directory, target, program) for program in found], 1)))
        for target, found, results in work:
            wrong = [(program.name, text) for program, text in zip(found, results.get(600), strict=True) if text]
            print(f"{target.name:8} {len(found) - len(wrong)} of {len(found)} programs")
            for name, text in wrong:
                print(f"   FAILED {name}: {text}")
            failed += len(wrong)
    print(f"{f'{failed} FAILED' if failed else 'all as meant'}: {time.monotonic() - begin:.0f} s")
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
