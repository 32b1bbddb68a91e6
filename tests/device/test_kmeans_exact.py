"""Exact means of k-means: the same bits with each device's kernels."""

import dataclasses
import math

import numpy as np
import pyopencl.array as cl_array
import pytest

from clhist._core.opencl.device import profile_context
from clhist.cases.kmeans import blobs
from clhist.cases.kmeans_lloyd import Lloyd

pytestmark = pytest.mark.usefixtures("with_optimizer")


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_exact_means_are_the_same_bits_with_any_kernels_and_in_any_order(queue, rng, gpu_like, dtype):
    points = blobs(1001, 33, 20).astype(dtype)
    init, found = points[:20], []
    for local_memory in (None, gpu_like.local_memory, 20 * 16 * 44):  # a CPU's; a GPU's, the latter in slices
        with profile_context(dataclasses.replace(gpu_like, local_memory=local_memory) if local_memory else None):
            points = rng.permutation(points)
            lloyd = Lloyd(cl_array.to_device(queue, points), 20, queue, exact=True)
            before, step = lloyd.start(init), lloyd.new_step()
            lloyd.iterate(before, step)
            found.append((step.centers.get() + lloyd.mean).tobytes())
    assert len(set(found)) == 1
    labels, sums = step.label.get()[:1001], step.histograms["sum"].get()[0]
    expected = [math.fsum(points[labels == c, 7] - lloyd.mean[7]) for c in range(20)]
    assert (sums[:, 7] == np.array(expected, dtype)).all()
