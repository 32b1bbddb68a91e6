"""Rendering of OpenCL C from a specification: pure text, no device."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from clhist._core.kernel_code import ALONE, with_arrays
from clhist._core.kernels.combine_code import CombineState
from clhist._core.kernels.from_plan import Programs
from clhist._core.kernels.maps import is_elementwise, read_ahead, uses_position
from clhist._core.kernels.parameters import (
    accumulator_words,
    clear_parameters,
    combine_parameters,
    combining_arguments,
    index_parameters,
    join_parameters,
    look_parameters,
    pairs_parameters,
    result_arguments,
    result_parameters,
    sample_parameters,
    split_parameters,
    sweep_parameters,
)
from clhist._core.kernels.specs import CombineSpec, Output, SampleSpec, SweepSpec
from clhist._core.kernels.state import SweepState
from clhist._core.kernels.stored_source import stored_source
from clhist._core.templates import render, text_of
from clhist.operators.halves import declared
from clhist.operators.operator import Operator

if TYPE_CHECKING:
    from clhist._core.kernels.key_ranges import KeySizes
    from clhist._core.kernels.key_table import KeySpec
    from clhist._core.kernels.partitions import PartitionSpec
    from clhist._core.kernels.row_kernels import RowKernelSpec
    from clhist._core.kernels.rows import RowsSpec
    from clhist._core.kernels.scan import ScanSpec


@stored_source
def render_sweep(spec: SweepSpec) -> str:
    """Return the OpenCL C program with the kernel ``clhist_sweep``, and those of the second stage if it is in there."""

    second_stage = (
        "" if spec.combine is None else _render_combine(spec.combine, is_within=True, function=spec.second_stage)
    )
    sweep = render(
        "sweep.mako",
        spec=spec,
        streamed=spec.streamed,
        parts=spec.parts,
        kernel_parameters=sweep_parameters(spec),
        state=SweepState(spec),
        **_map_of(spec),
        bins_are_computed=_may_compute_bins(spec),
        second_stage=second_stage if spec.writes_results else "",
        combining=combining_arguments(spec),
        results=result_arguments(spec),
        join_parameters=join_parameters(spec) if spec.writes_results and not spec.fused_combine else (),
    )
    # Second stages with types of their own follow the sweep; one that the sweep calls is inside it already.
    if spec.stages:
        second_stage = render_combines(spec.stages, (*spec.ignored, *spec.outputs))
    elif spec.combine is None or spec.writes_results:
        return sweep
    return f"{sweep}\n{second_stage}"


def render_programs(programs: Programs) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Yield what each program of a plan is called, its OpenCL C, and the compiler options that it needs.

    Of sorted pairs it is the kernel that writes them: their sort and scan are the same for all maps.
    """
    spec = programs.sweep
    if programs.sorted_pairs:
        yield "pairs", render_sort_pairs(spec, programs.sorted_pairs, checked=programs.checks_pairs), ()
        return
    if programs.partition is not None:
        yield "split and index", render_partition(programs.partition), ()
    if programs.rows is not None:
        yield "rows", render_rows(programs.rows), ()
    else:
        yield "sweep", render_sweep(spec), spec.options
    if programs.look is not None:
        yield "look", render_look(programs.look), ()
    if programs.behind is not None:
        for name, text, options in render_programs(programs.behind):
            yield f"behind: {name}", text, options


def _map_of(spec: SweepSpec) -> dict[str, Any]:
    """Return the variables of a template that has the map: the preambles of all operators, and the map's body."""
    preambles = _preambles((*spec.ignored, *spec.outputs))
    return {"preamble_of": preambles, "map_body": read_ahead(spec.map, spec.streamed)}


def _may_compute_bins(spec: SweepSpec) -> bool:
    """Whether a compiler may be able to derive the bin of one value from the bin of the value before."""
    if spec.indices is not None:  # bins are elements of an array, whatever the values are
        return False
    elementwise = [argument for argument in spec.arguments if is_elementwise(argument, spec.map, spec.preamble)]
    # In a loop, or from `i`, the map may compute bins that follow from the one before.
    loops = re.search(r"\b(for|while|do|goto)\b", f"{spec.map} {spec.preamble}")
    return loops is not None or uses_position(elementwise, spec.map, spec.preamble)


def _preambles(outputs: Iterable[Output]) -> dict[Output, str]:
    """Return the preamble of each operator, without text that an earlier one has defined already."""
    preambles: dict[Output, str] = {}
    seen: list[tuple[str, dict[str, np.dtype]]] = []
    for output in outputs:
        text = output.operator.preamble
        types = {"value_t": output.operator.dtype, "accumulator_t": output.operator.accumulator}
        # Operators may share helper functions, which a program must define once.
        for earlier, of in seen:
            # The shorter preamble may be some whole lines of the longer one.
            common = min(text, earlier, key=len)
            whole_lines = rf"^{re.escape(common)}$"
            # Text that names value_t or accumulator_t may mean another type in another output.
            same = all(of[name] == types[name] for name in types if re.search(rf"\b{name}\b", common))
            if common and same and all(re.search(whole_lines, preamble, re.MULTILINE) for preamble in (text, earlier)):
                text = re.sub(whole_lines, "", text, flags=re.MULTILINE).strip()
        preambles[output] = text
        seen.append((text, types))
    return preambles


