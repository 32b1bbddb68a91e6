"""A user's program that type checkers accept, with the types that they must find."""

from collections.abc import Sequence
from typing import Any, assert_type

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array
from numpy.typing import NDArray

import clhist
from clhist import ndimage, stats
from clhist.typing import BinnedStatisticResult, DeviceArray, HostArray, Named

queue = clhist.default_queue()
bins = np.array([0, 1, 1], np.int32)
values: NDArray[np.float32] = np.ones(3, np.float32)
on_device = cl_array.to_device(queue, bins)
values_on_device = cl_array.to_device(queue, values)
dest: NDArray[np.float32] = np.zeros(2, np.float32)

# NumPy in, NumPy out, with its dtype; device in, device out.
assert_type(clhist.bincount(bins), NDArray[np.intp])
assert_type(clhist.bincount([0, 1, 1], weights=[1.0, 2.0, 3.0]), NDArray[np.float64])
assert_type(clhist.bincount(on_device), DeviceArray)
assert_type(clhist.reduce_by_index(dest, np.add, bins, values), NDArray[np.float32])
assert_type(clhist.reduce_by_index(2, "mean", bins, values), HostArray)
assert_type(clhist.reduce_by_index((2, 3), np.add, bins, np.ones((3, 3))), HostArray)
assert_type(clhist.reduce_by_index(2, np.add, on_device, values_on_device), DeviceArray)
assert_type(clhist.reduce_by_index(on_device, np.add, on_device, 1), DeviceArray)

# Options; sequences, and tuples of arrays.
assert_type(clhist.reduce_by_index(dest, np.add, bins, values, update="cas", race_factor="sample"), NDArray[np.float32])
assert_type(clhist.reduce_by_index((2, 3), "sum", [0, 1, 1], 1), HostArray)
assert_type(clhist.reduce_by_index((dest, dest), "argmax", bins, (values, bins))[0], NDArray[np.float32])
assert_type(clhist.reduce_by_index(3, "count", on_device, 1), DeviceArray)

# Kernels: one result, several in order, several by name.
single = clhist.HistogramKernel(None, clhist.operators.count(), arguments="const int *b", map="EMIT(b[i], 1)")
assert_type(single(bins, num_bins=2), HostArray)
assert_type(single(on_device, num_bins=2, memory="local"), DeviceArray)
assert_type(single.bind(on_device, num_bins=2)(return_event=True), tuple[DeviceArray, cl.Event])
assert_type(single.timed(bins, num_bins=2, queue=queue), tuple[HostArray, dict[str, float]])
assert_type(single.operator, clhist.Operator)
assert_type(single.plan(100, 2), clhist.Plan)
assert_type(single.plan(100, 2).copies, int)

named = clhist.HistogramKernel(
    None, {"n": "count"}, arguments="const int *b", map="EMIT_n(b[i], 1)", structs={"pair": np.dtype("i4,i4")}
)
assert_type(named(bins, num_bins={"n": 2}), dict[str, HostArray])
assert_type(named(on_device, num_bins=2)["n"], DeviceArray)
assert_type(named.plan(100, 2), tuple[clhist.Plan, ...])

ordered = clhist.HistogramKernel(
    None, [clhist.operators.count(), np.add], arguments="const int *b", map="EMIT0(b[i], 1); EMIT1(b[i], 1)", dtype="i4"
)
assert_type(ordered(bins, num_bins=2), tuple[HostArray, ...])
assert_type(ordered.operator, Sequence[clhist.Operator])

bound = single.bind(on_device, num_bins=2)
assert_type(bound, clhist.Bound[DeviceArray])
assert_type(bound(), DeviceArray)

# Streams, operators, groups, errors.
stream = clhist.Accumulator(np.add, 2, dtype=np.float32, memory="global", race_factor="sample once")
stream.add(bins, values)
assert_type(stream.size, int)
gcd = clhist.Operator(np.uint32, "a | b", 0, name="or")
assert_type(gcd.dtype, np.dtype[Any])
groups = clhist.group_by(bins)
assert_type(groups, clhist.GroupBy[HostArray])
assert_type(groups.mean(values), HostArray)
assert_type(groups.agg(x=(values, "mean", "std"))["x"]["mean"], HostArray)
assert_type(clhist.group_by(["a", "b", "a"]).size(), HostArray)
assert_type(clhist.group_by([[1]], "zone", "hour"), clhist.FrameGroupBy)
groups_on_device = clhist.group_by(on_device, 2)
assert_type(groups_on_device, clhist.GroupBy[DeviceArray])
assert_type(groups_on_device.median(values_on_device, skipna=False), DeviceArray)
assert_type(groups_on_device.agg(x=(values_on_device, "max"))["x"], dict[str, DeviceArray])
assert_type(groups.keys, HostArray | tuple[HostArray, ...])
assert_type(stream.add(bins, values), clhist.Accumulator)

