"""scikit-learn's histogram gradient boosting, with trees that grow on a device."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from contextvars import ContextVar
from functools import lru_cache, partial, wraps
from inspect import Parameter, signature
from time import perf_counter
from types import FunctionType
from typing import Any

import numpy as np
import pyopencl as cl
import sklearn.ensemble
from sklearn.base import _fit_context
from sklearn.ensemble._hist_gradient_boosting import binning, gradient_boosting
from sklearn.ensemble._hist_gradient_boosting.grower import TreeGrower
from sklearn.utils import check_array

from clhist._core.spi import default_queue, devices, is_forked, mask_of, refuse_missing, warn_caller
from clhist.boosting.binned_rows import bits_of
from clhist.boosting.feature_bins import bin_features
from clhist.boosting.grower import DeviceTreeGrower, in_units
from clhist.boosting.losses import DeviceLoss
from clhist.boosting.on_device import DeviceRows
from clhist.errors import NoDeviceError

FEWEST_BINS = 1 << 18
"""Rows times features below which no device is tried, unless one is named; above it, the first trees decide."""


_UNBOUNDED = ("squared_error", "poisson", "gamma")  # losses whose gradients grow with the targets
# Bits that the median gradient should keep in integers that are scaled by the largest one.
_LEAST_BITS = 8


class _HostTreeGrower(TreeGrower):
    """scikit-learn's own, with the gradients that a device takes, so that it grows the same tree."""

    def __init__(self, X_binned: np.ndarray, gradients: np.ndarray, hessians: np.ndarray, **options: Any) -> None:
        self._start, self.seconds = perf_counter(), 0.0
        gradients = in_units(gradients)
        hessians = hessians if len(hessians) == 1 else in_units(hessians, "hessians")
        super().__init__(X_binned, gradients, hessians, **options)

    def grow(self) -> None:
        super().grow()
        self.seconds = perf_counter() - self._start


