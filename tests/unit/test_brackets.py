"""Brackets and quotes of a map that do not match are found before a compiler sees them."""

from __future__ import annotations

import pytest

from clhist._core.kernels.maps import unbalanced


@pytest.mark.parametrize(
    ("code", "wrong"),
    [
        ("EMIT(a[i, 1)", "line 1 has ) where line 1 has ["),
        ("if (x) {\n EMIT(1, 2);\n", "line 1 has { without }"),
        ("int k = 1;\nEMIT((k, 1)", "line 2 has ( without )"),
        ("#define A \\\n (1)\nEMIT(A, 1))", "line 3 has a ) too many"),
        ("EMIT(1, ')", "line 1 has a ' without an end"),
        ("/* EMIT(1, 1)", "line 1 has a /* without */"),
        ("EMIT(1, 1) /*/", "line 1 has a /* without */"),
    ],
)
def test_what_is_wrong_is_said_with_its_line(code, wrong):
    assert unbalanced(code) == wrong


@pytest.mark.parametrize(
    "code",
    [
        "",
        "EMIT(a[i], 1)",
        "if (x) { EMIT(1, '(') }",
        'EMIT(1, "(\\"")',
        "EMIT(1, '\\'')",
        "// don't (\nEMIT(1, 1)",
        "/* ( */ EMIT(1, 1)",
        "#define A(x) (x)\nEMIT(A(1), 1)",
        "#define FIRST {\nFIRST EMIT(1, 1) }",
        "#if X\nif (x) {\n#else\n{\n#endif\nEMIT(1, 1) }",
    ],
)
def test_what_may_be_right_passes(code):
    assert unbalanced(code) is None


def test_macros_of_the_preamble_may_have_brackets():
    assert unbalanced("LOOP EMIT(k, 1) }", "#define LOOP for (int k = 0; k < 2; k++) \\\n  {") is None
    assert unbalanced("TWICE(EMIT(1, 1)", "#define TWICE(x) x; x") == "line 1 has ( without )"