@stored_source
def render_combine(spec: CombineSpec) -> str:
    """Return the OpenCL C program with the kernels ``clhist_clear`` and ``clhist_combine_copies``."""
    return _render_combine(spec)


# What the program of a second stage defines; the names of its arguments begin alike, and are the parameters'.
_DEFINED = re.compile(r"\b(?:value_t|accumulator_t|(?:part|word|cell)\d+_t|clhist_(?:clear|combine_copies|finish|lift)|"
                      r"clhist_(?:combine|neutral)\d*|clhist_cell_of|clhist_lost)\b")  # fmt: skip


@stored_source
def render_combines(specs: Sequence[CombineSpec], before: Sequence[Output] = ()) -> str:
    """Return OpenCL C with the kernels of several second stages: a compiler takes long to begin with any program.

    Names that more than one defines end with the number of the stage. `before` are the outputs of the program's sweep.
    """
    stages = [Output(spec.operator, (), f"_{n}") for n, spec in enumerate(specs)]
    preambles, texts = _preambles((*before, *stages)), []
    # C treats two identical structs as different types: functions that the sweep or another stage has need the first.
    types = {output.operator.dtype: f"value{output.suffix}_t" for output in before}
    types |= {output.operator.accumulator: f"accumulator{output.suffix}_t" for output in before}
    for n, spec in enumerate(specs):
        structs = {dtype: name for dtype, name in types.items() if dtype.names is not None}
        # Each stage defines the same names, so macros rename them for the length of its text.
        text = _render_combine(spec, preamble=preambles[stages[n]], is_alone=not before, declared_types=structs)
        types = {spec.operator.dtype: f"value_t_{n}", spec.operator.accumulator: f"accumulator_t_{n}"} | types
        names = sorted(set(_DEFINED.findall(text)))
        texts += [*(f"#define {name} {name}_{n}" for name in names), text, *(f"#undef {name}" for name in names)]
    return "\n".join(texts)


def _render_combine(
    spec: CombineSpec,
    *,
    is_within: bool = False,
    function: str = "",
    preamble: str | None = None,
    is_alone: bool = True,
    declared_types: dict[np.dtype, str] | None = None,
) -> str:
    """Return the same, or what a program that has the sweep's types has of it: kernels, or a function for the sweep.

    `is_alone` says that the program has no sweep. With a sweep it has second stages of private copies only, which
    work-items set themselves, so no kernel clears them: compilers take 4 ms for one.
    """

    return render(
        "combine.mako",
        spec=spec,
        state=CombineState(spec),
        is_within=is_within,
        function=function,
        result_parameters=result_parameters(spec),
        preamble=spec.operator.preamble if preamble is None else preamble,
        declared_types={} if declared_types is None else declared_types,
        clear_parameters=clear_parameters(spec) if is_alone and not is_within else (),
        combine_parameters=combine_parameters(spec),
    )


@stored_source
def render_partition(spec: PartitionSpec) -> str:
    """Return the OpenCL C program with the kernels ``clhist_split`` and ``clhist_index``."""
    parameters = {"split_parameters": split_parameters(spec), "index_parameters": index_parameters(spec)}
    return render("partition.mako", spec=spec, **parameters, **_map_of(spec.sweep))


@stored_source
def render_rows(spec: RowsSpec) -> str:
    """Return the OpenCL C program with the kernels that gather rows."""
    from clhist._core.kernels.rows import rows_parameters

    return render(
        "rows.mako",
        spec=spec,
        parameters=rows_parameters(spec),
        preamble_of=_preambles(spec.sweep.outputs),
    )


@stored_source
def render_sample(spec: SampleSpec) -> str:
    """Return the OpenCL C program with the kernel ``clhist_count_distinct``."""
    return render("sample.mako", spec=spec, kernel_parameters=sample_parameters(spec), **_map_of(spec.sweep))


@stored_source
def render_emitted(spec: SampleSpec, places: Sequence[int], slots: int, most: int) -> str:
    """Return the OpenCL C program with the kernel ``clhist_emitted``.

    It has `slots` for values of each output, from the byte of its `places` on, and `most` of them for one element.
    """
    layout = {"places": places, "slots": slots, "most": most}
    parameters = sample_parameters(spec)
    return render("emitted.mako", spec=spec, kernel_parameters=parameters, **layout, **_map_of(spec.sweep))


@stored_source
def render_look(spec: SampleSpec) -> str:
    """Return the OpenCL C program with the kernel ``clhist_look``."""
    return render("narrow_look.mako", spec=spec, kernel_parameters=look_parameters(spec), **_map_of(spec.sweep))


