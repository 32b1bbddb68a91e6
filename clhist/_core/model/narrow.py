"""Exact sums in few words: of values of similar sizes, which some of them show; of others they are computed again.

A kernel looks at some values, and says which words of a long integer theirs lie in. The sweep adds to these; what it
cannot add raises a flag, and the plan for all values, which is enqueued behind and else leaves at once, computes again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from clhist._core.kernel_code import Parameter
from clhist._core.model.feature import Fallback, Guarded, SweepView, Variable, buffers, uints
from clhist._core.model.plan import Plan
from clhist._core.model.updates import CARRY, PRIVATE
from clhist.operators.narrow import range_of
from clhist.operators.operator import Operator

CALL_WORDS = 4  # of global memory: the flag, whether what is behind was called by it, and the lowest exponent
LOOKED_AT = 16384  # elements
LOOKING_GROUP = 1024  # work-items
# Elements for which looking at some, and three more kernels, are little.
LEAST_ELEMENTS = 64 * LOOKED_AT
# Of windows over local memory: more were no faster than partitioning exact sums with `max_abs` on an H200, by a
# command that was not recorded. Predicted times would end at three.
_MOST_PASSES = 5
_COMBINED_ROWS = 8  # of a work-group that adds up the words of all copies


class _Called(Guarded):
    """The flag is in memory of its own; the second stage asks it, too."""

    def leave_parameters(self) -> tuple[Parameter, ...]:
        return buffers("__global const uint *", "call")

    def combine_parameters(self) -> tuple[Parameter, ...]:
        return self.leave_parameters()


@dataclass(frozen=True)
class NarrowSums(_Called):
    """Long integers have the words of `form` alone, whose bins are those of another operator in the end.

    Attributes
    ----------
    form : Operator
        Of `clhist.operators.narrow`.
    max_pairs : int
        Values that an element has at most.
    """

    template: ClassVar[str] = "narrow.mako"
    sections: ClassVar[tuple[str, ...]] = ("guard", "combine")
    combine_rows: ClassVar[int] = _COMBINED_ROWS

    form: Operator
    max_pairs: int

    def parameters(self, sweep: SweepView) -> tuple[Parameter, ...]:
        return (*buffers("__global uint *", "call"), *uints("most", "lowest", "highest"))

    def arguments(self, plan: Plan, sweep: SweepView) -> Mapping[str, object]:
        value_range = range_of(self.form, _most_values(plan, self.max_pairs))
        return {f"clhist_{name}": number for name, number in value_range._asdict().items()}

    def state(self, sweep: SweepView) -> tuple[Variable, ...]:
        numbers = (Variable("const uint", f"clhist_{name}") for name in ("base", "most"))
        return (*numbers, Variable("volatile __global uint *", "clhist_call"))

    def comment(self) -> str:
        number = self.form.parts[0].words
        return f"sums in {number} word{'s' * (number > 1)}; a value that does not fit raises a flag"


@dataclass(frozen=True)
class SeparateFallback(_Called, Fallback):
    """A fallback with a flag in memory of its own, behind narrow sums or rows; the second stage waits for it, too."""

    sections: ClassVar[tuple[str, ...]] = ("guard", "leave")
    is_apart: ClassVar[bool] = True
    combine_rows: ClassVar[int] = 1  # PoCL compiles no barrier behind a work-group's leaving, which rows would need

    def parameters(self, sweep: SweepView) -> tuple[Parameter, ...]:
        return buffers("__global uint *", "call")

    def comment(self) -> str:
        return "it computes only if what is before it raised the flag"


def narrow_form(plan: Plan, max_pairs: int | None, *, on_cpu: bool) -> Operator | None:
    """Return the narrow form in which a plan's sums may be tried, where a look at some values is little beside them."""
    # A CPU sums its private copies in parts of double precision; shared copies add words with carries.
    own = on_cpu and (plan.owns_copies or plan.ranges > 0) and plan.update == PRIVATE.name
    shared = (plan.memory == "local" or not on_cpu) and plan.update == CARRY.name
    if len(plan.outputs) != 1 or plan.is_batch or plan.is_one_launch or not (own or shared) or max_pairs is None:
        return None
    form = next((form for form in plan.outputs[0].operator.narrow if form.parts[0].is_split == own), None)
    fits = form is not None and range_of(form, _most_values(plan, max_pairs)).most > 0
    return form if fits and plan.num_elements >= LEAST_ELEMENTS else None


def _most_values(plan: Plan, max_pairs: int) -> int:
    """Return how many values a bin may get before the second stage: of a work-item's share, if copies are its own."""
    items = plan.work_groups * plan.work_group_size if plan.owns_copies else 1
    return (plan.num_elements // items + 1) * max_pairs


def before(narrow: Plan, whole: Plan) -> Plan:
    """Return the plan of narrow sums with that of all sums behind it, or that alone if the other is of another kind.

    Copies that work-items own may be anywhere: none are cleared before, whether values fit or not.
    """
    same = narrow.memory == whole.memory or narrow.update == PRIVATE.name
    same = same and narrow.update == whole.update and not narrow.is_one_launch
    # What computes again may write at once: no bin has been written where it does.
    return replace(narrow.by_copies(), again=whole if whole.ranges else whole.by_copies()) if same else whole


def saves_a_pass(narrow: Plan, whole: Plan) -> bool:
    """Whether shared sums of a window, which have no flags if they are narrow, save a pass of `whole` or its ranges."""
    if narrow.ranges or narrow.memory != "local":
        return False
    # Ranges need one pass over their pairs, so the measured limit takes the place of a comparison.
    return narrow.passes <= _MOST_PASSES if whole.ranges else narrow.passes < whole.passes