class _Growing:
    """Makes the growers of one call of ``fit``.

    Where a device was not named, the second tree is scikit-learn's and the third the device's, and what took less time
    grows the others; scikit-learn's code grows all where there is no device, or none with room. All would be the same.
    """

    def __init__(self, estimator: Any) -> None:
        self._estimator, self._device = estimator, estimator.device
        self._rows: DeviceRows | None = None
        self._binned: Any = None
        self._growers: list[Any] = []  # the first ones
        self._has_device = True
        self._queue: cl.CommandQueue | None = None
        self._watched: Any = None  # the loss of scikit-learn
        self._loss: DeviceLoss | None = None
        # Whether the device has computed the gradients of the next tree.
        self._is_computed = False

    def watch(self, loss: Any) -> Any:
        """Let gradients of a loss be computed by the device, until this is closed, where it grows trees."""
        self._watched = loss
        of: Any = type(loss)
        loss.__class__ = _watched(of)
        return loss

    def compute(self, by_host: Callable[..., Any], arguments: dict[str, Any]) -> None:
        """Compute the gradients of the next tree where it will grow."""
        predictions, arrays = arguments["raw_prediction"].reshape(-1), (arguments["y_true"], arguments["sample_weight"])
        rows = self._rows
        self._is_computed = False
        if (
            rows is not None
            and self._grows_on_device(self._binned.size)
            and DeviceLoss.is_known(type(self._watched).__base__, rows, predictions, *arrays)
        ):
            # Without enough memory on the device, the host computes the gradients.
            with suppress(MemoryError):
                kind = type(self._watched).__base__
                self._loss = self._loss or DeviceLoss(rows, kind, by_host, *arrays)
                self._is_computed = self._loss.compute(predictions)
        if self._is_computed:
            return
        # The host takes over, and needs the predictions that only the device has updated.
        if self._loss is not None:
            self._loss.fetch(predictions)
            self._loss = None
        by_host(**arguments)

    def update(self, predictions: np.ndarray, grower: Any, n_threads: int) -> None:
        """Add what a new tree says of each row to its prediction."""
        rows = self._rows
        if isinstance(grower, DeviceTreeGrower) and rows is not None and rows.spec.doubles:
            # The gradients are computed on the host, which needs the predictions after each tree.
            if self._loss is None:
                memory = rows.sent(predictions)
                grower.add_values(memory)
                rows.fetch(memory, predictions)
                return
            self._loss.add_values(grower)
            # Without early stopping nothing reads the predictions on the host.
            if self._estimator.do_early_stopping_:
                self._loss.fetch(predictions)
            return
        # Without float64 on the device, the host adds the values by the rows of each leaf.
        if isinstance(grower, DeviceTreeGrower):
            grower.find_partition()
        gradient_boosting._update_raw_predictions(predictions, grower, n_threads)  # noqa: SLF001

    def close(self) -> None:
        if self._watched is not None:
            self._watched.__class__ = type(self._watched).__base__

    def grower(self, X_binned: np.ndarray, gradients: np.ndarray, hessians: np.ndarray, **options: Any) -> TreeGrower:
        arguments = {"gradients": gradients, "hessians": hessians, **options}
        rows = self._rows_of(X_binned, arguments) if self._grows_on_device(X_binned.size) else None
        grower: Any = (
            _HostTreeGrower(X_binned, **arguments)
            if rows is None
            else DeviceTreeGrower(X_binned, device_rows=rows, has_gradients=self._is_computed, **arguments)
        )
        if len(self._growers) < _TRIALS:
            self._growers.append(grower)
        return grower

    def _grows_on_device(self, bins: int) -> bool:
        if self._device is not None:
            return True
        if bins < FEWEST_BINS or not self._has_device or is_forked():
            return False
        number = len(self._growers)
        # Trial trees: device, host, device. The first one includes compilation, so it is not compared.
        if number < _TRIALS:
            return number != 1
        _, host, device = self._growers
        return device.seconds <= host.seconds

    def transform(self, mapper: Any, X: Any) -> np.ndarray:
        """Return the bins of features as scikit-learn's mapper has them: on the device where trees may grow there.

        The search takes a device less time than the host for as few values as a tree does.
        """
        is_plain = isinstance(X, np.ndarray) and X.dtype in (np.float64, np.float32) and X.ndim == 2 and X.size
        queue = self._device_queue() if is_plain and self._grows_on_device(X.size) else None
        if queue is None or not queue.device.double_fp_config:
            return type(mapper).transform(mapper, X)
        try:
            categories = mapper.is_categorical_.astype(bool)
            return bin_features(queue, X, mapper.bin_thresholds_, categories, mapper.missing_values_bin_idx_)
        except MemoryError:
            return type(mapper).transform(mapper, X)

    def _device_queue(self) -> Any:
        """Return the queue of the device; None if there is none, and none was named."""
        if self._queue is None:
            try:
                self._queue = default_queue() if self._device is None else _queue_of(self._device)
            except NoDeviceError:
                if self._device is not None:
                    raise
                self._has_device = False
        return self._queue

    def _rows_of(self, X_binned: np.ndarray, arguments: dict[str, Any]) -> DeviceRows | None:
        """Return the rows on the device; None if there is none for them, and none was named."""
        if self._rows is None or self._binned is not X_binned:
            has_hessians, leaves = len(arguments["hessians"]) > 1, arguments.get("max_leaf_nodes")
            # A binary tree has fewer than twice as many nodes as leaves.
            slots = [] if leaves is None else [2 * leaves]
            queue = self._device_queue()
            if not self._has_device:
                return None
            try:
                self._rows = DeviceRows(queue, X_binned, arguments["n_bins"], has_hessians, *slots)
            except (NoDeviceError, MemoryError):
                if self._device is not None:
                    raise
                self._has_device = False
                return None
            self._binned = X_binned
        return self._rows


@lru_cache
def _watched(of: Any) -> Any:
    """Return a class of losses whose gradients are computed as `_Growing` says; copies and pickles are of the other."""

    def method(name: str) -> Callable[..., Any]:
        def compute(self: Any, **arguments: Any) -> Any:
            growing, by_host = _growing.get(None), getattr(super(watched, self), name)
            return by_host(**arguments) if growing is None else growing.compute(by_host, arguments)

        return compute

    def __reduce_ex__(self: Any, protocol: Any) -> tuple[Any, ...]:
        return object.__new__, (of,), self.__dict__

    methods = {name: method(name) for name in ("gradient", "gradient_hessian")}
    watched: Any = type(of.__name__, (of,), {**methods, "__reduce_ex__": __reduce_ex__})
    return watched


_TRIALS = 3
_growing: ContextVar[_Growing] = ContextVar("clhist_growing")


def _queue_of(device: str) -> cl.CommandQueue:
    return _context_and_queue(devices(device=device)[0])[1]


@lru_cache
def _context_and_queue(device: cl.Device) -> tuple[cl.Context, cl.CommandQueue]:
    """Return both, since a queue of Intel's runtime does not keep its context."""
    context = cl.Context([device])
    return context, cl.CommandQueue(context, device)


def _update_leaves_values(**arguments: Any) -> None:
    """Do what scikit-learn does, with the rows of each leaf in their order, which weighted quantiles may depend on."""
    grower = arguments["grower"]
    if isinstance(grower, DeviceTreeGrower):
        grower.find_partition()
    else:
        for leaf in grower.finalized_leaves:
            np.asarray(leaf.sample_indices).sort()
    gradient_boosting._update_leaves_values(**arguments)  # noqa: SLF001  # which has no public name


