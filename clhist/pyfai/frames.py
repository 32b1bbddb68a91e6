"""A frame of a detector, what corrects it, and the kernel that adds its pixels to their bins."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import pyopencl as cl
from pyFAI.containers import ErrorModel

from clhist import operators
from clhist._core.spi import (
    any_missing,
    default_queue,
    in_place,
    is_device_array,
    kept_by_context,
    on_host,
    plain,
    split,
    to_device,
)
from clhist.kernel import HistogramKernel

_FACTORS = ("flat", "polarization", "solidangle", "absorption")
_PIXELS = "biuf"


class PixelAxis(NamedTuple):
    """Bins of equal width."""

    number: int
    low: float
    width: float

    @property
    def middles(self) -> np.ndarray:
        """The middles of the bins."""
        return self.low + self.width * (np.arange(self.number) + 0.5)


def axis(name: str, positions: Any, number: int, ends: Any, least: float | None = None, mask: Any = None) -> PixelAxis:
    """Return the bins of an axis, from `least` on; the largest position is in the last one, as in pyFAI."""
    if number < 1:
        raise ValueError(f"npt: expected at least 1, got {number!r}")
    low, high = extent(positions, mask) if ends is None else (float(min(ends)), float(max(ends)))
    if least is not None:
        low = max(low, least)
    if not np.isfinite([low, high]).all():
        raise ValueError(f"{name}: expected finite positions, got a range from {low} to {high}")
    # The next number above in float32, the dtype of pyFAI's results.
    above = high + abs(high) * 2.0**-23 if high else 2.0**-126
    return PixelAxis(int(number), low, (above - low) / number)


def extent(positions: Any, mask: Any = None) -> tuple[float, float]:
    """Return the least and the largest position, of pixels that are not masked if there are such."""
    values, missing = split("positions", on_host(positions))
    values = values if missing is None else values[~missing]
    if mask is not None and mask is not False:
        there, absent = split("mask", on_host(mask))
        present = np.asarray(there).reshape(-1) == 0
        present = present if absent is None else present & ~absent.reshape(-1)
        # A mask of another size is ignored here; the frame refuses it.
        values = values.reshape(-1)[present] if present.size == values.size and present.any() else values
    return (float(values.min()), float(values.max())) if values.size else (0.0, 1.0)


class PixelFrame(NamedTuple):
    """A frame, what corrects it, and where its pixels are.

    Attributes
    ----------
    arrays : dict of str to array of shape (pixels,)
        By the names of pyFAI's arguments.
    positions : tuple of str
        Which of them say where pixels are.
    scalars : tuple of float
        The dummy, how near to it is the same, and what everything is divided by.
    has_dummy, weighted : bool
        Whether there is one, and whether pixels weigh as much as their normalisation.
    model : ErrorModel
        Where variances come from.
    """

    arrays: dict[str, Any]
    positions: tuple[str, ...]
    scalars: tuple[float, float, float]
    has_dummy: bool
    model: ErrorModel
    weighted: bool

    @classmethod
    def of(
        cls, positions: tuple[str, ...], inputs: Mapping[str, Any], scalars: tuple[Any, ...], model: Any, weighted: bool
    ) -> PixelFrame:
        """Return a frame of what pyFAI gives; raises TypeError and ValueError that name what is wrong."""
        inputs, missing = _without_missing(inputs)
        arrays = {
            name: flattened(name, array) for name, array in inputs.items() if array is not None and array is not False
        }
        if missing is not None:
            arrays["mask"] = _joined_masks(arrays.get("mask"), missing.reshape(-1))
        for name, array in arrays.items():
            if array.size != arrays["raw"].size:
                raise ValueError(f"{name}: expected {arrays['raw'].size} elements as of raw, got {array.size}")
        model = ErrorModel.parse(model)
        if model == ErrorModel.VARIANCE and "variance" not in arrays:
            raise ValueError("variance: expected an array, since error_model is VARIANCE, got None")
        dummy, delta, factor = scalars
        numbers = 0.0 if dummy is None else float(dummy), float(delta or 0), float(factor)
        return cls(arrays, positions, numbers, dummy is not None, model, bool(weighted))

    def sums(self, axes: tuple[PixelAxis, ...]) -> dict[str, np.ndarray]:
        """Return the sums of each bin."""
        sums = self._swept(axes, "sums", {})
        # The azimuthal model needs the means first: a second sweep adds squared deviations from them.
        if self.model == ErrorModel.AZIMUTHAL:
            with np.errstate(all="ignore"):
                means = np.where(sums["norm2"] > 0, sums["signal"] / sums["norm"], 0)
            sums["variance"] = self._swept(axes, "deviations", {"means": means})["variance"]
        return sums

    def _swept(self, axes: tuple[PixelAxis, ...], what: str, more: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        queue = default_queue(*(array for array in self.arrays.values() if is_device_array(array)))
        real = np.dtype(np.float64 if queue.device.double_fp_config else np.float32)
        names = tuple((name, array.dtype) for name, array in self.arrays.items())
        kernel = _kernel(
            queue.context, names, self.positions, what, real, self.has_dummy, self.model.value, self.weighted
        )
        # Corrections are computed in float32 as in pyFAI, bins and sums in the best precision of the device.
        scalars: list[Any] = [np.float32(scalar) for scalar in self.scalars]
        for along in axes:
            scalars += [real.type(along.low), real.type(along.width), np.int32(along.number)]
        arrays = [*self.arrays.values(), *(values.astype(real) for values in more.values())]
        if any(map(is_device_array, arrays)):
            arrays = [in_place(array, queue) for array in arrays]
        number = int(np.prod([along.number for along in axes]))
        sums = kernel(*arrays, *scalars, num_bins=number, size=self.arrays["raw"].size, queue=queue)
        sums = on_host(sums)
        # Fields one after the other: taken one by one they take seven times as long.
        fields = np.array(sums.view(real).reshape(number, -1).T, np.float64, order="C")
        return dict(zip(sums.dtype.names, fields, strict=True))


def _without_missing(inputs: Mapping[str, Any]) -> tuple[dict[str, Any], np.ndarray | None]:
    """Return the arrays of a frame, and which pixels are missing in one of them; their own mask counts as set there."""
    arrays, masks = dict(inputs), []
    for name, value in inputs.items():
        if value is None or value is False or is_device_array(value) or type(value) is np.ndarray:
            continue
        array, missing = split(name, value)
        arrays[name] = array
        if missing is not None:
            masks.append(missing.reshape(-1))
    # Masks of several sizes belong to arrays that are refused by their sizes.
    if not masks or len({mask.size for mask in masks}) > 1:
        return arrays, None
    return arrays, any_missing(*masks)


def _joined_masks(mask: Any, missing: np.ndarray) -> Any:
    if mask is None:
        return missing.astype(np.int8)
    if is_device_array(mask):
        return to_device(mask.queue, ((on_host(mask).reshape(-1) != 0) | missing).astype(np.int8))
    return ((mask != 0) | missing).astype(np.int8) if mask.size == missing.size else mask


def flattened(name: str, value: Any) -> Any:
    """Return an array as kernels take it: of the host in one dimension."""
    if is_device_array(value):
        return value
    array = np.asarray(value)
    if array.dtype.kind not in _PIXELS or array.dtype.itemsize > 8:
        raise TypeError(f"{name}: expected an array of real numbers, got {array.dtype}")
    return plain(array).reshape(-1)


_FIELDS = ("signal", "variance", "norm", "norm2", "count")


@kept_by_context
def _kernel(
    context: cl.Context,
    names: tuple[tuple[str, np.dtype], ...],
    positions: tuple[str, ...],
    what: str,
    real: np.dtype,
    has_dummy: bool,
    model: int,
    weighted: bool,
) -> HistogramKernel:
    """Return the kernel that corrects the pixels of such arrays and adds them to their bins."""
    number, dtypes = operators.c_types.c_name(real), dict(names)
    fields = _FIELDS if what == "sums" else ("variance",)
    operator = operators.product({name: operators.add(real) for name in fields})
    declared = [f"const {operators.c_types.c_name(dtype)} *{name}" for name, dtype in names]
    declared += [f"const {number} *means"] * (what == "deviations")
    declared += ["float dummy", "float delta", "float factor"]
    for name in positions:
        declared += [f"{number} {name}_low", f"{number} {name}_width", f"int {name}_bins"]
    return HistogramKernel(
        context,
        operator,
        arguments=", ".join(declared),
        map=_map(dtypes, positions, number, what, has_dummy, ErrorModel(model), weighted),
        emits=1,
    )


def _map(
    dtypes: dict[str, np.dtype],
    positions: tuple[str, ...],
    number: str,
    what: str,
    has_dummy: bool,
    model: ErrorModel,
    weighted: bool,
) -> str:
    factors = [name for name in _FACTORS if name in dtypes]
    lines = ["int bin = 0; bool is_in = true;"]
    for name in positions:
        lines += [f"const {number} at_{name} = (({number}){name}[i] - {name}_low) / {name}_width;"]
        lines += [f"is_in &= at_{name} >= 0 && at_{name} < {name}_bins; bin = bin * {name}_bins + (int)at_{name};"]
    if "mask" in dtypes:
        lines += ["is_in &= mask[i] == 0;"]
    lines += ["const float value = raw[i];", "float signal = value, norm = factor, variance_of = 0;"]
    if has_dummy:
        # NaN is near no dummy; the checks for finite values below leave such pixels out.
        near = "!({0} - dummy <= delta && dummy - {0} <= delta)"
        checked = ["value", *(f"(float){name}[i]" for name in ("dark", "flat") if name in dtypes)]
        lines += [f"is_in &= {near.format(expression)};" for expression in checked]
    lines += ["signal -= (float)dark[i];"] if "dark" in dtypes else []
    lines += [f"norm *= (float){name}[i];" for name in factors]
    if "variance" in dtypes:
        lines += ["variance_of = variance[i];"]
    # The variance of a Poisson count is the count itself, here at least 1.
    elif model.poissonian:
        lines += ["variance_of = value > 1.0f ? value : 1.0f;"]
    if "dark_variance" in dtypes:
        lines += ["variance_of += (float)dark_variance[i];"]
    # Compilers make vectors of comparisons, but not of isfinite, fabs and fmax: PoCL's took twice as long.
    finite = ["signal", "norm", *(["variance_of"] if "variance" in dtypes or "dark_variance" in dtypes else [])]
    lines += [f"is_in &= {name} < INFINITY && {name} > -INFINITY;" for name in finite]
    lines += ["is_in &= norm != 0;"]
    # Without weights all pixels count alike, each normalised before it is added.
    if not weighted:
        lines += ["signal /= norm; variance_of /= norm * norm; norm = 1;"]
    if what == "deviations":
        # The bin of a pixel outside may be out of range: read another mean, which is not added.
        lines += [f"const {number} beyond = signal - means[is_in ? bin : 0] * norm;"]
        emitted = "beyond * beyond"
    else:
        variance = "0" if model == ErrorModel.AZIMUTHAL else "variance_of"
        emitted = f"signal, {variance}, norm, ({number})norm * norm, 1"
    return "\n".join([*lines, f"if (is_in) EMIT(bin, ((value_t){{{emitted}}}));"])
