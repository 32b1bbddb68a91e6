"""The state of a second stage, and its C statements that depend on one condition; ``combine.mako`` has the others."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from clhist._core.kernel_code import ALONE
from clhist._core.kernels.specs import CombineSpec
from clhist._core.kernels.state import repeated
from clhist._core.model.feature import CyclicPasses
from clhist.operators.c_types import bytes_of, scalars_of
from clhist.operators.halves import ELEMENT, half_name, loaded, stored


@dataclass(frozen=True)
class CombineState:
    """Snippets of C for the templates of a second stage; pure text that follows from its specification.

    Attributes
    ----------
    spec : CombineSpec
        What the source depends on.
    """

    spec: CombineSpec

    @property
    def dest_type(self) -> str:
        """C type of an element of `dest`."""
        return "accumulator_t" if self.spec.dest_is_partial else self._element

    @property
    def out_type(self) -> str:
        """C type of an element of `out`."""
        return "accumulator_t" if self.spec.out_is_partial else self._element

    @property
    def _element(self) -> str:
        return ELEMENT if half_name(self.spec.operator.dtype) else "value_t"

    @property
    def arrays(self) -> tuple[tuple[str, str, str], ...]:
        """The arrays of results: what their names end in, and the C types of those of `dest` and `out`."""
        # Structured values may have an array for each field; all others have one array.
        fields = tuple((f"_{name}", kind, kind) for name, kind in self.spec.fields)
        return fields or (("", self.dest_type, self.out_type),)

    def for_each_part(self, text: str, separator: str = "\n") -> str:
        """Return C once for each part, with its number for ``{n}`` and its accessor for ``{accessor}``."""
        parts = enumerate(self.spec.operator.parts)
        return repeated(text, [{"n": n, "accessor": part.accessor} for n, part in parts], separator)

    @property
    def is_replaced(self) -> bool:
        """Whether a feature has a second stage of its own."""
        return any("combine" in feature.sections for feature in self.spec.features)

    @property
    def place(self) -> str:
        """Statement that says where the copies of bin k of all histograms begin, `at`, and how many `copies` it has."""
        if self.spec.feature(CyclicPasses):
            # A copy has one cyclic pass after another: bin k is number k / S of pass k % S.
            at = "k % clhist_passes * (clhist_bins / clhist_passes) + k / clhist_passes"
            return f"const ulong copies = clhist_copies, at = {at};"
        if self.spec.batch == "ragged":
            # The table has the first copy of each histogram, and the one behind its last.
            copies = "copies = clhist_first[2 * (k / clhist_bins) + 1] - first"
            at = "at = first * clhist_bins + k % clhist_bins"
            return f"const ulong first = clhist_first[2 * (k / clhist_bins)], {copies}, {at};"
        at = "k / clhist_bins * copies * clhist_bins + k % clhist_bins" if self.spec.batch else "k"
        return f"const ulong copies = clhist_copies, at = {at};"

    @property
    def copy(self) -> str:
        """The accumulator of the copy number `copy` of that bin."""
        cells = self.for_each_part("cells{n}, ", "")
        return f"whole[{self.cell}]" if self.spec.whole else f"clhist_cell_of({cells}{self.cell})"

    @property
    def cell(self) -> str:
        """Index of the cell of that copy."""
        return "at + copy * clhist_bins"

    @property
    def sums(self) -> tuple[str, ...]:
        """Accessors of the sums of float64 in an accumulator of a CPU, whose cores may be many."""
        if self.spec.order != "blocked" or self.is_replaced:
            return ()
        return tuple(part.accessor + name for part in self.spec.operator.parts for name in part.float64_sums)

    @property
    def has_bytes(self) -> bool:
        """Whether values of `dest` have numbers of one byte: see `dest_or_neutral`."""
        return has_bytes(self.spec.operator.dtype)

    def dest_or_neutral(self, condition: str, index: str) -> str:
        """Return the accumulator that `dest` has for a bin, the neutral element where the condition is false."""
        return dest_or_neutral(condition, self.dest(index), self.spec.operator.dtype)

    def dest(self, index: str) -> str:
        """Return the accumulator that `dest` has for a bin."""
        operator = self.spec.operator
        if self.spec.fields and not self.spec.dest_is_partial:
            fields = ", ".join(f"dest_{name}[{index}]" for name, _ in self.spec.fields)
            return f"clhist_lift((value_t){{{fields}}})"
        dtype = operator.accumulator if self.spec.dest_is_partial else operator.dtype
        return f"dest[{index}]" if self.spec.dest_is_partial else f"clhist_lift({loaded(f'dest[{index}]', dtype)})"

    def store(self, index: str) -> str:
        """Return the statement that writes the result of a bin."""
        if self.spec.out_is_partial:
            return f"out[{index}] = total;"
        if self.spec.fields:
            stores = " ".join(f"out_{name}[{index}] = result.{name};" for name, _ in self.spec.fields)
            return f"const value_t result = clhist_finish(total); {stores}"
        return f"out[{index}] = {stored('clhist_finish(total)', self.spec.operator.dtype)};"


def has_bytes(dtype: np.dtype) -> bool:
    """Return whether a dtype has numbers of one byte."""
    return any(scalar.itemsize == 1 for scalar in scalars_of(dtype))


def dest_or_neutral(condition: str, value: str, dtype: np.dtype) -> str:
    """Return C of `value`, which is read from `dest`, or of the neutral element where the condition is false.

    llvmpipe of Mesa 25.0.7 ends the process where a branch chooses between a byte and a constant: a macro for bytes.
    """
    return f"CLHIST_CHOICE({condition}, {value})" if has_bytes(dtype) else f"{condition} ? {value} : clhist_neutral()"


def rounding_error(state: CombineState) -> str:
    """Return the function of what rounding loses of a sum, where float64 sums of copies are corrected."""
    if not state.sums:
        return ""
    return """\
