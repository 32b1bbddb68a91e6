"""C snippets of one sweep: the state that functions pass on, where cells and locks are, and calls of the map."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from clhist._core.kernels.maps import Argument
from clhist._core.kernels.specs import Output, SweepPart, SweepSpec
from clhist._core.model.feature import BatchChunks, CyclicPasses, FlatBatch, PackedCounters, PartitionedPairs, Variable
from clhist._core.model.private import PAGE, InterleavedCopies, PaddedCopies, SumsOfSums
from clhist._core.model.updates import takes_term
from clhist.operators.c_types import element_name

LINE_BYTES = 64  # of a CPU's caches, or more
# Terms of a bin and copy, of uniform bins, between additions to longer sums: 16 equal values have an error of about one
# unit in the last place.
TERMS = 24
# Elements of a block after which sums of copies may be added to longer ones.
PART = 256
_LONGEST_LINE = 112  # less what sections are indented when they are in a loop


@dataclass(frozen=True)
class SweepState:
    """Snippets of C for the templates of a sweep; pure text that follows from its specification.

    Attributes
    ----------
    spec : SweepSpec
        What the source depends on.
    """

    spec: SweepSpec

    @property
    def is_local(self) -> bool:
        """Whether the copies are in local memory while they are updated."""
        return self.spec.memory == "local"

    @property
    def copies_template(self) -> str:
        """The template of the copies that are updated, in local or in global memory."""
        if self.is_packed:
            return "packed.mako"
        return "copies_local.mako" if self.is_local else "copies_global.mako"

    @property
    def emit_template(self) -> str:
        """The template of the functions that take a pair of the map."""
        return "packed.mako" if self.is_packed else "emit.mako"

    @property
    def is_packed(self) -> bool:
        """Whether several counters share a word."""
        return self.spec.feature(PackedCounters) is not None

    @property
    def walk_template(self) -> str:
        """The template of the order in which work-items visit the elements."""
        if self.is_partitioned:
            return "partitioned.mako"
        return f"walk_{'blocked' if self.spec.order == 'blocked' else 'striped'}.mako"

    @property
    def is_private(self) -> bool:
        """Whether each work-item has its own copy."""
        return self.spec.update == "private"

    @property
    def has_tasks(self) -> bool:
        """Whether a team goes through a list of tasks: chunks of the elements of one histogram of a batch."""
        return self.chunks is not None

    @property
    def chunks(self) -> BatchChunks | None:
        """The feature of a list of tasks, or None."""
        return self.spec.feature(BatchChunks)

    @property
    def is_flat(self) -> bool:
        """Whether the histograms of a batch are counted as one histogram of all their bins."""
        return self.spec.feature(FlatBatch) is not None

    @property
    def is_partitioned(self) -> bool:
        """Whether the arguments are pairs grouped by partition."""
        return self.spec.feature(PartitionedPairs) is not None

    @property
    def asks_for_pass(self) -> bool:
        """Whether the map asks if a bin is in the pass."""
        return "CLHIST_IN_PASS" in self.spec.map

    def parts_of(self, output: Output) -> tuple[SweepPart, ...]:
        """Return the parts of one output."""
        return tuple(part for part in self.spec.parts if part.output is output)

    def for_each_part(self, text: str, parts: Sequence[SweepPart] | None = None, **values: object) -> str:
        """Return C once for each part: ``{n}`` is its number, ``{s}`` the suffix of its output, others are `values`."""
        filled = [
            {"n": part.n, "s": part.output.suffix, **values} for part in (self.spec.parts if parts is None else parts)
        ]
        return repeated(text, filled)

    def for_each_lock(self, text: str) -> str:
        """Return C once for each output that has locks, with its suffix for ``{s}``."""
        return repeated(text, [{"s": s} for s in self.locked_suffixes])

    @property
    def all_copies(self) -> str:
        """Declarations of the copies in global memory, of each part."""
        return self.for_each_part(
            "    __global cell{n}_t *clhist_all{n} = (__global cell{n}_t *)(clhist_scratch + clhist_place{n});"
        )

    @property
    def reported(self) -> tuple[str, ...]:
        """Numbers that work-items report beside the results: the largest bin with a value, and the sum of counts."""
        stage = self.spec.combine
        if stage is None or not stage.largest_bin_condition:
            return ()
        return ("clhist_largest", "clhist_sum") if stage.sums_counts else ("clhist_largest",)

    @property
    def takes_turns(self) -> bool:
        """Whether a work-item may have several copies, to which neighbouring elements go in turn."""
        return self.spec.feature(InterleavedCopies) is not None

    @property
    def may_use_fewer_turns(self) -> bool:
        """Whether it uses fewer of these copies where sampled bins show that this is faster; only for counts."""
        interleaved = self.spec.feature(InterleavedCopies)
        return interleaved is not None and interleaved.may_use_fewer and self.spec.looks_first

    @cached_property
    def sums(self) -> tuple[tuple[SweepPart, str, str], ...]:
        """The parts and accessors of sums that are added to longer ones before they have many terms, with names."""
        if self.spec.feature(SumsOfSums) is None:
            return ()
        pairs = [(part, accessor) for part in self.spec.parts for accessor in part.part.float64_sums]
        return tuple((part, accessor, f"clhist_sums{n}") for n, (part, accessor) in enumerate(pairs))

    @property
    def pairs_of_sums(self) -> int:
        """(bin, value) pairs of an element, as far as known, which decide when sums are added up."""
        feature = self.spec.feature(SumsOfSums)
        return 1 if feature is None else feature.pairs

    @property
    def adds_up_by_round(self) -> bool:
        """Whether longer sums take those of copies behind rounds of elements, each of one pair."""
        return bool(self.sums) and self.pairs_of_sums == 1

    def place_of_sums(self, name: str) -> str:
        """Return C of the offset of a work-item's longer sums: two numbers for each cell of a copy."""
        names = [variable for *_, variable in self.sums]
        # The sums of parts before, each of all work-items, then those of this part up to the work-item.
        at = names.index(name)
        before = [f"clhist_items * {self.stride(part.output.suffix)}" for part, *_ in self.sums[:at]]
        own = f"clhist_item * {self.stride(self.sums[at][0].output.suffix)}"
        return f"2 * ({' + '.join([*before, own])})"

    def stride(self, suffix: str) -> str:
        """Return C of the stride of copies, in cells."""
        return f"clhist_{'stride' if self.spec.feature(PaddedCopies) else 'num_bins'}{suffix}"

    @property
    def space(self) -> str:
        """Address space of the cells that are updated."""
        return "__local" if self.is_local else "__global"

    @property
    def bin_type(self) -> str:
        """C type of a bin."""
        return "ulong" if self.spec.wide else "uint"

    @property
    def lock_type(self) -> str:
        """C type of a lock's number."""
        # Cells of local memory are few; the copies in global memory together may have 2^32 cells or more.
        return "uint" if self.is_local else "ulong"

    @cached_property
    def locked(self) -> tuple[SweepPart, ...]:
        """The parts that are updated under a lock."""
        return tuple(part for part in self.spec.parts if part.update == "lock")

    @cached_property
    def locked_suffixes(self) -> tuple[str, ...]:
        """The suffixes of the outputs that have such a part."""
        outputs = [part.output for part in self.locked]
        return tuple(output.suffix for output in self.spec.outputs if output in outputs)

    @cached_property
    def variables(self) -> tuple[tuple[str, str], ...]:
        """C types and names of the arguments of an update besides bin and value, in order."""
        # A feature that replaces the cells brings the range of bins as well.
        own = () if self.spec.replaces_cells else self._of_copies()
        return (*own, *(variable for feature in self.spec.features for variable in feature.state(self.spec)))

    def _of_copies(self) -> list[tuple[str, str]]:
        """Return the range of bins of each output, then cells, locks, and how to index both."""
        # The order is free, since one macro has it for parameters and another one for arguments.
        variables = []
        for output in self.spec.outputs:
            variables += [(f"const {self.bin_type}", f"clhist_{name}{output.suffix}") for name in ("first", "count")]
            if output.suffix in self.locked_suffixes:
                variables.append((f"const {self.lock_type}", f"clhist_lock_base{output.suffix}"))
        variables += [(f"{self.space} cell{part.n}_t *", f"clhist_cells{part.n}") for part in self.spec.parts]
        variables += [(f"volatile {self.space} int *", f"clhist_locks{part.n}") for part in self.locked]
        variables += [("const uint", "clhist_copies")] if self.is_local else []
        variables += [(f"const {self.lock_type}", "clhist_lock_mask")] if self.locked else []
        return variables

    @cached_property
    def element_variables(self) -> tuple[Variable, ...]:
        """The variables that the map of one element passes on besides bin and value."""
        return tuple(variable for feature in self.spec.features for variable in feature.element_state)

    @property
    def macros(self) -> str:
        """The `variables`, as parameters of a function and as arguments of a call."""
        what = "The bins of this pass and the cells of a copy, with what else an update needs"
        declared = wrapped([f"{c_type} {name}".replace("* ", "*") for c_type, name in self.variables], end=" \\")
        passed = wrapped([name for _, name in self.variables], end=" \\")
        return f"// {what}.\n#define CLHIST_STATE_PARAMETERS \\\n{declared}\n#define CLHIST_STATE \\\n{passed}"

    @property
    def map_declared(self) -> str:
        """The state as parameters of the map."""
        own = (f"{c_type}{name}" for c_type, name in self.element_variables)
        return ", ".join(["CLHIST_STATE_PARAMETERS", *own])

    @property
    def map_passed(self) -> str:
        """The same as arguments of a call of it."""
        return ", ".join(["CLHIST_STATE", *(name for _, name in self.element_variables)])

    def has_section(self, section: str) -> bool:
        """Return whether a feature fills a section, or takes it over."""
        return any(section in feature.sections for feature in self.spec.features)

    @property
    def title(self) -> str:
        """A comment that describes the sweep."""
        spec = self.spec
        owner = "a work-group" if self.is_local else "the device"
        copies = "a copy for each work-item" if self.is_private else f"M = clhist_copies copies of {owner}"
        order = "; each work-item has consecutive elements"
        if spec.order == "interleaved":
            order = "; neighbouring work-items have neighbouring elements"
        if self.is_partitioned:  # the order of the pairs is that of their tiles
            order = ""
        bins = "a range of bins at a time" if self.is_partitioned else "in S = get_num_groups(1) passes"
        teams = f", in {spec.teams} teams" if spec.teams > 1 else ""
        lines = [
            f"Sweep: {spec.update} updates of {copies} in {spec.memory} memory, {bins}.",
            f"Work-groups of {spec.work_group_size}{teams}{order}.",
            f"Policy: {self.policy}.",
            *(f"{text[0].upper()}{text[1:]}." for text in (feature.comment() for feature in spec.features) if text),
        ]
        return "\n".join(f"// {line}" for line in lines)

    @property
    def policy(self) -> str:
        """The constants of the plan that are in the source, in one line; M and S are arguments of the kernel."""
        spec = self.spec
        constants = [f"work-group {spec.work_group_size}", f"team {spec.team_size}"]
        if self.is_partitioned:  # tiles are those of the partitioning kernel
            pass
        elif spec.order == "blocked":
            constants += [f"round {spec.round}", f"unroll {spec.unrolled}"]
            constants += [f"block {spec.block}"] if spec.block else []
        else:
            elements = spec.vector_width * spec.loads  # of a work-item, in a tile
            constants += [f"tile {spec.team_size * elements}", f"vector {spec.vector_width}", f"loads {spec.loads}"]
            constants += [f"unroll {elements}"]
            constants += [f"joined {spec.joined}"] if spec.joined > 1 else []
        return ", ".join(constants)

    @property
    def update_in_words(self) -> str:
        """How the elements are walked through."""
        spec = self.spec
        if self.is_partitioned and spec.is_alone:
            return "the work-item updates the pairs of a tile, and prefetches those of a later one"
        if self.is_partitioned:
            return "work-items read the pairs of a tile in rounds, and load those of the next before they count these"
        if spec.order == "blocked":
            return "each work-item goes through consecutive elements"
        if spec.vector_width * spec.loads == 1:
            return "neighbouring work-items have neighbouring elements"
        tile = spec.team_size * spec.vector_width * spec.loads
        return f"tiles of {tile} elements, with {spec.loads} loads in flight of {spec.vector_width} elements each"

    @property
    def copy_in_words(self) -> str:
        """Whose copy a work-item updates."""
        if self.is_private:
            return "this work-item's copy"
        return "a copy of the work-group" if self.is_local else "a copy that all work-items may share"

    @property
    def bins_in_words(self) -> str:
        """Which bins a work-group has, and where."""
        bins = "every S-th bin, those" if self.spec.feature(CyclicPasses) else "the range"
        are_set = ", set to the neutral element" if self.is_local or self.is_private else ""
        return f"{bins} of this pass, in {self.copy_in_words}{are_set}"

    @property
    def needs_items(self) -> bool:
        """Whether the kernel asks for the number of its work-item among all."""
        return self.spec.order == "blocked" or not self.is_local or self.has_tasks

    @property
    def cell(self) -> str:
        """Index of the cell of `bin`: local copies of one bin are neighbours."""
        # Sweeps over partitions have one copy in local memory.
        return "bin * clhist_copies" if self.is_local and not self.is_partitioned else "bin"

    def lock_argument(self, part: SweepPart) -> str:
        """Return the argument by which an update gets its lock, with a comma; nothing for updates without one."""
        if part.update != "lock":
            return ""
        index = f"({self.cell} + clhist_lock_base{part.output.suffix}) & clhist_lock_mask"
        return f"clhist_locks{part.n} + ({index}), "

    def condition(self, part: SweepPart) -> str:
        """Return the condition of an update: flags of a product are mostly 0, which changes nothing."""
        # A comparison is cheaper than an atomic update without an effect.
        is_flag = part.part.accessor and part.part.operation == "bitwise_or"
        return f"if (lifted{part.part.accessor} != 0) " if is_flag else ""

    def end_alignment(self, part: SweepPart) -> int:
        """Return to a multiple of what the end of a part's local cells is rounded: 16 suits any type, 4 a lock."""
        return 4 if part is self.spec.parts[-1] else 16

    @property
    def map_parameters(self) -> list[str]:
        """Parameters of the map: the caller's arguments, the index, and in a flat batch the element's histogram."""
        histogram = ["const clhist_bin_t clhist_histogram"] if self.is_flat else []
        return [*self.spec.map_parameters(), "const clhist_index_t i", *histogram]

    def map_arguments(self, element: Callable[[Argument], str], index: str) -> list[str]:
        """Return the same in a call for the element number `index`; `element` gives the C of a streamed one."""
        histogram = [f"(clhist_bin_t)(({index}) / (clhist_index_t)clhist_histogram_size)"] if self.is_flat else []
        return [*self.spec.map_arguments(element), index, *histogram]

    def map_call(
        self,
        depth: int,
        element: Callable[[Argument], str] = lambda argument: f"{argument.name}[i]",
        index: str = "i",
        function: str = "clhist_map",
        leading: Sequence[str] = (),
    ) -> str:
        """Return a call of the map as a statement at so many levels: by default for the element `i`."""
        return statement(function, [*leading, *self.map_arguments(element, index), self.map_passed], depth)

    @property
    def next_element(self) -> str:
        """The arguments of the map in a loop over single elements `i`."""
        return ", ".join(self.map_arguments(lambda argument: f"{argument.name}[i]", "i"))

    def asked_ahead(self, first: str) -> list[str]:
        """Return C of the addresses that a CPU is asked for while it works on a round of elements from `first` on."""
        addresses = []
        for number, argument in enumerate(self.spec.streamed):
            size = argument.dtype.itemsize
            # One prefetch for each cache line of a round, at distances that differ for the first three arrays.
            lines = range(max(1, self.spec.round * size // LINE_BYTES))
            # A CPU's hardware prefetches within pages, so each page is prefetched while one before it is read. With one
            # distance for all arrays Intel's compiler computes their addresses together and lacks registers.
            # Notes [Prefetch a page ahead] and [Prefetch distances differ by array], docs/decisions/0002.
            page = PAGE // 4 * size  # of words, the elements that were measured
            ahead = max(PAGE, page) - page // 4 * min(number, 2)
            addresses += [f"{argument.name} + {first} + {(ahead + line * LINE_BYTES) // size}" for line in lines]
        return addresses

    def emit_macro(self, output: Output) -> str:
        """Return the definition of the ``EMIT`` of an output."""
        s = output.suffix
        # With a common factor bins count pairs, and `counted` multiplies when they are stored.
        arguments = [self.target_of(output), "1" if self.spec.factor else "(value)", self.map_passed]
        return f"#define EMIT{s}(bin, value) \\\n    clhist_emit{s}({', '.join(arguments)})"

    def target_of(self, output: Output) -> str:
        """Return C of the number of a bin among those of all histograms, where `bin` is what the map emits to."""
        bin = "CLHIST_BIN(bin)"
        return f"clhist_flat({bin}, clhist_bins_each{output.suffix}, clhist_histogram)" if self.is_flat else bin

    def counted(self, n: int, value: str) -> str:
        """Return C of what a bin of part `n` has got: where it counts pairs that have one value, so many times that."""
        # Unsigned products wrap as sums of NumPy do; an overflow of signed ones is undefined in C.
        wide = "ulong" if self.spec.parts[n].part.dtype.itemsize > 4 else "uint"  # which may overflow
        return f"(part{n}_t)(({wide})({value}) * ({wide})clhist_factor)" if self.spec.factor else value

    def taken_type(self, output: Output) -> str:
        """Return the C type that an update of a bin takes: the value where its parts add terms of that."""
        return f"{'value' if self._takes_terms(output) else 'accumulator'}{output.suffix}_t"

    def lifted(self, output: Output, value: str) -> str:
        """Return C of what an update of a bin takes for a value."""
        return value if self._takes_terms(output) else f"clhist_lift{output.suffix}({value})"

    def term_type(self, part: SweepPart, term: str = "") -> str:
        """Return the C type of what an update of a long integer adds, in one of its forms."""
        return f"{(term or part.part.term).partition('(')[0]}_t"

    @property
    def word_of_terms(self) -> str:
        """C type of the parts of narrow sums of a CPU."""
        part = self.spec.parts[0].part
        if not part.is_narrow:
            return "double"
        from clhist.operators.narrow import has_quanta

        return "ulong" if has_quanta(part) else "double"

    @property
    def terms_apart(self) -> int:
        """Words between the parts of a term of a block: compilers make vectors that store pairs, but not triples."""
        return self.spec.block if self.spec.parts[0].part.words > 2 else 1

    def terms_of(self, number: str) -> str:
        """Return C of where the term of an element of a block begins."""
        return number if self.terms_apart > 1 else f"{self.spec.parts[0].part.words} * {number}"

    def _takes_terms(self, output: Output) -> bool:
        return all(self.takes_term(part) for part in self.parts_of(output))

    def takes_term(self, part: SweepPart) -> bool:
        """Return whether an update adds the term of a value: not where a bin is held, whose value is an accumulator."""
        return takes_term(part.part, part.update) and not self.spec.hot_bin

    @property
    def inlined(self) -> str:
        """The attribute that inlines the update of a long integer: on PoCL a call takes as long as the update."""
        long_integers = any(part.part.words and part.update == "private" for part in self.spec.parts)
        return "__attribute__((always_inline)) " if long_integers else ""

    def update_call(self, part: SweepPart, kind: str = "", value: str = "") -> str:
        """Return the statement that updates the cell of `bin` of a part, by what is lifted if nothing is given."""
        lock = [self.lock_argument(part).rstrip(", ")] if part.update == "lock" else []
        value = value or ("lifted" if self.takes_term(part) else f"lifted{part.part.accessor}")
        # Narrow sums compare a value with the window of exponents, and raise the flag of the call.
        more = ["clhist_base", "clhist_most", "clhist_call"] if part.part.is_narrow else []
        arguments = [f"clhist_cells{part.n} + {self.cell}", *lock, value, *more]
        return statement(f"{self.condition(part)}clhist_update{kind}{part.n}", arguments, 1)

    def wrapped(self, items: Sequence[str], indent: str = "    ") -> str:
        """Return items with commas, in lines."""
        return wrapped(items, indent)

    def loaded_type(self, argument: Argument) -> str:
        """Return the C type that one load of a streamed array brings."""
        lanes = self.spec.vector_width
        return f"{element_name(argument.dtype)}{lanes if lanes > 1 else ''}"

    def lane(self, number: int) -> str:
        """Return the member that selects one element of such a load."""
        # OpenCL C numbers components by one hexadecimal digit: .s0 to .sf.
        return f".s{number:x}" if self.spec.vector_width > 1 else ""


def repeated(text: str, values: Iterable[Mapping[str, object]], separator: str = "\n") -> str:
    """Return C once for each of the `values`, which take the place of their names in braces."""
    # Replaced one by one, since `str.format` would take the braces of C for fields.
    texts = []
    for names in values:
        filled = text
        for name, value in names.items():
            filled = filled.replace(f"{{{name}}}", str(value))
        texts.append(filled)
    return separator.join(texts)


def wrapped(items: Sequence[str], indent: str = "    ", end: str = "") -> str:
    """Return items with commas between them, in lines that are not long; all lines but the last get an `end`."""
    lines = [indent]
    for n, item in enumerate(items):
        text = item + ("," if n + 1 < len(items) else "")
        if lines[-1] != indent and len(lines[-1]) + len(text) + 1 + len(end) > _LONGEST_LINE:
            lines.append(indent)
        lines[-1] += text if lines[-1] == indent else f" {text}"
    return f"{end}\n".join(lines)


def statement(function: str, arguments: Sequence[str], depth: int) -> str:
    """Return a call as a statement at so many levels, in lines that are not long."""
    indent = 4 * depth * " "
    line = f"{indent}{function}({', '.join(arguments)});"
    return line if len(line) <= _LONGEST_LINE else f"{indent}{function}(\n{wrapped(arguments, f'{indent}    ')});"


def held_bin(state: SweepState) -> str:
    """Return declarations of the bin that a work-item holds, its value, and its votes in global memory."""
    if not state.spec.hot_bin:
        return ""
    votes = "" if state.is_local else "\n    uint clhist_votes[1];"
    return f"""\
    clhist_bin_t clhist_hot_bin[1];
    accumulator{state.spec.outputs[0].suffix}_t clhist_hot_value[1];{votes}"""


def hot_value(accessor: str) -> str:
    """Return C of a part of the value of the bin that is held."""
    return f"(*clhist_hot_value){accessor}" if accessor else "*clhist_hot_value"


def hold_none(state: SweepState) -> str:
    """Return the statements by which a work-item begins: it holds no bin.

    They come after the last barrier before the updates, since PoCL's compiler loses large structs that live across one.
    """
    if not state.spec.hot_bin:
        return ""
    votes = [] if state.is_local else ["    *clhist_votes = 0;"]
    return "\n".join(
        [
            "    // No bin is held yet: this number is beyond every histogram.",
            "    *clhist_hot_bin = ~(clhist_bin_t)0;",
            *votes,
            *(f"    {hot_value(part.part.accessor)} = clhist_neutral{part.n}();" for part in state.spec.parts),
        ]
    )


def update_held_bin(state: SweepState) -> str:
    """Return the statement that updates the bin which a work-item still holds after its last element."""
    if not state.spec.hot_bin:
        return ""
    s = state.spec.outputs[0].suffix
    return f"""\
    // End: the bin that is still held.
    if (*clhist_hot_bin < clhist_count{s})
        clhist_update_bin{s}(*clhist_hot_bin, *clhist_hot_value, CLHIST_STATE);"""