# What streams and their parts give is what they were made of; arrays are where those of the last chunk were.
assert_type(stream.result(), HostArray)
assert_type(stream.add(on_device, values_on_device).result(), DeviceArray)
there: clhist.Accumulator[DeviceArray] = clhist.Accumulator("sum", 3, dtype=np.float32)
assert_type(there.result(), DeviceArray)
assert_type(clhist.Accumulator(named, 2).add(on_device).result(), dict[str, DeviceArray])
assert_type(clhist.Accumulator(ordered, 2).result(), tuple[HostArray, ...])
assert_type(stream.merge(stream.partial()).partial().result(), HostArray)
assert_type(clhist.MultiAccumulator("count", 3, devices="all").add([0, 1], 1).result(), HostArray)
assert_type(clhist.MultiAccumulator(named, 3).result(), dict[str, HostArray])
spec = clhist.Spec({"n": "count"}, 3, arguments="const int *b", map="EMIT_n(b[i], 1)")
assert_type(spec.partial(bins), clhist.Partial[Named])
assert_type(spec.result(clhist.merge([spec.partial(bins), spec.empty()])), dict[str, HostArray])
assert_type(clhist.Partial.load("part.npz", spec).result(), dict[str, HostArray])
assert_type(clhist.Partial.load("part.npz", gcd).result(), HostArray)


def merged(spec: clhist.Spec, parts: Sequence[clhist.Partial]) -> clhist.Partial:
    return clhist.merge([spec.empty(), *parts])


merged(spec, [spec.partial(bins)])

# Statistics of groups, by names or by functions; names that were computed are given as one sequence.
computed = ["mean", *(["std"] if bins.size else [])]
assert_type(groups.agg(x=(values, np.mean, "std"), y=([1, 2, 3], computed))["y"]["std"], HostArray)
assert_type(groups_on_device.quantile(values_on_device, 0.9), DeviceArray)

# Statistics of bins, and of regions: a number of one, an array of several.
by_bins = stats.binned_statistic(values, np.ones(3), "mean", 10, (0, 1), reproducible=True)
assert_type(by_bins, BinnedStatisticResult[HostArray])
assert_type(by_bins.statistic, HostArray)
assert_type(by_bins.bin_edges, HostArray)
mean_of_bins, edges_of_bins, number_of_bin = by_bins
assert_type(mean_of_bins, HostArray)
assert_type(stats.binned_statistic(values_on_device, on_device, np.std, [0, 1, 2]).statistic, DeviceArray)
assert_type(stats.binned_statistic(values_on_device, on_device, computed).statistic, dict[str, DeviceArray])
assert_type(stats.binned_statistic_2d(values, values, None, "count", [10, [0, 1]]).y_edge, HostArray)
assert_type(stats.binned_statistic_dd([values, [1, 2, 3]], values, "quantile", q=0.5).bin_edges, list[HostArray])
assert_type(stats.binned_statistic_dd([on_device, on_device], on_device, ("min",)).statistic, dict[str, DeviceArray])
assert_type(ndimage.sum(values), np.number[Any])
assert_type(ndimage.mean(values, bins, np.int64(1)), np.floating[Any])
assert_type(ndimage.mean(values, labels=bins, index=[1, 2]), HostArray)
assert_type(ndimage.median(values_on_device, on_device, np.arange(3)), DeviceArray)
assert_type(ndimage.maximum_position(values, bins, 1), tuple[np.integer[Any], ...])
assert_type(ndimage.center_of_mass(values, bins, [1, 2]), list[tuple[np.float64, ...]])
assert_type(ndimage.extrema(values_on_device, on_device, [1, 2])[0], DeviceArray)
assert_type(ndimage.histogram(values_on_device, 0, 1, 3, on_device, [1, 2]), DeviceArray)

# Histograms: arrays may differ in dtype and shape; edges are NumPy's in any case.
assert_type(clhist.histogram(values, bins=10, range=(0, 1)), tuple[HostArray, HostArray])
assert_type(clhist.histogram(np.ones(3), weights=values), tuple[HostArray, HostArray])
assert_type(clhist.histogram([1.0, 2.0], "auto", density=True, where=[True, False]), tuple[HostArray, HostArray])
counts, edges = clhist.histogram(values_on_device, edges_of_users := np.linspace(0, 1, 5), weights=values_on_device)
assert_type(counts, DeviceArray)
assert_type(edges, HostArray)
assert_type(clhist.histogram2d(values, values, (10, edges_of_users), [(0, 1), None])[0], HostArray)
assert_type(clhist.histogram2d(values_on_device, values_on_device, 10, queue=queue)[0], DeviceArray)
assert_type(clhist.histogramdd(np.ones((3, 2)), bins=[2, 3], weights=values), tuple[HostArray, list[HostArray]])
assert_type(clhist.histogramdd([values_on_device, on_device], 3), tuple[DeviceArray, list[HostArray]])
assert_type(clhist.histogram_bin_edges(values_on_device, "fd"), HostArray)
assert_type(clhist.digitize(values, [0.5], right=True), NDArray[np.intp])
assert_type(clhist.digitize(values_on_device, edges), DeviceArray)
try:
    single(bins, num_bins=2)
except clhist.BuildError as error:
    assert_type(error.source, str)
