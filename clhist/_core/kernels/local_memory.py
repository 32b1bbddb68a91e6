"""C of the copies of a work-group in local memory: where cells and locks are; see ``copies_local.mako``."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from clhist._core.kernels.specs import SweepPart
    from clhist._core.kernels.state import SweepState


def arrays_in_pool(state: SweepState) -> str:
    """Return declarations of the cells of each part, for all teams, and of the locks, one array after another.

    Types are of several sizes, so that only the kernel knows where the arrays behind the first begin: `clhist_room`.
    """
    # A single array begins at the pool, so no offset is declared.
    is_single = len(state.spec.parts) + len(state.locked) == 1
    lines = [] if is_single else ["    uint clhist_room = 0;"]
    if state.spec.teams > 1:
        lines.append(f"    const uint clhist_team_number = get_local_id(0) / {state.spec.team_size};")
    last = (state.locked or state.spec.parts)[-1]
    for part in state.spec.parts:
        begin = "clhist_pool" if is_single else "(clhist_pool + clhist_room)"
        lines += _cells(state, part, begin, is_last=part is last and not state.locked)
    for part in state.locked:
        lines += _locks(state, part, is_last=part is last)
    return "\n".join(f"    {line.strip()}" for line in lines)


def _cells(state: SweepState, part: SweepPart, begin: str, *, is_last: bool) -> list[str]:
    """Return the lines that declare the cells of the work-item's team, and where the next array begins."""
    n, teams = part.n, state.spec.teams
    offset = f" + clhist_team_number * clhist_cells_of_team{n}" if teams > 1 else ""
    lines = [f"__local cell{n}_t *clhist_own{n} = (__local cell{n}_t *){begin}{offset};"]
    if teams > 1 or not is_last:
        bins = f"(uint)clhist_bins_per_pass{part.output.suffix}"
        lines.insert(0, f"const uint clhist_cells_of_team{n} = {bins} * clhist_copies;")
    if not is_last:
        # The next array may be of a larger type, which must be aligned.
        alignment = state.end_alignment(part)
        lines += [
            f"clhist_room += {_cells_of_teams(state, part)} * (uint)sizeof(cell{n}_t);",
            f"clhist_room = (clhist_room + {alignment - 1}) / {alignment} * {alignment};",
        ]
    return lines


def _locks(state: SweepState, part: SweepPart, *, is_last: bool) -> list[str]:
    """Return the lines that declare the locks of all teams, no more than there are cells."""
    n, cells = part.n, _cells_of_teams(state, part)
    lines = [
        f"volatile __local int *clhist_locks{n} = (volatile __local int *)(clhist_pool + clhist_room);",
        f"const uint clhist_num_locks{n} = min(clhist_lock_mask, {cells} - 1) + 1;",
    ]
    return lines if is_last else [*lines, f"clhist_room += clhist_num_locks{n} * (uint)sizeof(int);"]


def _cells_of_teams(state: SweepState, part: SweepPart) -> str:
    teams = f" * {state.spec.teams}" if state.spec.teams > 1 else ""
    return f"clhist_cells_of_team{part.n}{teams}"


def own_locks(state: SweepState) -> str:
    """Return declarations of the number of the lock of the work-item's bin 0, of each output with locks."""
    offset = "clhist_team_number * (uint)clhist_bins_per_pass{s} * clhist_copies + " if state.spec.teams > 1 else ""
    return state.for_each_lock(f"    const uint clhist_lock_base{{s}} = {offset}clhist_lane % clhist_copies;")


def barrier_before_next_share(state: SweepState) -> str:
    """Return the barrier at the end of a share, if the work-group takes several shares of the elements."""
    if not (state.has_tasks or state.is_partitioned):
        return ""
    return "    barrier(CLK_LOCAL_MEM_FENCE);  // before the next share sets the cells"