// What rounding loses of the sum of a and b; nothing of infinities.
double clhist_lost(const double a, const double b, const double sum)
{
    const double rest = sum - a;
    return sum - sum == 0 ? (a - (sum - rest)) + (b - rest) : 0;
}"""


def finish(state: CombineState) -> str:
    """Return the function that makes a result of an accumulator, unless accumulators are written."""
    if state.spec.out_is_partial:
        return ""
    return f"""\
value_t clhist_finish(const accumulator_t a)
{{
    return {state.spec.operator.finish};
}}"""


def has_value(state: CombineState) -> str:
    """Return the function that asks whether a bin has a value, where the largest such bin is reported."""
    if not state.spec.largest_bin_condition:
        return ""
    return f"""
// Whether a bin beyond those that are known to have a value has one.
bool clhist_has_value(const ulong k, const accumulator_t total, const ulong clhist_known)
{{
    return {_is_beyond_known(state)};
}}"""


def _is_beyond_known(state: CombineState) -> str:
    return f"k > clhist_known && {state.spec.largest_bin_condition}"


def clear(state: CombineState) -> str:
    """Return the loops that clear the cells of each part, and their locks.

    Cells of many words are written word after word if the identity element is 0 in all of them.
    """
    operator = state.spec.operator
    accumulator = operator.accumulator
    # Accumulators of several words, such as long integers, mostly have an identity element of zeros.
    has_words = len(operator.parts) == 1 and accumulator.itemsize > 8 and accumulator.itemsize % 4 == 0
    is_zero = has_words and not any(bytes_of(operator.neutral, accumulator))
    return state.for_each_part(_CLEAR.replace("{cells}", _ZERO_WORDS if is_zero else _NEUTRAL_CELLS))


_CLEAR = """\
    __global cell{n}_t *cells{n} = (__global cell{n}_t *)(clhist_scratch + clhist_place{n});
    __global int *locks{n} = (__global int *)(clhist_scratch + clhist_lock_place{n});
{cells}
    for (size_t k = get_global_id(0); k < clhist_num_locks{n}; k += get_global_size(0))
        locks{n}[k] = 0;"""
_ZERO_WORDS = """\
    for (size_t k = get_global_id(0); k < clhist_num_cells * (sizeof(cell{n}_t) / 4); k += get_global_size(0))
        ((__global uint *)cells{n})[k] = 0;"""
_NEUTRAL_CELLS = """\
    for (size_t k = get_global_id(0); k < clhist_num_cells; k += get_global_size(0))
        cells{n}[k].value = clhist_neutral{n}();"""


def alone(spec: CombineSpec) -> str:
    """Return the attribute of kernels that run in work-groups of one work-item, as on CPUs."""
    return ALONE if spec.order == "blocked" else ""


def rows_in_words(state: CombineState) -> str:
    """Return a comment on the rows of a work-group, if there are several."""
    rows = state.spec.rows
    if rows == 1:
        return ""
    return (
        f"// Work-groups have {rows} rows; each row combines every {rows}th copy of a bin, "
        "then the rows are combined in a tree."
    )


def cell_arrays(state: CombineState) -> str:
    """Return declarations of the copies: an array of accumulators, or an array of cells of each part."""
    if state.spec.whole:
        pointer = "__global const accumulator_t *"
        return f"    {pointer}whole = ({pointer})(clhist_scratch + clhist_place0);"
    return state.for_each_part(
        "    __global const cell{n}_t *cells{n} = (__global const cell{n}_t *)(clhist_scratch + clhist_place{n});"
    )


def result_arrays(state: CombineState) -> str:
    """Return declarations of the arrays of `dest` and `out`, and of the words for the largest bin with a value."""
    lines = []
    for s, dest_type, out_type in state.arrays:
        lines += [
            f"    __global const {dest_type} *dest{s} = (__global const {dest_type} *)(dest_base{s} + dest_offset{s});",
            f"    __global {out_type} *out{s} = (__global {out_type} *)(out_base{s} + out_offset{s});",
        ]
    if state.spec.largest_bin_condition:
        pointer = "volatile __global uint *"
        lines.append(f"    {pointer}clhist_report = ({pointer})(clhist_report_base + clhist_report_offset);")
    return "\n".join(lines)


def without_copies(state: CombineState) -> str:
    """Return the statement for inputs without elements, which have no copies.

    A `dest` of values is combined all the same, as each of its bins is that gets no value.
    """
    if state.spec.dest_is_partial:
        return ""
    return """\
        if (copies == 0)
            total = clhist_combine(total, clhist_neutral());"""


def add_copies(state: CombineState) -> str:
    """Return the loop that combines all copies of a bin; sums of float64 take up again what their rounding loses."""
    if not state.sums:
        return f"""\
        for (ulong copy = 0; copy < copies; ++copy)
            total = clhist_combine(total, {state.copy});"""
    # Rounding errors are summed beside the sum, and added once in the end (TwoSum).
    lost, numbered = ", ".join(f"lost{n} = 0" for n in range(len(state.sums))), list(enumerate(state.sums))
    losses = "\n".join(f"            lost{n} += clhist_lost(before{a}, held{a}, total{a});" for n, a in numbered)
    corrections = "\n".join(
        f"""\
        if (lost{n} != 0)  // the sign of a zero stays, which says whether a bin has values
            total{a} += lost{n};"""
        for n, a in numbered
    )
    return f"""\
        double {lost};
        for (ulong copy = 0; copy < copies; ++copy) {{
            const accumulator_t held = {state.copy}, before = total;
            total = clhist_combine(before, held);
{losses}
        }}
{corrections}"""


def dest_in_first_row(state: CombineState) -> str:
    """Return the statement by which the first row begins with what `dest` has."""
    if state.has_bytes:  # without a branch, see `CombineState.dest_or_neutral`
        return f"        total = {state.dest_or_neutral('row == 0 && has_dest', 'k')};"
    return f"""\
        if (row == 0 && has_dest)
            total = {state.dest("k")};"""


def tree_of_rows(state: CombineState) -> str:
    """Return the statements that combine the totals of half of the rows with those of the others, until one is left."""
    rows, columns = state.spec.rows, state.spec.columns
    if rows == 1:
        return ""
    steps = "\n".join(
        f"""\
    barrier(CLK_LOCAL_MEM_FENCE);  // before totals of the row below are read
    if (row < {half})
        totals[get_local_id(0)]
            = clhist_combine(totals[get_local_id(0)], totals[get_local_id(0) + {half * columns}]);"""
        # Rows are a power of two, so that each step halves them.
        for half in (rows >> k for k in range(1, rows.bit_length()))
    )
    return f"""\
    __local accumulator_t totals[{rows * columns}];
    totals[get_local_id(0)] = total;
{steps}
    total = totals[get_local_id(0)];"""


def loop_over_bins(is_function: bool) -> str:
    """Return the head of the loop over a work-item's bins `k`: a block of them, or those of the function's call."""
    if is_function:
        return "    for (ulong k = begin; k < end; k += step) {"
    return """\
    const ulong end = clhist_num_bins * (get_global_id(0) + 1) / get_global_size(0);
    for (ulong k = clhist_num_bins * get_global_id(0) / get_global_size(0); k < end; ++k) {"""


def none_reported(state: CombineState) -> str:
    """Return declarations of the largest bin with a value that a work-item has seen, and of the sum of its counts."""
    if not state.spec.largest_bin_condition:
        return ""
    return f"    uint largest = 0{', sum = 0' if state.spec.sums_counts else ''};"


def see_bin(state: CombineState) -> str:
    """Return the statements that keep a bin as the largest with a value, and add its count to the sum."""
    lines = []
    if state.spec.largest_bin_condition:
        lines += [f"        if ({_is_beyond_known(state)})", "            largest = k;"]
    if state.spec.sums_counts:
        lines.append("        sum += total;")
    return "\n".join(lines)


def report(state: CombineState) -> str:
    """Return the statements by which a work-item reports both, by atomics: all report to the same words, once each."""
    lines = []
    if state.spec.largest_bin_condition:
        # 0 stands for none: a bin that is reported is beyond one that is known.
        lines += ["    if (largest)", "        atomic_max(clhist_report, largest);"]
    if state.spec.sums_counts:
        lines.append("    atomic_add(clhist_report + 1, sum);")
    return "\n".join(lines)


def report_bin(state: CombineState) -> str:
    """Return the statement by which a work-item with one bin reports it if it has a value."""
    if not state.spec.largest_bin_condition:
        return ""
    return f"""\
        if ({_is_beyond_known(state)})
            atomic_max(clhist_report, (uint)k);"""
