"""The registers of a wave at its start, as a kernel's descriptor asks for them."""

from __future__ import annotations

import numpy as np

from emulated import alu
from emulated.alu import UnsupportedInstructionError
from emulated.objects import Kernel
from emulated.targets import Target

GARBAGE = 0xA5A5A5A5
_SCC, _PC, _SCRATCH_SIZE, _COUNT = 253, 256, 259, 320


def first_registers(kernel: Kernel, target: Target, arguments: int, packet: int) -> tuple[np.ndarray, int]:
    """Return the scalar registers that all waves begin with, and how many of them the descriptor asked for.

    Parameters
    ----------
    kernel : Kernel
        Of which the descriptor says what it wants.
    target : Target
        The GPU.
    arguments, packet : int
        Addresses of the segment of arguments and of the packet that dispatched it.

    Raises
    ------
    UnsupportedInstructionError
        For what is not emulated: arguments in registers, float32 without subnormal numbers.
    """
    if kernel.preloaded:
        raise UnsupportedInstructionError(f"{kernel.name}: arguments that are preloaded")
    if kernel.rsrc1 >> 16 & 3 != 3:
        raise UnsupportedInstructionError(f"{kernel.name}: float32 without subnormal numbers")
    user: list[int] = []
    for bit, value in enumerate((None, packet, 0, arguments, 0, 0)):
        if kernel.properties >> bit & 1:
            user += [GARBAGE] * 4 if value is None else [value & 0xFFFFFFFF, value >> 32]
    if kernel.properties >> 6 & 1:
        user.append(kernel.scratch_bytes)
    wanted = kernel.rsrc2 >> 1 & 31
    if len(user) > wanted:
        raise UnsupportedInstructionError(f"{kernel.name}: {len(user)} user registers where it has {wanted}")
    user += [GARBAGE] * (wanted - len(user))  # gfx11 has 15 of them
    found = np.full(_COUNT, GARBAGE, np.uint32)
    # Operands that are numbers, where tinygrad's code looks for them.
    found[128:193] = np.arange(65)
    found[193:209] = (-np.arange(1, 17)).astype(np.int64).astype(np.uint32)
    for index, bits in alu.tinygrad().F32_INLINE.items():
        found[index] = bits
    found[125 if target.is_gfx9 else 124] = 0  # RDNA: null
    found[249:256] = 0
    found[_SCC] = 0
    found[_PC : _PC + 3] = kernel.entry & 0xFFFFFFFF, kernel.entry >> 32, 0
    found[_SCRATCH_SIZE] = kernel.scratch_bytes
    found[: len(user)] = user
    return found, len(user)


def set_ids(
    registers: np.ndarray,
    kernel: Kernel,
    target: Target,
    template: np.ndarray,
    num_user: int,
    group: tuple[int, int, int],
) -> None:
    """Set the scalar registers of a wave of work-group `group`."""
    registers[:] = template
    if target.isa == "rdna4":
        registers[117], registers[115] = group[0], group[1] & 0xFFFF | group[2] << 16
        return
    at = num_user
    for axis, value in enumerate(group):
        if kernel.rsrc2 >> (7 + axis) & 1:
            registers[at] = value
            at += 1


def thread_ids(group: tuple[int, int, int], count: int) -> np.ndarray:
    """Return the packed numbers of the work-items of a group: 10 bits for each dimension."""
    item, (x, y, _) = np.arange(count, dtype=np.uint32), group
    return item // (x * y) << 20 | item // x % y << 10 | item % x
