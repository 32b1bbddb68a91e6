"""The source of the kernels: pure text of what it depends on, and of nothing else."""

from __future__ import annotations

import os
import re
import shutil
from itertools import product

import numpy as np
import pytest
from covering import mostly_slow
from processes import run_python

from clhist import Operator, operators
from clhist._core.devices.vendors import MEMORIES
from clhist._core.kernel_code import signatures
from clhist._core.kernels import stored_source
from clhist._core.kernels.arguments import parse_arguments
from clhist._core.kernels.render import render_combine, render_sweep
from clhist._core.kernels.specs import CombineSpec, SweepSpec
from clhist._core.model.plan import Output
from clhist._core.model.updates import UPDATES
from clhist._core.templates import _lookup

RECORD = np.dtype([("x", np.float32), ("n", np.int32)])


def spec(arguments="const int *x", map="EMIT(x[i], 1)", operator=None, **changed):
    changed = {"memory": "global", "order": "interleaved", "work_group_size": 64, **changed}
    declared = parse_arguments(arguments, {"record": RECORD})
    return SweepSpec(
        outputs(operator or operators.add(np.int32), changed.pop("update", "cas")), declared, map, **changed
    )


def outputs(operator, update):
    """The only output of a kernel."""
    return (Output(operator, (update,) * len(operator.parts)),)


@pytest.mark.parametrize(("memory", "update"), list(product(MEMORIES, UPDATES)))
def test_the_same_specification_gives_the_same_source(memory, update):
    variants = [("blocked", False), ("interleaved", True), ("interleaved", False)]
    sources = [
        render_sweep(spec(memory=memory, update=update, order=order, wide=wide, capacity=100))
        for order, wide in variants * 2
    ]
    assert sources[:3] == sources[3:]
    assert len(set(sources)) == 3
    for source in sources:
        assert not re.search(r"\$\{|<%|%>|^\s*%|##", source, re.MULTILINE), "left over from the template"
        assert source.count("{") == source.count("}")
        assert ("__local" in source) == (memory == "local")
        assert ("clhist_locks" in source) == (update == "lock")


@pytest.mark.parametrize(
    ("code", "calls"), [("EMIT(x[i], 1)", 2), ("EMIT(x[i], 1); " * 2, 2), (f"EMIT(x[i], {'0 + ' * 100}1)", 1)]
)
def test_a_long_map_is_compiled_once_for_a_cpu(code, calls):
    """Of a shorter one there are rounds, and a loop over the elements behind them."""
    shape = {"order": "blocked", "work_group_size": 1, "update": "private", "single_pair": code.count("EMIT") == 1}
    source = render_sweep(spec(map=code, **shape))
    compiled = re.sub(r"#else.*?#endif", "", source[source.index("#ifndef CLHIST_NO_ROUNDS") :], flags=re.DOTALL)
    assert compiled.count("clhist_map(") == calls


def test_a_name_that_a_template_lacks_is_an_error():
    with pytest.raises(NameError):
        _lookup().get_template("combine.mako").render(operator=operators.add(np.int32))


RENDERED = """
    import numpy as np
    from clhist._core.kernels import render
    from clhist._core.kernels.specs import CombineSpec

    print(render.render_combine(CombineSpec(clhist.operators.add(np.int32), "blocked")))
"""


@pytest.mark.parametrize("place", mostly_slow(["clhist/sources", "", "clhist"]))
def test_sources_are_stored_where_they_can_be(place, tmp_path):
    expected = run_python(RENDERED, PYOPENCL_NO_CACHE="1", XDG_CACHE_HOME=str(tmp_path))
    assert "clhist_combine_copies" in expected
    assert not (tmp_path / "clhist" / "sources").exists()
    if place:
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(tmp_path / place, ignore_errors=True)
        (tmp_path / place).touch()  # a file where a directory should be
    for turn in range(2):
        with_mako = f"{RENDERED}    print('mako' in sys.modules)"
        printed = run_python(with_mako, PYOPENCL_NO_CACHE="false", XDG_CACHE_HOME=str(tmp_path))
        assert printed == f"{expected}{bool(place) or turn == 0}\n"
    stored = [*tmp_path.glob("clhist/sources/*/*")]
    assert len(stored) == (0 if place else 1)


def test_a_damaged_source_is_rendered_again(tmp_path):
    expected = run_python(RENDERED, XDG_CACHE_HOME=str(tmp_path))
    (path,) = tmp_path.glob("clhist/sources/*/*")
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b"clhist_combine", b"clhist_combinE", 1))
    printed = run_python(
        f"    import warnings; warnings.simplefilter('ignore')\n{RENDERED}", XDG_CACHE_HOME=str(tmp_path)
    )
    assert printed == expected
    assert path.read_bytes() == whole