def _fit_with_growers() -> Callable[..., Any]:
    """Return scikit-learn's ``fit`` as a function that finds another class of growers by the name of its own."""
    fit = gradient_boosting.BaseHistGradientBoosting.fit.__wrapped__
    names = {
        **vars(gradient_boosting),
        "TreeGrower": lambda **arguments: _growing.get().grower(**arguments),
        "_update_leaves_values": _update_leaves_values,
        "_update_raw_predictions": lambda *arguments: _growing.get().update(*arguments),
    }
    # A copy with other globals: scikit-learn's own function and module stay unchanged.
    made = FunctionType(fit.__code__, names, fit.__name__, fit.__defaults__, fit.__closure__)
    made.__kwdefaults__ = fit.__kwdefaults__
    return _fit_context(prefer_skip_nested_validation=True)(made)


def _fit_of_mapper() -> Callable[..., Any]:
    """Return the ``fit`` of scikit-learn's mapper as a function that makes float64 of the rows that it draws alone."""
    fit = binning._BinMapper.fit  # noqa: SLF001  # which has no public name

    def checked(X: Any, **options: Any) -> Any:
        return X if X.dtype == np.float32 else check_array(X, **options)

    def thresholds(column: np.ndarray, *args: Any, **options: Any) -> Any:
        return binning._find_binning_thresholds(column.astype(np.float64, copy=False), *args, **options)  # noqa: SLF001

    names = {**vars(binning), "check_array": checked, "_find_binning_thresholds": thresholds}
    return FunctionType(fit.__code__, names, fit.__name__, fit.__defaults__, fit.__closure__)


_fit, _fit_mapper = _fit_with_growers(), _fit_of_mapper()
_ARGUMENTS = [*signature(gradient_boosting.BaseHistGradientBoosting.fit).parameters][1:]


def _nan_where_masked(X: Any) -> Any:
    """Return features with NaN, which models know as missing, where they are masked."""
    if mask_of(X) is None:
        return X
    return np.ma.filled(X.astype(np.result_type(X.dtype, np.float32)), np.nan)


def _loses_gradients(loss: Any, y: Any, weights: Any) -> bool:
    """Return whether most gradients of the first tree are hardly a unit, which follows from the largest one."""
    if any(getattr(getattr(array, "dtype", None), "kind", "") == "c" for array in (y, weights)):
        # scikit-learn refuses complex numbers itself; a cast would warn first.
        return False
    try:
        # Hessians are proportional to the weights.
        every = [] if weights is None else [np.abs(np.asarray(weights, np.float64))]
        if loss in _UNBOUNDED:
            values = np.asarray(y, np.float64)
            if not values.size:
                return False
            with np.errstate(invalid="ignore", over="ignore"):
                # Deviations from the median stand for the gradients of the first tree.
                sizes = np.abs(values - np.median(values))
                every.append(sizes if weights is None else sizes * every[0])
    except (TypeError, ValueError):  # scikit-learn says what is wrong
        return False
    for sizes in every:
        some = sizes[(sizes > 0) & np.isfinite(sizes)]
        if some.size and _median_is_below(some, some.max() * 2.0 ** (_LEAST_BITS - bits_of(len(some)))):
            return True
    return False


def _median_is_below(values: np.ndarray, limit: float) -> bool:
    """Return whether the median is less than a limit, by counting; `numpy.median` takes ten times as long."""
    below = 2 * int(np.count_nonzero(values < limit))
    # With both of the middle two values on one side of the limit, so is their mean.
    return below > values.size if abs(below - values.size) else bool(np.median(values) < limit)


class _OnDevice:
    """Methods by which both estimators differ from scikit-learn's."""

    device: str | None

    def _get_loss(self, *args: Any, **options: Any) -> Any:
        loss = super()._get_loss(*args, **options)  # type: ignore[misc]
        growing = _growing.get(None)
        return loss if growing is None else growing.watch(loss)

    def _preprocess_X(self, X: Any, **options: Any) -> Any:  # of fits and of predictions
        X = _nan_where_masked(X)
        # scikit-learn makes float64 of all features, which takes as long as some trees. Where none is a category, a
        # row has all that it checks, and mapper and device read float32.
        are_floats = type(X) is np.ndarray and X.ndim == 2 and X.size and X.dtype == np.float32
        if are_floats and options.get("reset") and _growing.get(None) is not None:
            checked = super()._preprocess_X(X[:1], **options)  # type: ignore[misc]
            if self._preprocessor is None:  # type: ignore[attr-defined]
                return X, *checked[1:]
        return super()._preprocess_X(X, **options)  # type: ignore[misc]

    def _bin_data(self, *args: Any, **options: Any) -> np.ndarray:
        growing = _growing.get(None)
        if growing is None:
            return super()._bin_data(*args, **options)  # type: ignore[misc]
        mapper = self._bin_mapper  # type: ignore[attr-defined]
        # Of this mapper alone, and while it is called.
        mapper.fit, mapper.transform = partial(_fit_mapper, mapper), partial(growing.transform, mapper)
        try:
            return super()._bin_data(*args, **options)  # type: ignore[misc]
        finally:
            del mapper.fit, mapper.transform

    @wraps(_fit)
    def fit(self, *args: Any, **options: Any) -> Any:
        arguments = dict(zip(_ARGUMENTS, args, strict=False)) | options
        for name, value in arguments.items():
            if not name.startswith("X") and mask_of(value) is not None:
                refuse_missing(name, value)
        if isinstance(self.device, str):
            # Raises for a wrong device before the estimator changes.
            _queue_of(self.device)
        if _loses_gradients(getattr(self, "loss", ""), arguments.get("y"), arguments.get("sample_weight")):
            warn_caller(
                "sample_weight, y: the largest gradient is so much larger than most others that fixed-point sums would "
                "lose these; scikit-learn's own code grows the trees, on the host",
                UserWarning,
            )
            return super().fit(*args, **options)  # type: ignore[misc]
        growing = _Growing(self)
        token = _growing.set(growing)
        try:
            return _fit(self, *args, **options)
        finally:
            _growing.reset(token)
            growing.close()


