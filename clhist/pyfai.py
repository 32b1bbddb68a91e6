"""Azimuthal integration for pyFAI: its histogram engines on any OpenCL device, in one sweep over a frame.

``ai.integrate1d(frame, 1000, method=clhist.pyfai.method(1))`` and ``ai.integrate2d(frame, 500, 360,
method=clhist.pyfai.method(2))`` correct, mask and bin each pixel in one kernel; nothing is prepared for a geometry, so
that one that changes costs nothing.

pyFAI must be installed: ``pip install "clhist[pyfai]"``.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import pyopencl as cl
from pyFAI.containers import ErrorModel, Integrate1dtpl, Integrate2dtpl
from pyFAI.integrator import load_engines  # noqa: F401  # registers pyFAI's own methods first, which stay the default
from pyFAI.method_registry import IntegrationMethod

from clhist import operators
from clhist.kernel import HistogramKernel
from clhist.opencl.arrays import is_device_array
from clhist.opencl.device import default_queue

__all__ = ["histogram1d_engine", "histogram2d_engine", "method"]

_TARGET = "clhist"
_FACTORS = ("flat", "polarization", "solidangle", "absorption")
_PIXELS = "biuf"


def method(dim: int = 1) -> IntegrationMethod:
    """Return the method to give to pyFAI's integrators: no splitting of pixels, by histogram.

    Parameters
    ----------
    dim : {1, 2}
        Of the result.

    Raises
    ------
    ValueError
        If `dim` is something else.

    Examples
    --------
    >>> import pyFAI.detectors, pyFAI.integrator.azimuthal
    >>> from clhist.pyfai import method
    >>> detector = pyFAI.detectors.Detector(1e-4, 1e-4, max_shape=(100, 120))
    >>> ai = pyFAI.integrator.azimuthal.AzimuthalIntegrator(0.1, 0.005, 0.006, detector=detector, wavelength=1e-10)
    >>> found = ai.integrate1d(np.ones((100, 120)), 50, method=method(1), correctSolidAngle=False)
    >>> found.intensity.min(), found.intensity.max(), found.count.sum()
    (np.float64(1.0), np.float64(1.0), np.float64(12000.0))
    """
    if dim not in (1, 2):
        raise ValueError(f"dim: expected 1 or 2, got {dim!r}")
    return _method(dim)


@lru_cache(maxsize=2)
def _method(dim: int) -> IntegrationMethod:
    engine = histogram1d_engine if dim == 1 else histogram2d_engine
    # "cython" stands for engines that get masks and ranges as they are.
    return IntegrationMethod(
        dim, "no", "histogram", "cython", target=_TARGET, target_name=_TARGET, class_funct_ng=(None, engine)
    )


def histogram1d_engine(
    radial: Any,
    npt: int,
    raw: Any,
    dark: Any = None,
    flat: Any = None,
    solidangle: Any = None,
    polarization: Any = None,
    absorption: Any = None,
    mask: Any = None,
    dummy: float | None = None,
    delta_dummy: float | None = None,
    normalization_factor: float = 1.0,
    empty: float = 0.0,
    split_result: bool = False,
    variance: Any = None,
    dark_variance: Any = None,
    error_model: Any = ErrorModel.NO,
    weighted_average: bool = True,
    radial_range: tuple[float, float] | None = None,
) -> Integrate1dtpl:
    """Integrate a frame: ``pyFAI.ext.histogram.histogram1d_engine``, whose arguments and results it has.

    Parameters
    ----------
    radial : array of the shape of `raw`
        Where each pixel is.
    npt : int
        How many bins there are.
    raw : array of real numbers
        The frame, of NumPy or PyOpenCL.
    dark, flat, solidangle, polarization, absorption, variance, dark_variance : array of the shape of `raw`, optional
        What is subtracted, what the signal is divided by, and the variances of the frame and of `dark`.
    mask : array of the shape of `raw`, optional
        Pixels that are not 0 in it are left out.
    dummy, delta_dummy : float, optional
        Pixels of this value, or so near to it, are left out.
    normalization_factor, empty : float
        What everything is divided by, and what bins without pixels have.
    split_result : bool
        Without meaning.
    error_model : ErrorModel, str or int
        Where variances come from: "variance", "poisson" or "azimuthal".
    weighted_average : bool
        Whether pixels weigh as much as their normalisation; else all alike.
    radial_range : (float, float), optional
        Where the first bin begins and the last ends. Defaults to all of `radial`.

    Returns
    -------
    pyFAI.containers.Integrate1dtpl

    Raises
    ------
    TypeError, ValueError
        If an argument is wrong; it is named.

    Notes
    -----
    Signals and normalisations are computed in float32, as in pyFAI, and summed in float64 where the device has it. The
    azimuthal error model takes a second sweep, around the means.
    """
    frame = _Frame.of(
        {"radial": radial}, raw, dark, flat, solidangle, polarization, absorption, mask, dummy, delta_dummy,
        normalization_factor, variance, dark_variance, error_model, weighted_average,
    )  # fmt: skip
    axes = (_axis("radial", radial, npt, radial_range),)
    sums = frame.sums(axes)
    nothing = empty if dummy is None else dummy
    intensity, std, sem = _averages(sums, sums["norm2"] > 0, nothing, frame.model)
    return Integrate1dtpl(
        axes[0].middles, intensity, sem, sums["signal"], sums["variance"], sums["norm"], sums["count"], std, sem,
        sums["norm2"],
    )  # fmt: skip


def histogram2d_engine(
    radial: Any,
    azimuthal: Any,
    bins: Sequence[int],
    raw: Any,
    dark: Any = None,
    flat: Any = None,
    solidangle: Any = None,
    polarization: Any = None,
    absorption: Any = None,
    mask: Any = None,
    dummy: float | None = None,
    delta_dummy: float | None = None,
    normalization_factor: float = 1.0,
    empty: float = 0.0,
    variance: Any = None,
    dark_variance: Any = None,
    error_model: Any = ErrorModel.NO,
    weighted_average: bool = True,
    radial_range: tuple[float, float] | None = None,
    azimuth_range: tuple[float, float] | None = None,
    allow_radial_neg: bool = False,
    chiDiscAtPi: bool = True,  # noqa: N803  # pyFAI's
    pos1_period: float = 2 * np.pi,
) -> Integrate2dtpl:
    """Integrate a frame in two dimensions: ``pyFAI.ext.histogram.histogram2d_engine``, whose arguments it has.

    Parameters
    ----------
    radial, azimuthal : array of the shape of `raw`
        Where each pixel is.
    bins : (int, int)
        How many bins there are along each.
    radial_range, azimuth_range : (float, float), optional
        Where the first bin begins and the last ends; defaults to all pixels.
    allow_radial_neg : bool
        Whether bins may begin below 0.
    chiDiscAtPi, pos1_period
        Without meaning: `azimuthal` says where pixels are.
    raw, dark, flat, solidangle, polarization, absorption, mask, dummy, delta_dummy, normalization_factor, empty, \