def test_stored_sources_are_those_of_equal_specs_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(stored_source, "_folder", lambda: tmp_path)
    monkeypatch.setenv("PYOPENCL_NO_CACHE", "false")
    rendered = []
    render = stored_source.stored_source(lambda *args, **kwargs: rendered.append(args) or f"// {len(rendered)}")
    add, maximum = operators.add(np.int32), operators.maximum(np.int32)
    specs = [CombineSpec(operator, order) for operator in (add, maximum) for order in ("blocked", "interleaved")]
    calls = [
        *((spec,) for spec in specs), (tuple(specs),), (1,), (True,), (1.0,), ("1",), (b"1",), (None,),
        (np.dtype("f4"),), (np.dtype("f8"),), (frozenset("ab"),), (("a", "b"),), ("a", "b"), (["a", "b"],), ("a, b",),
    ]  # fmt: skip
    texts = [render(*call) for call in calls]
    assert len(set(texts)) == len(calls) == len(rendered)
    assert [render(*call) for call in calls] == texts
    assert len(rendered) == len(calls)
    # A keyword is part of the key; values without a text of their own are rendered by every call.
    assert render(1, lanes=2) == render(1, lanes=2) != render(1, lanes=3)
    assert render(object()) != render(object())


def test_another_time_of_a_file_is_another_directory(tmp_path, monkeypatch):
    shutil.copytree(stored_source.resources.files("clhist.kernels_cl"), tmp_path / "kernels_cl")
    monkeypatch.setattr(stored_source.resources, "files", lambda name: tmp_path)
    folders = set()
    for seconds in (1, 2, 1):
        os.utime(tmp_path / "kernels_cl" / "sweep.mako", (seconds, seconds))
        folders.add(stored_source._folder.__wrapped__())
    assert len(folders) == 2


def test_mako_is_imported_with_the_first_kernel():
    found = "[name for name in ('mako', 'tomllib', 'click') if name in sys.modules]"
    others = "print('pygments' in sys.modules, 'mako.ext.pygmentplugin' in sys.modules)"
    printed = run_python(f"    from clhist import *; print({found})\n{RENDERED}    {others}")
    assert printed.startswith("[]\n")
    assert printed.endswith("False False\n")


def test_no_device_is_needed():
    printed = run_python(
        """
        import numpy as np
        from clhist._core.devices.profile import named_profile
        from clhist._core.devices.profile_files import load_profiles
        from clhist._core.kernels.render import render_combine, render_sweep
        from clhist._core.kernels.specs import CombineSpec, SweepSpec

        operator = clhist.operators.add(np.int32)
        plan = clhist.plan(clhist.Problem.of(operator, 100, 10**6), named_profile("nvidia-h200", load_profiles()))
        print(render_sweep(SweepSpec(plan.outputs, (), "EMIT(i, 1)", plan.memory, "blocked", 1, 100)))
        print(render_combine(CombineSpec(operator, "blocked")))
        try:
            clhist.default_queue()
        except clhist.NoDeviceError as error:
            print(error)
        """,
        OCL_ICD_VENDORS="/nowhere/libnothing.so",
    )
    assert "clhist_sweep" in printed
    assert "clhist_combine_copies" in printed
    assert (
        "no OpenCL platform was found; install a GPU driver with OpenCL, or an OpenCL for the processor: pip" in printed
    )


@pytest.mark.parametrize(
    ("arguments", "map", "streamed"),
    [
        ("const int *x", "EMIT(x[i], 1)", "x"),
        ("const int *x", "EMIT(x[ i ], x [i])", "x"),
        ("const int *x, const int *xx", "EMIT(x[i], xx[i])", "x xx"),
        ("const int *x, const int *y", "EMIT(x[y[i]], 1)", "y"),
        ("const int *x", "EMIT(x[i + 1], x[i])", ""),
        ("const int *x", "const int *p = x; EMIT(p[i], 1)", ""),
        ("const int *x", "EMIT(i, 1)", ""),
        ("int *x", "EMIT(x[i], 1)", ""),  # the map may write it
        ("const record *x", "EMIT(x[i].n, 1)", ""),
        ("const float2 *x", "EMIT(x[i].x, 1)", ""),
        ("int x", "EMIT(x, 1)", ""),
    ],
)
def test_arrays_that_are_only_read_in_order(arguments, map, streamed):
    assert [argument.name for argument in spec(arguments, map).streamed] == streamed.split()


@pytest.mark.parametrize(
    ("arguments", "width"),
    [("const char *x", 16), ("const short *x", 8), ("const int *x", 4), ("const float *x", 4), ("const double *x", 2)],
)
def test_loads_are_16_bytes_wide(arguments, width):
    aligned = spec(arguments, aligned=True)
    assert aligned.vector_width == width
    assert f"{arguments.split()[1]}{width} *" in render_sweep(aligned)


def test_loads_of_arrays_of_different_widths():
    both = spec("const char *x, const double *y", "EMIT(x[i], y[i])", aligned=True)
    assert both.vector_width == 2
    assert "char2 *" in render_sweep(both)
    assert "double2 *" in render_sweep(both)


