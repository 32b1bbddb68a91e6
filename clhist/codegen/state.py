"""C snippets of one sweep: the state that functions pass on, where cells and locks are, and calls of the map."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from clhist.codegen.maps import Argument
from clhist.codegen.specs import AHEAD_BYTES, LINE_BYTES, Output, SweepPart, SweepSpec
from clhist.operators.c_types import c_name


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
    def is_private(self) -> bool:
        """Whether each work-item has its own copy."""
        return self.spec.update == "private"

    @property
    def has_tasks(self) -> bool:
        """Whether a team goes through a list of tasks: chunks of the elements of one histogram of a batch."""
        return self.spec.batch in ("equal", "ragged")

    @property
    def is_flat(self) -> bool:
        """Whether the histograms of a batch are counted as one histogram of all their bins."""
        return self.spec.batch == "flattened"

    @property
    def is_partitioned(self) -> bool:
        """Whether the arguments are pairs grouped by partition."""
        return self.spec.batch == "partitioned"

    @property
    def takes_turns(self) -> bool:
        """Whether a work-item may have several copies, to which neighbouring elements go in turn."""
        return self.spec.in_turn

    def stride(self, suffix: str) -> str:
        """How many cells one copy begins behind the one before."""
        return f"clhist_stride{suffix}" if self.spec.apart else f"clhist_num_bins{suffix}"

    @property
    def passed_in_turn(self) -> str:
        """The `passed` of a loop in which an element updates the copy whose turn it is."""
        cells = {f"clhist_cells{part.n}" for part in self.spec.parts} if self.takes_turns else set()
        return ", ".join(f"{name} + clhist_turn" if name in cells else name for _, name in self.variables)

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
        """What an update needs besides bin and value: C types and names, in the order in which they are passed."""
        spec, found = self.spec, []
        if spec.counter_bits:
            suffix = spec.outputs[0].suffix
            found += [(f"const {self.bin_type}", f"clhist_{name}{suffix}") for name in ("first", "count")]
            found += [("volatile __local uint *", f"clhist_{name}") for name in ("words", "spills")]
            found += [("volatile __global uint *", f"clhist_{name}") for name in ("table", "flag")]
            found += [("const uint", f"clhist_{name}") for name in ("table_size", "most_spills")]
            found += [("clhist_pending_t *", "clhist_pending")]
        else:
            found += self._of_copies()
        if spec.hot_bin:
            found += [("clhist_bin_t *", "clhist_hot_bin")]
            found += [(f"accumulator{output.suffix}_t *", "clhist_hot_value") for output in spec.outputs]
            found += [] if self.is_local else [("uint *", "clhist_votes")]
        if spec.bucketed:
            found += [("const uint", f"clhist_bucket_{name}") for name in ("bits", "room")]
            found += [("__global uint *", "clhist_bucket_ends"), ("__global ushort *", "clhist_bucket_places")]
            if spec.value is None:
                found.append((f"__global value{spec.outputs[0].suffix}_t *", "clhist_bucket_values"))
        if self.is_flat:
            found += [(f"const {self.bin_type}", f"clhist_bins_each{output.suffix}") for output in spec.outputs]
        return tuple(found)

    def _of_copies(self) -> list[tuple[str, str]]:
        """Return the range of bins of each output, then cells, locks, and how to index both."""
        found = []
        for output in self.spec.outputs:
            found += [(f"const {self.bin_type}", f"clhist_{name}{output.suffix}") for name in ("first", "count")]
            if output.suffix in self.locked_suffixes:
                found.append((f"const {self.lock_type}", f"clhist_lock_base{output.suffix}"))
        if self.spec.is_dealt:
            found += [("const uint", f"clhist_{name}") for name in ("passes", "magic", "shift")]
        found += [(f"{self.space} cell{part.n}_t *", f"clhist_cells{part.n}") for part in self.spec.parts]
        found += [(f"volatile {self.space} int *", f"clhist_locks{part.n}") for part in self.locked]
        found += [("const uint", "clhist_copies")] if self.is_local else []
        found += [(f"const {self.lock_type}", "clhist_lock_mask")] if self.locked else []
        return found

    @cached_property
    def declared(self) -> str:
        """The `variables` as parameters of a function."""
        return ", ".join(f"{c_type} {name}" for c_type, name in self.variables)

    @cached_property
    def passed(self) -> str:
        """The `variables` as arguments of a call."""
        return ", ".join(name for _, name in self.variables)

    @property
    def declared_settled(self) -> str:
        """The same of functions that follow an update of packed counters, which is in private memory."""
        return ", ".join(f"{c_type} {name}" for c_type, name in self.variables if name != "clhist_pending")

    @property
    def passed_settled(self) -> str:
        """The arguments of these."""
        return ", ".join(name for _, name in self.variables if name != "clhist_pending")

    @property
    def cell(self) -> str:
        """Index of the cell of `bin`: local copies of one bin are neighbours."""
        return "bin * clhist_copies" if self.is_local else "bin"

    def lock_argument(self, part: SweepPart) -> str:
        """Return the argument by which an update gets its lock, with a comma; nothing for updates without one."""
        if part.update != "lock":
            return ""
        index = f"({self.cell} + clhist_lock_base{part.output.suffix}) & clhist_lock_mask"
        return f"clhist_locks{part.n} + ({index}), "

    def condition(self, part: SweepPart) -> str:
        """Return the condition of an update: flags of a product are mostly 0, which changes nothing."""
        is_flag = part.part.accessor and part.part.operation == "bitwise_or"
        return f"if (lifted{part.part.accessor} != 0) " if is_flag else ""

    def end_alignment(self, part: SweepPart) -> int:
        """Return to a multiple of what the end of a part's local cells is rounded: 16 suits any type, 4 a lock."""
        return 4 if part is self.spec.parts[-1] else 16

    @property
    def map_parameters(self) -> str:
        """Parameters of the map: the caller's arguments, the index, and in a flat batch the element's histogram."""
        histogram = ["const clhist_bin_t clhist_histogram"] if self.is_flat else []
        return ", ".join([*self.spec.map_parameters(), "const clhist_index_t i", *histogram])

    def map_arguments(self, element: Callable[[Argument], str], index: str) -> str:
        """Return the same in a call for the element number `index`; `element` gives the C of a streamed one."""
        histogram = [f"(clhist_bin_t)(({index}) / (clhist_index_t)clhist_each)"] if self.is_flat else []
        return ", ".join([*self.spec.map_arguments(element), index, *histogram])

    @property
    def next_element(self) -> str:
        """The arguments of the map in a loop over single elements `i`."""
        return self.map_arguments(lambda argument: f"{argument.name}[i]", "i")

    def asked_ahead(self, first: str) -> list[str]:
        """Return C of the addresses that a CPU is asked for while it works on a round of elements from `first` on."""
        found = []
        for argument in self.spec.streamed:
            size = argument.dtype.itemsize
            lines = range(max(1, self.spec.round * size // LINE_BYTES))
            found += [f"{argument.name} + {first} + {(AHEAD_BYTES + line * LINE_BYTES) // size}" for line in lines]
        return found

    def emitted_bin(self, output: Output) -> str:
        """Return the bin that an ``EMIT`` of `output` updates, as unsigned C."""
        bin = "CLHIST_BIN(bin)"
        return f"clhist_flat({bin}, clhist_bins_each{output.suffix}, clhist_histogram)" if self.is_flat else bin

    def loaded_type(self, argument: Argument) -> str:
        """Return the C type that one load of a streamed array brings."""
        lanes = self.spec.vector_width
        return f"{c_name(argument.dtype)}{lanes if lanes > 1 else ''}"

    def lane(self, number: int) -> str:
        """Return the member that selects one element of such a load."""
        return f".s{number:x}" if self.spec.vector_width > 1 else ""