@stored_source
def render_sort_pairs(spec: SweepSpec, max_pairs: int, *, checked: bool = False) -> str:
    """Return the OpenCL C program with the kernel ``clhist_pairs``; an element emits at most `max_pairs` pairs.

    If that is `checked`, the last key of an element that emits more is one above that of pairs without a bin.
    """
    return text_of(
        "sort_pairs.mako",
        spec=spec,
        max_pairs=max_pairs,
        checked=checked,
        output=spec.outputs[0],
        words=accumulator_words(spec.outputs[0].operator),
        kernel_parameters=pairs_parameters(spec),
    )


@stored_source
def render_sort_scan(operator: Operator) -> str:
    """Return the preamble in C of the scan of sorted pairs."""
    return text_of("sort_scan.mako", operator=operator, words=accumulator_words(operator))


@stored_source
def render_scan(spec: ScanSpec, lanes: int) -> str:
    """Return the OpenCL C program of a segmented scan, with so many work-items in a work-group."""
    from clhist._core.kernels.scan import each_of

    declared, arrays = with_arrays(spec.arguments)
    per_lane = each_of(spec.item_bytes)
    return render("segmented_scan.mako", spec=spec, lanes=lanes, per_lane=per_lane, declared=declared, pointers=arrays)


@stored_source
def render_check(operator: Operator, *, is_cpu: bool) -> str:
    """Return the OpenCL C program with the kernel ``clhist_check``, which combines values in every order.

    On a CPU its work-groups have one work-item.
    """
    return render("check.mako", operator=operator, alone=ALONE if is_cpu else "")


@stored_source
def render_selection(order: object) -> str:
    """Return the OpenCL C program that selects one value of each group of a `clhist.statistics` order."""
    return render("select.mako", order=order)


@stored_source
def render_keys(spec: KeySpec, *, several: bool, in_order: bool = True) -> str:
    """Return the OpenCL C program that numbers keys of any range, by one work-item of a work-group or several.

    Without `in_order` it lacks the kernels that number the slots; with it, a program by one work-item has these alone.
    """
    from clhist._core.kernels import key_table

    of = {"block": key_table.BLOCK, "lanes": key_table.LANES, "each": key_table.EACH}
    of |= {"ahead_from": key_table.AHEAD_FROM, "most_tries": key_table.MOST_TRIES}
    return render("keys.mako", spec=spec, several=several, in_order=in_order, alone="" if several else ALONE, **of)


@stored_source
def render_key_sort(spec: KeySpec, lanes: int) -> str:
    """Return the OpenCL C program that lists the distinct keys of few elements, by so many work-items."""
    from clhist._core.kernels import key_table

    return render("key_sort.mako", spec=spec, lanes=lanes, room=key_table.SORTED_BYTES // spec.word.itemsize)


@stored_source
def render_key_window(spec: KeySpec, lanes: int, groups: int) -> str:
    """Return the OpenCL C program that lists the distinct keys in a window, marked by so many work-groups."""
    from clhist._core.kernels import key_table

    zero = f"(word_t)0x{int(spec.words_of(np.zeros(1, spec.dtype))[0]):x}{'ul' if spec.word.itemsize == 8 else 'u'}"
    sizes = {"window": key_table.WINDOW, "samples": key_table.WINDOW_SAMPLES, "lanes": lanes, "groups": groups}
    return render("key_window.mako", spec=spec, zero=zero, **sizes)


@stored_source
def render_sampled_keys(spec: KeySpec, sizes: KeySizes, stage: str) -> str:
    """Return the OpenCL C program of a `stage` of numbering keys by a sample, one of `sizes.stages`."""
    from clhist._core.kernels import key_ranges

    most = {
        name: getattr(key_ranges, name.upper())
        for name in ("chunk", "most_lanes", "merging", "known", "pieces", "bits", "blocks")
    }
    return render("sampled_keys.mako", spec=spec, sizes=sizes, stage=stage, at_once=2, **most)


@stored_source
def render_digits(word: np.dtype, lanes: int) -> str:
    """Return the OpenCL C program that sorts by digits, with so many work-items in a work-group."""
    from clhist._core.kernels import digit_sort

    return render("digits.mako", word=word, lanes=lanes, per_lane=digit_sort.EACH)


@stored_source
def render_row_kernel(spec: RowKernelSpec) -> str:
    """Return the OpenCL C program with the kernel ``clhist_row_KIND``, which writes one row per element."""
    return render("row_kernels.mako", spec=spec, declared_half=declared)


def render_measure(kernel: str, *, words: int = 0) -> str:
    """Return the OpenCL C of one of the kernels that measure a device; see ``measure.mako``."""
    return text_of("measure.mako", kernel=kernel, words=words)


def render_strategy(name: str, **values: object) -> str:
    """Return the OpenCL C of a strategy of the literature; see `clhist.strategies`."""
    return render(f"strategies/{name}.mako", **values)
