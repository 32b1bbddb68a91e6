"""A user's program with mistakes: type checkers must report each line that is marked, and no other."""

import numpy as np
import pyopencl.array as cl_array
from numpy.typing import NDArray

import clhist
from clhist import ndimage, stats
from clhist.typing import DeviceArray

queue = clhist.default_queue()
bins = np.array([0, 1, 1], np.int32)
values = np.ones(3, np.float32)
on_device = cl_array.to_device(queue, bins)
dest = np.zeros(2, np.float32)

clhist.reduce_by_index(dest, np.add, bins, values, update="atomic")  # error: no such update
clhist.reduce_by_index(dest, np.add, bins, values, memory="shared")  # error: no such memory
clhist.reduce_by_index(dest, np.add, bins, values, race_factor="guess")  # error: no such mode
clhist.reduce_by_index(dest, np.add, bins, values, num_bins=2)  # error: no such keyword
clhist.reduce_by_index(dest, np.add, bins)  # error: values are missing
clhist.reduce_by_index(dest, np.add, on_device, values)  # error of mypy: NumPy and device arrays mixed
clhist.reduce_by_index(dest, np.add, bins, values, updat="cas")  # error: a typing mistake
clhist.reduce_by_index(dest, np.add, bins, values, return_event=True)  # error: see clhist.typing.CallOptions
clhist.reduce_by_index(2, "summ", bins, values)  # error: no such operator
clhist.reduce_by_index(2, "sum", "abc", values)  # error: text
clhist.reduce_by_index(2, 3, bins, values)  # error: an operator is expected
clhist.bincount(bins, minlenght=3)  # error: a typing mistake
clhist.bincount(on_device, weights=values)  # error: NumPy and device arrays mixed
wrong: NDArray[np.int32] = clhist.reduce_by_index(dest, np.add, bins, values)  # error: floats
also_wrong: NDArray[np.intp] = clhist.bincount(on_device)  # error: a device array

kernel = clhist.HistogramKernel(None, clhist.operators.count(), arguments="const int *b", map="EMIT(b[i], 1)")
kernel(bins)  # error: num_bins is missing
kernel(bins, num_bin=2)  # error: a typing mistake
kernel(bins, num_bins="2")  # error: a number is expected
kernel(bins, num_bins=2, copies="all")  # error: a number is expected
kernel(bins, on_device, num_bins=2)  # error: NumPy and device arrays mixed
kernel.plan(100)  # error: num_bins is missing
kernel.bind(bins, num_bins=2, returns_event=True)  # error: no such keyword
clhist.HistogramKernel(None, clhist.operators.count(), arguments="const int *b")  # error: map is missing
clhist.HistogramKernel(None, "count", argument="const int *b", map="")  # error: a typing mistake
clhist.HistogramKernel("GPU", clhist.operators.count(), arguments="", map="")  # error: a context is expected
clhist.Accumulator(np.add, 2, memory="shared")  # error: no such memory
clhist.Accumulator("summ", 2)  # error: no such operator
clhist.Accumulator("sum", 2, memroy="local")  # error: a typing mistake
clhist.Accumulator("sum", 2).add(on_device, values)  # error: NumPy and device arrays mixed
on_device_alone: DeviceArray = clhist.Accumulator("sum", 2).add(bins, values).result()  # error: a NumPy array
by_name = clhist.Spec({"n": "count"}, 2, arguments="const int *b", map="EMIT_n(b[i], 1)")
by_name.result(clhist.Spec("count", 2).partial(bins, 1))  # error: of another operator
clhist.Accumulator(np.add)  # error: num_bins is missing
clhist.histogram(values, range=3)  # error: two ends are expected
clhist.histogram(values, weight=values)  # error: a typing mistake
clhist.histogram(on_device, weights=values)  # error: NumPy and device arrays mixed
clhist.histogram2d(values)  # error: y is missing
clhist.histogram2d(values, on_device)  # error: NumPy and device arrays mixed
clhist.histogramdd([values, values], axis=0)  # error: no such keyword
still_wrong: NDArray[np.intp] = clhist.histogram(on_device)[0]  # error: a device array
clhist.histogram(values, "autoo")  # error: no such rule
clhist.digitize(values)  # error: bins are missing
on_host: NDArray[np.intp] = clhist.digitize(on_device, [1, 2])  # error: a device array
clhist.group_by(bins).agg(values, "mean")  # error: columns by name
clhist.group_by(bins).agg(x=(values, "modus"))  # error: no such statistic
clhist.group_by(bins).agg(x=(values, "mean", "avg"))  # error: no such statistic
clhist.group_by(bins).agg(x=(on_device, "mean"))  # error: NumPy and device arrays mixed
clhist.group_by(bins).mean(on_device)  # error: NumPy and device arrays mixed
clhist.group_by(bins).agg(x=(values, "mean"), skip_na=True)  # error: a typing mistake
clhist.group_by(bins, sorted=True)  # error: no such keyword
clhist.group_by(bins)["x"]  # error: no columns
clhist.group_by(bins).avg(values)  # error: no such statistic
clhist.group_by(bins).mean(values, skip_na=True)  # error: a typing mistake
mean: NDArray[np.float64] = clhist.group_by(on_device, 2).mean(on_device)  # error: a device array
stats.binned_statistic(values, values, "p90")  # error: no such statistic
stats.binned_statistic(values, values, "mean", reproducable=True)  # error: a typing mistake
stats.binned_statistic(values, on_device)  # error: NumPy and device arrays mixed
stats.binned_statistic_2d(values, values, values, "avg")  # error: no such statistic
stats.binned_statistic_dd([values, values], values, statistics="mean")  # error: a typing mistake
ndimage.mean("abc")  # error: text
ndimage.mean(values, on_device)  # error: NumPy and device arrays mixed
ndimage.mean(values, bins, indx=1)  # error: a typing mistake
ndimage.extrema(values, lables=bins)  # error: a typing mistake
ndimage.histogram(values, 0, 1)  # error: bins are missing
ndimage.histogram(values, 0, 1, bin=3)  # error: a typing mistake
ndimage.mean(values, bins, [1, 2]).get()  # error: a NumPy array
clhist.Operator(np.float32, "a + b", 0, neutrality=1)  # error: no such keyword
clhist.operators.add()  # error: a dtype is missing
print(clhist.BuildError("refused").sauce)  # error: no such attribute
