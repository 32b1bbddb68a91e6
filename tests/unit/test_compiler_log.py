"""What compilers say of generated code, in terms of the user's own."""

import pytest

from clhist._core.opencl.compiler_log import complaints, explain

SOURCE = """\
float twice(float a) {
\treturn a + c;
}
accumulator_t clhist_lift(const value_t v)
{
    return v * none;
}
part0_t clhist_combine0(const part0_t a, const part0_t b)
{
    return a +* b;
}
void clhist_map(const float clhist_element_weight, __global const float *x, const int i)
{
    int bin = x[i + 1];
  EMIT(bin, clhist_element_weight * clhist_element_weight * scale);
}
value_t clhist_finish(const accumulator_t a)
{
    return a.none;
}
void clhist_sweep(int n)
{
    clhist_none(n);
}
"""
EMITS = "EMIT(bin, weight[i] * weight[i] * scale)"


@pytest.mark.parametrize(
    ("line", "column", "expected"),
    [
        (2, 13, ["preamble: oh", "    return a + c;", "               ^"]),
        (6, 16, ["lift: oh", "    v * none", "        ^"]),
        (10, 15, ["combine: oh", "    a +* b", "       ^"]),
        (14, 15, ["map, line 1: oh", "    int bin = x[i + 1]", "              ^"]),
        (15, 61, ["map, line 2: oh", f"    {EMITS}", " " * 38 + "^"]),
        (15, 13, ["map, line 2: oh", f"    {EMITS}", " " * 14 + "^"]),
        (19, 13, ["finish: oh", "    a.none", "     ^"]),
        (23, 5, ["generated code: oh", "    clhist_none(n);", "    ^"]),
    ],
)  # fmt: skip
def test_the_users_line_is_shown_with_a_caret(line, column, expected):
    found = explain(f"Build on <a device>\n\n7:{line}:{column}: error: oh\n", SOURCE).splitlines()
    assert found[:3] == expected
    assert found[3:] == ["error.log has the compiler's full output, error.source the generated OpenCL C"]


def test_parameters_of_the_map_may_take_several_lines():
    source = "void clhist_map(\n    const int i,\n    int *x)\n{\n    int k = i;\n    EMIT(k, nothing);\n}\n"
    assert explain("1:6:13: error: oh\n", source).splitlines()[:2] == ["map, line 2: oh", "    EMIT(k, nothing)"]
    assert explain("1:3:5: error: oh\n", source).splitlines()[:2] == ["arguments of the map: oh", "    int *x)"]


@pytest.mark.parametrize(
    "log",
    [
        "3:10:15: error: indirection requires pointer operand\n   10 |     return a +* b;\n",  # Intel's CPU runtime
        "<kernel>:10:15: error: indirection requires pointer operand\n    return a +* b;\n",  # NVIDIA's
        "/tmp/comgr-1/input/CompileSource:10:15: error: indirection requires pointer operand\n",  # AMD's
        "Device x failed to build the program, log:\nerror: /root/.cache/pocl/t.cl:10:15: indirection requires pointer "
        "operand\n1 error generated.\n",  # PoCL's
        "input.cl:10:15: fatal error: indirection requires pointer operand",
    ],
)
def test_the_formats_of_runtimes(log):
    (found,) = complaints(log)
    assert (found.line, found.column, found.says) == (10, 15, "indirection requires pointer operand")


def test_a_missing_brace_is_noticed_at_the_kernel():
    text = explain("1:3:1: error: expected expression\n", "void map() {\n if (x) {\n__kernel void sweep()")
    assert text.startswith("before the kernel (is a brace or a semicolon missing in your C?): expected expression")


def test_further_errors_are_counted():
    text = explain("1:2:13: error: one\n1:6:16: error: two\n1:2:13: error: one\n1:10:15: warning: three\n", SOURCE)
    assert text.splitlines()[0] == "preamble: one"
    assert "(1 more in error.log)" in text


@pytest.mark.parametrize("log", ["ptxas error: uses too much shared data\n", "1:400:1: error: beyond the end\n", ""])
def test_a_log_of_another_kind_is_shown_as_it_is(log):
    text = explain(
        f"clBuildProgram failed: BUILD_PROGRAM_FAILURE\n\nBuild on <a device>\n\n{log}(options: -I x)", SOURCE
    )
    assert text.splitlines() == ["the OpenCL compiler refused the kernel:", *log.splitlines()]
