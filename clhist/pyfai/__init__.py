"""Azimuthal integration for pyFAI: its histogram engines on any OpenCL device, in one sweep over a frame.

``ai.integrate1d(frame, 1000, method=clhist.pyfai.method(1))`` and ``ai.integrate2d(frame, 500, 360,
method=clhist.pyfai.method(2))`` correct, mask and bin each pixel in one kernel; nothing is prepared for a geometry, so
that one that changes costs nothing.

pyFAI must be installed: ``pip install "clhist[pyfai]"``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, partial, wraps
from typing import Any

import numpy as np
from pyFAI.containers import ErrorModel, Integrate1dtpl, Integrate2dtpl
from pyFAI.integrator import load_engines  # noqa: F401  # registers pyFAI's own methods first, which stay the default
from pyFAI.method_registry import IntegrationMethod

from clhist.operators.c_types import check_booleans
from clhist.pyfai.frames import PixelFrame, axis
from clhist.pyfai.kept_arrays import KeptArrays

__all__ = ["KeptArrays", "histogram1d_engine", "histogram2d_engine", "method"]

_TARGET = "clhist"


def method(dim: int = 1, *, keep: bool = False) -> IntegrationMethod:
    """Return the method to give to pyFAI's integrators: no splitting of pixels, by histogram.

    Parameters
    ----------
    dim : {1, 2}
        Of the result.
    keep : bool
        Whether copies of positions, corrections, dark currents and masks stay on the device: arrays that are the same
        objects as in a call before are not sent again. They must not be changed in place then.

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
    check_booleans(keep=keep)
    return _method(dim, bool(keep))


@lru_cache(maxsize=4)
def _method(dim: int, keep: bool) -> IntegrationMethod:
    engine: Callable[..., Any] = histogram1d_engine if dim == 1 else histogram2d_engine
    if keep:
        engine = wraps(engine)(partial(engine, kept=KeptArrays()))
        engine.__module__ = __name__
    target = f"{_TARGET}, kept" if keep else _TARGET
    # "cython" stands for engines that get masks and ranges as they are.
    return IntegrationMethod(
        dim, "no", "histogram", "cython", target=target, target_name=target, class_funct_ng=(None, engine)
    )


def histogram1d_engine(  # noqa: PLR0913  # pyFAI's arguments
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
    *,
    kept: KeptArrays | None = None,
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
    kept : KeptArrays, optional
        Copies of arrays that stay on the device; see `method`.

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

    Examples
    --------
    >>> from clhist.pyfai import histogram1d_engine
    >>> radial, frame = np.array([[0, 1], [2, 3]]), np.array([[1, 2], [4, 3]], np.float32)
    >>> histogram1d_engine(radial, 2, frame).intensity
    array([1.5, 3.5])
    """
    arrays = {
        "radial": radial, "raw": raw, "dark": dark, "flat": flat, "solidangle": solidangle,
        "polarization": polarization, "absorption": absorption, "mask": mask, "variance": variance,
        "dark_variance": dark_variance,
    }  # fmt: skip
    if kept is not None:
        radial_range = kept.range_of("radial", radial, radial_range)
        arrays = kept.all_of(arrays)
    scalars = dummy, delta_dummy, normalization_factor
    frame = PixelFrame.of(("radial",), arrays, scalars, error_model, weighted_average)
    axes = (axis("radial", radial, npt, radial_range),)
    sums = frame.sums(axes)
    # In one dimension, a dummy is also the value of empty bins.
    nothing = empty if dummy is None else dummy
    intensity, std, sem = _averages(sums, sums["norm2"] > 0, nothing, frame.model)
    return Integrate1dtpl(
        axes[0].middles, intensity, sem, sums["signal"], sums["variance"], sums["norm"], sums["count"], std, sem,
        sums["norm2"],
    )  # fmt: skip


def histogram2d_engine(  # noqa: PLR0913  # pyFAI's arguments
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
    chiDiscAtPi: bool = True,
    pos1_period: float = 2 * np.pi,
    *,
    kept: KeptArrays | None = None,
) -> Integrate2dtpl:
    """Integrate a frame in two dimensions: ``pyFAI.ext.histogram.histogram2d_engine``, whose arguments it has.

    Parameters
    ----------
    radial, azimuthal : array of the shape of `raw`
        Where each pixel is.
    bins : (int, int)
        How many bins there are along each.
    radial_range, azimuth_range : (float, float), optional
        Where the first bin begins and the last ends; defaults to all pixels that are not masked.
    allow_radial_neg : bool
        Whether bins may begin below 0.
    chiDiscAtPi, pos1_period
        Without meaning: `azimuthal` says where pixels are.
    raw, dark, flat, solidangle, polarization, absorption, mask, dummy, delta_dummy, normalization_factor, empty, \
variance, dark_variance, error_model, weighted_average, kept
        As of `histogram1d_engine`.

    Returns
    -------
    pyFAI.containers.Integrate2dtpl
        Its arrays have the shape of `bins`, azimuths first.

    Raises
    ------
    TypeError, ValueError
        If an argument is wrong; it is named.

    Examples
    --------
    >>> from clhist.pyfai import histogram2d_engine
    >>> radial, frame = np.array([[0, 1], [2, 3]]), np.array([[1, 2], [4, 3]], np.float32)
    >>> histogram2d_engine(radial, radial % 2, (2, 2), frame).count
    array([[1., 1.],
           [1., 1.]])
    """
    arrays = {
        "radial": radial, "azimuthal": azimuthal, "raw": raw, "dark": dark, "flat": flat, "solidangle": solidangle,
        "polarization": polarization, "absorption": absorption, "mask": mask, "variance": variance,
        "dark_variance": dark_variance,
    }  # fmt: skip
    least = None if allow_radial_neg or radial_range is not None else 0.0
    if kept is not None:
        radial_range = kept.range_of("radial", radial, radial_range, mask)
        azimuth_range = kept.range_of("azimuthal", azimuthal, azimuth_range, mask)
        arrays = kept.all_of(arrays)
    scalars = dummy, delta_dummy, normalization_factor
    frame = PixelFrame.of(("radial", "azimuthal"), arrays, scalars, error_model, weighted_average)
    number = [max(1, int(count)) for count in np.broadcast_to(bins, 2)]
    along = axis("radial", radial, number[0], radial_range, least, mask)
    around = axis("azimuthal", azimuthal, number[1], azimuth_range, mask=mask)
    sums = frame.sums((along, around))
    # Azimuths are along the first axis of pyFAI's images.
    images = {name: values.reshape(number).T for name, values in sums.items()}
    intensity, std, sem = _averages(images, images["count"] > 0, empty, frame.model)
    return Integrate2dtpl(
        along.middles, around.middles, intensity, sem, images["signal"], images["variance"], images["norm"],
        images["count"], std, sem, images["norm2"],
    )  # fmt: skip


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
