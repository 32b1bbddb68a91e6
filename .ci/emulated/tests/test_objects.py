"""Code objects: their kernels, as descriptors and notes say."""

import pytest
from emulated.compiler import CompileError, compile_for, disassembly
from emulated.objects import CodeObject, load

SOURCE = """
__constant int table[4] = {3, 1, 4, 1};
__kernel __attribute__((reqd_work_group_size(64, 2, 1)))
void first(__global int *out, short small, long large, __local int *scratch) {
    scratch[get_local_id(0)] = small;
    barrier(CLK_LOCAL_MEM_FENCE);
    out[get_global_id(0)] = scratch[63 - get_local_id(0)] + large + table[get_local_id(0) & 3];
}
__kernel void second(__global float *x) { __local float pool[100]; pool[get_local_id(0)] = x[0];
    barrier(CLK_LOCAL_MEM_FENCE); x[get_local_id(0)] = pool[99 - get_local_id(0)]; }
"""


def test_kernels_are_as_they_were_written(target):
    code = load(target, SOURCE)
    assert sorted(code.kernels) == ["first", "second"]
    first, second = code.kernels["first"], code.kernels["second"]
    assert first.required_group == (64, 2, 1)
    assert second.required_group is None
    assert [(each[".value_kind"], each[".size"], each[".offset"]) for each in first.visible] == [
        ("global_buffer", 8, 0),
        ("by_value", 2, 8),
        ("by_value", 8, 16),
        ("dynamic_shared_pointer", 4, 24),
    ]
    assert (first.local_bytes, second.local_bytes) == (0, 400)
    assert first.argument_bytes >= 28
    assert code.text <= first.entry < code.text + code.text_size


def test_it_is_loaded_once_and_compiled_once(target):
    assert load(target, SOURCE) is load(target, SOURCE)
    assert compile_for(target, SOURCE) == load(target, SOURCE).file
    assert compile_for(target, SOURCE, ["-DX"]) != load(target, SOURCE).file


def test_the_disassembly_is_found_around_an_address(target):
    code = load(target, SOURCE)
    lines = code.around(code.kernels["second"].entry)
    assert f"// {code.kernels['second'].entry - code.base:012X}:" in lines
    assert "s_endpgm" in disassembly(target, code.file)


def test_a_mistake_in_the_source_is_said(target):
    with pytest.raises(CompileError, match="undeclared identifier 'nothing'"):
        load(target, "__kernel void k(__global int *x) { x[0] = nothing; }")


def test_a_file_that_is_no_code_object_is_named(target, tmp_path):
    file = tmp_path / "text.co"
    file.write_bytes(b"text, not a code object" * 10)
    with pytest.raises(ValueError, match=r"text\.co: expected a code object"):
        CodeObject(file, target)