@pytest.mark.parametrize("c_type", ["unsigned int", "value_t", "number"])
def test_wide_loads_of_types_with_other_names(c_type):
    # OpenCL C has vectors of its own types only: no "unsigned int4", no "value_t4".
    declared = parse_arguments(f"const {c_type} *x", {"value_t": np.dtype(np.int32), "number": np.dtype(np.int32)})
    output = outputs(operators.add(np.int32), "cas")
    source = render_sweep(SweepSpec(output, declared, "EMIT(x[i], 1)", "global", "interleaved", 64, aligned=True))
    assert f"{c_type}4" not in source
    assert ("uint4 *" if c_type == "unsigned int" else "int4 *") in source


@pytest.mark.parametrize(
    "changed",
    [
        {"aligned": False},
        {"order": "blocked"},
        {"map": "EMIT(x[i], 1)" + 400 * " "},
        {"map": "EMIT(x[i + 1], 1)"},
        {"arguments": "int *x"},
    ],
)
def test_no_wide_loads(changed):
    narrow = spec(**{"aligned": True, **changed})
    assert (narrow.vector_width, narrow.loads) == (1, 1)
    assert "int4" not in render_sweep(narrow)


@pytest.mark.parametrize(
    ("memory", "features", "fence"),
    [
        ("local", {"nvidia_ptx", "amd_builtins", "device_fence"}, "mem_fence(CLK_LOCAL_MEM_FENCE)"),
        ("global", set(), "mem_fence(CLK_GLOBAL_MEM_FENCE)"),
        ("global", {"nvidia_ptx"}, "membar.gl"),
        ("global", {"amd_builtins", "device_fence"}, "__builtin_amdgcn_fence"),
        ("global", {"device_fence"}, "memory_scope_device"),
    ],
)
def test_fence_between_a_lock_and_its_data(memory, features, fence):
    source = render_sweep(spec(memory=memory, update="lock", capacity=10, device_features=frozenset(features)))
    assert source.count(fence) >= 2
    others = {
        "mem_fence(CLK_LOCAL_MEM_FENCE)",
        "mem_fence(CLK_GLOBAL_MEM_FENCE)",
        "membar.gl",
        "__builtin_amdgcn_fence",
    }
    assert not any(other in source for other in others - {fence})


def test_double_precision_only_where_it_is_needed():
    assert "cl_khr_fp64" not in render_sweep(spec()) + render_combine(CombineSpec(operators.add(np.float32), "blocked"))
    assert "cl_khr_fp64" in render_sweep(spec(operator=operators.add(np.float64)))
    assert "cl_khr_fp64" in render_combine(CombineSpec(operators.add(np.complex128), "interleaved"))


def test_what_is_written_stands_in_the_source():
    operator = Operator(np.int32, "joined(a, b)", 7, preamble="int joined(int a, int b) { return a | b; }")
    source = render_sweep(
        spec("record *y", "EMIT(i, half_of(y[i]))", operator, preamble="int half_of(record r) { return r.n / 2; }",
             structs=(("record", RECORD),))
    )  # fmt: skip
    assert source.index("typedef int value_t;") < source.index("int joined(int a, int b) { return a | b; }")
    assert source.index("struct { float x; int n; } record;") < source.index("int half_of(record r)")
    assert source.index("int half_of(record r)") < source.index("EMIT(i, half_of(y[i]))")
    assert "return ((int)7);" in source


@pytest.mark.parametrize(
    ("dtype", "words"),
    [
        (np.dtype([("x", np.int64), ("y", np.int64)]), ["ulong"] * 2),  # NumPy says of this one that it is not aligned
        (np.dtype([("x", np.int32), ("y", np.float32), ("z", np.int16)], align=True), ["uint"] * 3),
        (np.dtype([("x", np.int16), ("y", np.int8)], align=True), []),
    ],
)
@pytest.mark.parametrize("memory", MEMORIES)
def test_what_a_lock_guards_is_read_and_written_word_by_word(dtype, words, memory):
    # clang copies a volatile struct to the memory of a work-item.
    operator = Operator(dtype, "a.x < b.x ? b : a", (0,) * len(dtype.names))
    source = render_sweep(spec(map="EMIT(x[i], ((value_t){x[i]}))", operator=operator, update="lock", memory=memory))
    for k, word in enumerate(words):
        assert f"(volatile __{memory} {word} *)bin" in source
        assert f"held.words[{k}] = CLHIST_RELAXED_LOAD(" in source
        assert f", words + {k}, held.words[{k}]);" in source
    assert source.count("CLHIST_RELAXED_STORE(a") == len(words)
    assert ("bin->value = clhist_combine0(bin->value, value)" in source) == (not words)


def test_parameters_are_read_from_the_source():
    found = signatures("""
        void clhist_add(__global uint *x);
        __kernel __attribute__((reqd_work_group_size(2, 1, 1))) void clhist_one(
            volatile __global const float *x, const long size)
        {}
        __kernel void clhist_two(__global void *b, double d) {}""")
    assert {name: [each.dtype for each in of] for name, of in found.items()} == {
        "one": [None, np.int64], "two": [None, np.float64],
    }  # fmt: skip
    with pytest.raises(KeyError, match="float4"):
        signatures("__kernel void clhist_one(float4 x)")