def _with_device(cls: Any) -> Any:
    """Give an estimator's ``__init__`` one argument more than that of the class of scikit-learn has."""
    # scikit-learn's class comes third, after the class itself and `_OnDevice`.
    of = cls.__mro__[2]
    before = signature(of.__init__)

    def __init__(self: Any, *args: Any, device: str | None = None, **options: Any) -> None:
        of.__init__(self, *args, **options)
        self.device = device

    # scikit-learn reads the parameters of an estimator from this signature, as in `clone`.
    more = Parameter("device", Parameter.KEYWORD_ONLY, default=None, annotation="str | None")
    __init__.__signature__ = before.replace(parameters=[*before.parameters.values(), more])  # type: ignore[attr-defined]
    cls.__init__ = __init__
    cls._parameter_constraints = {**of._parameter_constraints, "device": [str, None]}  # noqa: SLF001  # as subclasses do
    return cls


@_with_device
class HistGradientBoostingRegressor(_OnDevice, sklearn.ensemble.HistGradientBoostingRegressor):
    """``sklearn.ensemble.HistGradientBoostingRegressor`` whose trees grow on an OpenCL device.

    It has that class's parameters, attributes, methods and errors, and its models: predictions, pickles, explanations
    and early stopping are scikit-learn's. Gradients are rounded to a unit that is at most 2**-30 of the largest of a
    tree, or 2**-52 of it times the number of rows, so that all sums are exact. So **the trees are the same, bit for
    bit, on any device**, and as good as without. If that unit would lose most gradients, as with one weight that is
    10**10 times the others, scikit-learn's own code grows the trees, and a warning says so.

    Parameters
    ----------
    loss, learning_rate, max_iter, ... : object
        As of scikit-learn's.
    device : str, optional
        The device that grows trees, by a part of its name or its vendor's. Without, the default one does, if the first
        trees show that it takes less time than scikit-learn's own code, which grows the same trees.

    Raises
    ------
    NoDeviceError
        If no device has such a name.
    ValueError
        Of what scikit-learn refuses; if a gradient is not finite.
    MemoryError
        If the device that was named has no room for two bytes a row and feature, and 24 a row.

    References
    ----------
    T. Chen, C. Guestrin, XGBoost: A Scalable Tree Boosting System, 2016, equations 5 to 7.

    Examples
    --------
    >>> from clhist.boosting import HistGradientBoostingRegressor
    >>> x = np.linspace(0, 1, 1000).reshape(-1, 1)
    >>> model = HistGradientBoostingRegressor(max_iter=50).fit(x, np.sin(6 * x[:, 0]))
    >>> round(float(model.predict([[0.25]])[0]), 1)
    1.0
    """


@_with_device
class HistGradientBoostingClassifier(_OnDevice, sklearn.ensemble.HistGradientBoostingClassifier):
    """``sklearn.ensemble.HistGradientBoostingClassifier`` whose trees grow on an OpenCL device.

    See `HistGradientBoostingRegressor`.

    Parameters
    ----------
    loss, learning_rate, max_iter, ... : object
        As of scikit-learn's.
    device : str, optional
        As of `HistGradientBoostingRegressor`.

    Raises
    ------
    NoDeviceError, ValueError, MemoryError
        As of `HistGradientBoostingRegressor`.

    Examples
    --------
    >>> from clhist.boosting import HistGradientBoostingClassifier
    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(size=(1000, 4))
    >>> model = HistGradientBoostingClassifier(max_iter=50).fit(x, x[:, 0] > x[:, 1])
    >>> model.predict([[1, 0, 0, 0], [0, 1, 0, 0]])
    array([ True, False])
    """