variance, dark_variance, error_model, weighted_average
        As of `histogram1d_engine`.

    Returns
    -------
    pyFAI.containers.Integrate2dtpl
        Its arrays have the shape of `bins`, azimuths first.

    Raises
    ------
    TypeError, ValueError
        If an argument is wrong; it is named.
    """
    frame = _Frame.of(
        {"radial": radial, "azimuthal": azimuthal}, raw, dark, flat, solidangle, polarization, absorption, mask, dummy,
        delta_dummy, normalization_factor, variance, dark_variance, error_model, weighted_average,
    )  # fmt: skip
    number = [max(1, int(each)) for each in (bins if np.ndim(bins) else (bins, bins))]
    along = _axis("radial", radial, number[0], radial_range, least=None if allow_radial_neg else 0.0)
    around = _axis("azimuthal", azimuthal, number[1], azimuth_range)
    sums = frame.sums((along, around))
    found = {name: each.reshape(number).T for name, each in sums.items()}
    intensity, std, sem = _averages(found, found["count"] > 0, empty, frame.model)
    return Integrate2dtpl(
        along.middles, around.middles, intensity, sem, found["signal"], found["variance"], found["norm"],
        found["count"], std, sem, found["norm2"],
    )  # fmt: skip


class _Axis(NamedTuple):
    """Bins of equal width."""

    number: int
    low: float
    width: float

    @property
    def middles(self) -> np.ndarray:
        return self.low + self.width * (np.arange(self.number) + 0.5)


def _axis(name: str, positions: Any, number: int, ends: Any, least: float | None = None) -> _Axis:
    """Return the bins of an axis; the largest position is in the last one, as in pyFAI."""
    if number < 1:
        raise ValueError(f"npt: expected at least 1, got {number!r}")
    low, high = _extent(positions) if ends is None else (float(min(ends)), float(max(ends)))
    if ends is None and least is not None:
        low = max(low, least)
    if not np.isfinite([low, high]).all():
        raise ValueError(f"{name}: expected finite positions, got a range from {low} to {high}")
    above = high + abs(high) * 2.0**-23 if high else 2.0**-126  # in float32, which pyFAI has results in
    return _Axis(int(number), low, (above - low) / number)


def _extent(positions: Any) -> tuple[float, float]:
    found = positions.get() if is_device_array(positions) else np.asarray(positions)
    return (float(found.min()), float(found.max())) if found.size else (0.0, 1.0)


def _averages(
    sums: dict[str, np.ndarray], is_some: np.ndarray, empty: float, model: ErrorModel
) -> tuple[np.ndarray, np.ndarray | None, np.ndarray | None]:
    """Return means, and standard deviations and errors of the mean, if there are variances."""
    with np.errstate(all="ignore"):
        intensity = np.where(is_some, sums["signal"] / sums["norm"], empty)
        if not model.do_variance:
            return intensity, None, None
        std = np.where(is_some, np.sqrt(sums["variance"] / sums["norm2"]), empty)
        return intensity, std, np.where(is_some, np.sqrt(sums["variance"]) / sums["norm"], empty)


class _Frame(NamedTuple):
    """A frame, what corrects it, and where its pixels are."""

    arrays: dict[str, Any]
    positions: tuple[str, ...]
    scalars: tuple[float, float, float]
    has_dummy: bool
    model: ErrorModel
    weighted: bool

    @classmethod
    def of(
        cls, positions: dict[str, Any], raw: Any, dark: Any, flat: Any, solidangle: Any, polarization: Any,
        absorption: Any, mask: Any, dummy: Any, delta: Any, factor: float, variance: Any, dark_variance: Any,
        model: Any, weighted: bool,
    ) -> _Frame:  # fmt: skip
        given = {
            **positions, "raw": raw, "dark": dark, "flat": flat, "solidangle": solidangle,
            "polarization": polarization, "absorption": absorption, "mask": None if mask is False else mask,
            "variance": variance, "dark_variance": dark_variance,
        }  # fmt: skip
        arrays = {name: _flat(name, each) for name, each in given.items() if each is not None}
        for name, each in arrays.items():
            if each.size != arrays["raw"].size:
                raise ValueError(f"{name}: expected {arrays['raw'].size} elements as of raw, got {each.size}")
        model = ErrorModel.parse(model)
        if model == ErrorModel.VARIANCE and variance is None:
            raise ValueError("variance: expected an array, since error_model is VARIANCE, got None")
        scalars = 0.0 if dummy is None else float(dummy), float(delta or 0), float(factor)
        return cls(arrays, tuple(positions), scalars, dummy is not None, model, bool(weighted))

    def sums(self, axes: tuple[_Axis, ...]) -> dict[str, np.ndarray]:
        """Return the sums of each bin."""
        found = self._swept(axes, "sums", {})
        if self.model == ErrorModel.AZIMUTHAL:
            with np.errstate(all="ignore"):
                means = np.where(found["norm2"] > 0, found["signal"] / found["norm"], 0)
            found["variance"] = self._swept(axes, "deviations", {"means": means})["variance"]
        return found

    def _swept(self, axes: tuple[_Axis, ...], what: str, more: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        queue = default_queue(*(each for each in self.arrays.values() if is_device_array(each)))
        real = np.dtype(np.float64 if queue.device.double_fp_config else np.float32)
        names = tuple((name, each.dtype) for name, each in self.arrays.items())
        kernel = _kernel(
            queue.context, names, self.positions, what, real, self.has_dummy, self.model.value, self.weighted
        )
        scalars: list[Any] = [np.float32(each) for each in self.scalars]
        for axis in axes:
            scalars += [real.type(axis.low), real.type(axis.width), np.int32(axis.number)]
        arrays = [*self.arrays.values(), *(each.astype(real) for each in more.values())]
        if any(map(is_device_array, arrays)):
            import pyopencl.array as cl_array

            arrays = [each if is_device_array(each) else cl_array.to_device(queue, each) for each in arrays]
        number = int(np.prod([axis.number for axis in axes]))
        found = kernel(*arrays, *scalars, num_bins=number, size=self.arrays["raw"].size, queue=queue)
        found = found.get() if is_device_array(found) else found
        return {name: found[name].astype(np.float64) for name in found.dtype.names}


def _flat(name: str, given: Any) -> Any:
    """Return an array as kernels take it, in one dimension."""
    if is_device_array(given):
        return given.reshape(-1)
    array = np.ascontiguousarray(given)
    if array.dtype.kind not in _PIXELS or array.dtype.itemsize > 8:
        raise TypeError(f"{name}: expected an array of real numbers, got {array.dtype}")
    if array.dtype.kind == "b":
        array = array.view(np.uint8)
    if array.dtype == np.float16:
        array = array.astype(np.float32)
    return array.astype(array.dtype.newbyteorder("="), copy=False).reshape(-1)


_FIELDS = ("signal", "variance", "norm", "norm2", "count")


@lru_cache(maxsize=32)
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
    number, given = operators.c_types.c_name(real), dict(names)
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
        map=_map(given, positions, number, what, has_dummy, ErrorModel(model), weighted),
        emits=1,
    )


def _map(
    given: dict[str, np.dtype],
    positions: tuple[str, ...],
    number: str,
    what: str,
    has_dummy: bool,
    model: ErrorModel,
    weighted: bool,
) -> str:
    factors = [name for name in _FACTORS if name in given]
    lines = ["int bin = 0; bool is_in = true;"]
    for name in positions:
        lines += [f"const {number} at_{name} = (({number}){name}[i] - {name}_low) / {name}_width;"]
        lines += [f"is_in &= at_{name} >= 0 && at_{name} < {name}_bins; bin = bin * {name}_bins + (int)at_{name};"]
    if "mask" in given:
        lines += ["is_in &= mask[i] == 0;"]
    lines += ["const float value = raw[i];", "float signal = value, norm = factor, variance_of = 0;"]
    if has_dummy:
        near = "!({0} - dummy <= delta && dummy - {0} <= delta)"
        checked = ["value", *(f"(float){name}[i]" for name in ("dark", "flat") if name in given)]
        lines += [f"is_in &= {near.format(each)};" for each in checked]
    lines += ["signal -= (float)dark[i];"] if "dark" in given else []
    lines += [f"norm *= (float){name}[i];" for name in factors]
    if "variance" in given:
        lines += ["variance_of = variance[i];"]
    elif model.poissonian:
        lines += ["variance_of = value > 1.0f ? value : 1.0f;"]
    if "dark" in given and model.poissonian:
        lines += ["variance_of += (float)dark[i];"]
    elif "dark_variance" in given:
        lines += ["variance_of += (float)dark_variance[i];"]
    # Compilers make vectors of comparisons, but not of isfinite, fabs and fmax: PoCL's took twice as long.
    finite = ["signal", "norm", *(["variance_of"] if "variance" in given or "dark_variance" in given else [])]
    lines += [f"is_in &= {name} < INFINITY && {name} > -INFINITY;" for name in finite]
    lines += ["is_in &= norm != 0;"]
    if not weighted:
        lines += ["signal /= norm; variance_of /= norm * norm; norm = 1;"]
    if what == "deviations":
        lines += [f"const {number} beyond = signal - means[is_in ? bin : 0] * norm;"]
        emitted = "beyond * beyond"
    else:
        variance = "0" if model == ErrorModel.AZIMUTHAL else "variance_of"
        emitted = f"signal, {variance}, norm, ({number})norm * norm, 1"
    return "\n".join([*lines, f"if (is_in) EMIT(bin, ((value_t){{{emitted}}}));"])
