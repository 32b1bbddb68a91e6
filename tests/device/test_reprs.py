"""What a user sees at the prompt and in a notebook."""

import copy
import html.parser
import pickle

import numpy as np
import pytest

import clhist
from clhist import operators


class Cells(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.rows, self.words = 0, []

    def handle_starttag(self, tag, attrs):
        self.rows += tag == "tr"

    def handle_data(self, data):
        self.words.append(data)


def test_kernels_and_streams_say_what_they_are():
    kernel = clhist.HistogramKernel(
        None,
        clhist.operators.add(np.float32),
        arguments="const int32_t *bin, const float *x, float scale",
        map="EMIT(bin[i], x[i] * scale)",
    )
    device = clhist.default_queue().device.name.strip()
    assert repr(kernel) == (
        "<HistogramKernel(const int *bin, const float *x, const float scale): <Operator add on float32: a + b>; "
        f"on {device}>"
    )
    stream = clhist.Accumulator(np.add, 10, dtype=np.float32)
    stream.add(np.arange(10), np.ones(10, np.float32))
    assert repr(stream) == f"<Accumulator <Operator add on float32: a + b>: 10 bins, 10 added, on {device}>"


def test_groups_say_what_they_are():
    device = clhist.default_queue().device.name.strip()
    groups = clhist.group_by(np.array([[0, 2], [2, 7]], np.int16))
    assert repr(groups) == f"<GroupBy 3 groups of 4 elements by int32, on {device}>"


def test_plans_are_tables_in_notebooks():
    kernel = clhist.HistogramKernel(None, clhist.operators.count(), arguments="const int *b", map="EMIT(b[i], 1)")
    plan = kernel.plan(1_000_000, 300)
    cells = Cells()
    cells.feed(plan._repr_html_())
    assert cells.rows == 1 + len(plan.steps)
    assert str(plan) in cells.words
    assert {step.symbol for step in plan.steps} <= set(cells.words)


def test_bins_are_said_once():
    both = {"n": operators.count(), "x": operators.add(np.int32)}
    spec = clhist.Spec(both, 7, arguments="int x", map="EMIT_n(0, 1); EMIT_x(0, x)")
    assert repr(spec).endswith(", 7 bins>")
    assert repr(clhist.Spec("count", 10)) == "<Spec (indices, values): <Operator count on int64: a + b>, 10 bins>"
    assert ": 10 bins, 0 added, on " in repr(clhist.MultiAccumulator("count", 10))


def test_operators_are_short():
    for name in ("add", "minimum", "argmax", "mean", "variance", "standard_deviation"):
        text = repr(getattr(operators, name)(np.float32))
        assert text.startswith(f"<Operator {name} on "), text
        assert len(text) < 160, text
        assert "\n" not in text
        assert "formats" not in text
    assert repr(operators.argmax(np.float32)).startswith("<Operator argmax on (value float32, index int32): ")


def kernel():
    return clhist.HistogramKernel(None, operators.count(), arguments="const int *x", map="EMIT(x[i], 1)")


@pytest.mark.parametrize(
    ("make", "hint"),
    [
        (kernel, r"HistogramKernel: cannot be pickled, .* clhist\.Spec .* partial\(\)"),
        (lambda: clhist.group_by([0, 1]), r"GroupBy: cannot be pickled, .* clhist\.dask\.group_by"),
    ],
)
def test_what_is_on_a_device_says_what_can_be_pickled_instead(make, hint):
    made = make()
    for attempt in (pickle.dumps, copy.deepcopy):
        with pytest.raises(TypeError, match=f"^{hint}"):
            attempt(made)
    assert repr(copy.copy(made)) == repr(made)


def test_the_package_lists_public_names_alone():
    names = {name for name in dir(clhist) if not name.startswith("__")}
    assert names - set(clhist.__all__) == {"dask", "errors", "flox", "hist", "jax", "torch", "typing"}
    assert set(clhist.__all__) <= set(dir(clhist))
