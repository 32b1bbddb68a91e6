"""Copies of objects that hold bins: none shares them."""

from __future__ import annotations

import copy
import pickle

import boost_histogram as bh
import numpy as np
import pytest

import clhist
from clhist.rdf import RDF

X = np.array([0, 1, 1, 4], np.int32)
MAKERS = {
    "Accumulator": lambda: clhist.Accumulator("count", 5),
    "MultiAccumulator": lambda: clhist.MultiAccumulator("count", 5),
    "Filler": lambda: clhist.hist.Filler(bh.Histogram(bh.axis.Integer(0, 5))),
    "RDF": lambda: RDF(bins=4, r_max=2.0),
}


@pytest.mark.parametrize("name", MAKERS)
def test_objects_with_bins_on_a_device_are_refused(name):
    made = MAKERS[name]()
    for attempt, word in ((copy.copy, "copied"), (copy.deepcopy, "copied"), (pickle.dumps, "pickled")):
        with pytest.raises(TypeError, match=f"^{name}: cannot be {word}, .*can be"):
            attempt(made)


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy])
def test_partial_results_have_bins_of_their_own(copied):
    stream = clhist.Accumulator("count", 5).add(X, 1)
    part = stream.partial()
    other = copied(part)
    other.accumulators[...] += 100
    assert part.result().tolist() == [1, 2, 0, 0, 1] == stream.result().tolist()
    assert stream.merge(part, allow_repeat=True).result().tolist() == [2, 4, 0, 0, 2]


def test_kernels_and_bound_calls_may_be_shared(queue):
    kernel = clhist.HistogramKernel(queue.context, "count", arguments="const int *x", map="EMIT(x[i], 1)")
    bound = kernel.bind(X, num_bins=5)
    first, other = bound(), copy.copy(bound)()
    other += 1
    assert first.tolist() == [1, 2, 0, 0, 1] == copy.copy(kernel)(X, num_bins=5).tolist()
