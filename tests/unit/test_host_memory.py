"""Memory of NumPy results that are gone is that of later ones."""

from __future__ import annotations

import numpy as np
import pytest

from clhist._core.opencl import host_memory as kept_memory
from clhist._core.opencl.host_memory import HostMemory, converted
from clhist._core.opencl.new_arrays import HOST_ALIGNMENT, empty

MIB = 2**20


def address(array):
    return array.__array_interface__["data"][0]


def test_the_memory_of_results_that_are_gone_is_used_again():
    memory = HostMemory(16 * MIB)
    first, second = memory.new(4 * MIB), memory.new(4 * MIB)
    first[:], second[:] = 1, 2
    assert first.size >= 4 * MIB
    assert not np.shares_memory(first, second)
    part, place = first[5:].view(np.uint8), address(first)
    del first
    assert memory.idle_bytes == 0  # a part of it is held
    assert part.min() == 1
    del part
    assert memory.idle_bytes == 4 * MIB
    nearly = memory.new(4 * MIB - 1000)
    assert address(nearly) == place
    assert memory.idle_bytes == 0
    assert second.min() == 2


@pytest.mark.parametrize("size", [MIB, MIB + 1, 5 * MIB + 3, 8 * MIB - 1])
def test_blocks_are_an_eighth_larger_at_most(size):
    block = HostMemory().new(size)
    assert size <= block.size <= size * 9 / 8


def test_little_is_kept():
    """Not more than the limit: those that have waited longest go, and all if they are freed."""
    memory = HostMemory(10 * MIB)
    memory.new(11 * MIB)
    assert memory.idle_bytes == 0
    held = [memory.new(size * MIB) for size in (2, 4, 6)]
    places = [address(block) for block in held]
    while held:
        del held[0]
    assert memory.idle_bytes == 10 * MIB
    assert address(memory.new(6 * MIB)) == places[2]
    assert address(memory.new(4 * MIB)) == places[1]
    memory.free()
    assert memory.idle_bytes == 0


def test_what_is_kept_goes_where_there_is_no_room(monkeypatch):
    memory, full = HostMemory(), iter([True, False, True, True])
    memory.new(2 * MIB)
    assert memory.idle_bytes == 2 * MIB

    def without_room(size, dtype):
        if next(full):
            raise MemoryError
        return np.zeros(size, dtype)

    with monkeypatch.context() as patch:
        patch.setattr(kept_memory.np, "empty", without_room)
        assert memory.new(3 * MIB).size == 3 * MIB
        assert memory.idle_bytes == 3 * MIB
        with pytest.raises(MemoryError):
            memory.new(9 * MIB)
    assert memory.idle_bytes == 0


def test_results_begin_where_runtimes_take_them_as_they_are():
    for shape, dtype in (((3,), np.int32), ((MIB, 3), np.float64), ((0,), np.int64)):
        result = empty(None, shape, np.dtype(dtype), on_device=False)
        assert (result.shape, result.dtype) == (shape, np.dtype(dtype))
        assert result.flags.writeable
        assert address(result) % HOST_ALIGNMENT == 0 or result.size == 0


def test_a_container_with_little_memory_keeps_little(tmp_path, monkeypatch):
    limits = tmp_path / "memory.max", tmp_path / "none"
    monkeypatch.setattr(kept_memory, "_LIMITS", limits)
    limits[0].write_text("1073741824\n")
    assert kept_memory.most_idle_bytes() == 64 * MIB
    limits[0].write_text("max\n")
    assert 64 * MIB < kept_memory.most_idle_bytes() <= 512 * MIB


def test_few_blocks_wait_for_later_results():
    memory = HostMemory(64 * MIB)
    blocks = [memory.new(2**17) for _ in range(200)]
    del blocks
    assert memory.idle_bytes <= 65 * 2**17


@pytest.mark.parametrize("size", [0, 5, 50_000])
def test_numbers_are_converted(size):
    numbers = np.arange(size) - 3
    result = converted(numbers, np.dtype(np.int32))
    assert result.dtype == np.int32
    assert result.flags.writeable
    np.testing.assert_array_equal(result, numbers)
    assert converted(result, np.dtype(np.int32)) is result
