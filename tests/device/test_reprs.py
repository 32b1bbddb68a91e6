"""What a user sees at the prompt and in a notebook."""

import html.parser

import numpy as np

import clhist


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
    assert repr(stream) == f"<Accumulator <Operator add on float32: a + b>: ((10,),) bins, 10 added, on {device}>"


def test_groups_say_what_they_are():
    device = clhist.default_queue().device.name.strip()
    groups = clhist.group_by(np.array([[0, 2], [2, 7]], np.int16))
    assert repr(groups) == f"<GroupBy 8 groups of 4 elements by int16, on {device}>"


def test_plans_are_tables_in_notebooks():
    kernel = clhist.HistogramKernel(None, clhist.operators.count(), arguments="const int *b", map="EMIT(b[i], 1)")
    plan = kernel.plan(1_000_000, 300)
    cells = Cells()
    cells.feed(plan._repr_html_())
    assert cells.rows == 1 + len(plan.steps)
    assert str(plan) in cells.words
    assert {step.symbol for step in plan.steps} <= set(cells.words)
