"""Gradients of losses, computed on a device: the float32 numbers that scikit-learn's code has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyopencl as cl
from sklearn._loss.loss import HalfBinomialLoss, HalfSquaredError

from clhist.boosting.on_device import DeviceRows

_NAMES = {HalfSquaredError: "squared_error", HalfBinomialLoss: "log_loss"}
# Rows at most whose gradients are recomputed by the host, where the device's rounding might differ.
_MOST_UNSURE = 256


class DeviceLoss:
    """A loss whose gradients are computed where trees grow, from predictions that are kept there, too.

    Exponentials differ by some units in the last place of float64 from one library to the next, which leaves most
    float32 numbers as they are. The host computes the few of which that is not certain, by scikit-learn's code.

    Parameters
    ----------
    rows : DeviceRows
        For which gradients are.
    loss : type
        scikit-learn's class, one that `is_known`.
    by_host : callable
        Its own method that computes gradients.
    targets, weights : float64 array of shape (rows,)
        What is to be predicted, and how much each row counts, or None.

    Raises
    ------
    MemoryError
        If the device has no room.
    """

    def __init__(
        self, rows: DeviceRows, loss: Any, by_host: Callable[..., Any], targets: np.ndarray, weights: np.ndarray | None
    ) -> None:
        self._rows, self._name, self._by_host = rows, _NAMES[loss], by_host
        self._host = targets, weights
        self._given = [None if array is None else rows.sent(array) for array in self._host]
        self.predictions = rows.chain.new(rows.rows, np.float64)
        self._has_predictions = self._is_behind = False  # the device; the host

    @staticmethod
    def is_known(loss: Any, rows: DeviceRows, *arrays: np.ndarray | None) -> bool:
        """Whether a device computes the gradients of a loss, from arrays of these types."""
        are_alike = all(array is None or array.dtype == np.float64 for array in arrays)
        return loss in _NAMES and rows.spec.doubles and are_alike

    def compute(self, predictions: np.ndarray) -> bool:
        """Write the gradients of float64 predictions of all rows; return whether the device could."""
        rows, (targets, weights) = self._rows, self._host
        # Sent once: `add_values` updates the copy on the device after each tree.
        if not self._has_predictions:
            rows.send(self.predictions, predictions)
            self._has_predictions = True
        number, unsure = rows.chain.filled(1, np.uint32, 0), rows.chain.new(_MOST_UNSURE, np.uint32)
        of, weight_of = self._given
        arguments = [of, self.predictions, weight_of, rows.rows, *rows.inputs, number, unsure, _MOST_UNSURE]
        rows.run(self._name, *arguments)
        [count] = rows.fetched(number, 1, np.uint32).tolist()
        if count > _MOST_UNSURE:
            # The list of unsure rows overflowed, so the host computes all gradients.
            return False
        if count:
            # Recompute the unsure rows by scikit-learn's code, and overwrite the gradients of the device.
            at = rows.fetched(unsure, count, np.uint32)
            values = [np.empty(count, np.float32) for _ in rows.inputs]
            outputs = dict(zip(("gradient_out", "hessian_out"), values, strict=False))
            self._by_host(
                y_true=targets[at], raw_prediction=self._predictions_of(at),
                sample_weight=None if weights is None else weights[at], **outputs,
            )  # fmt: skip
            for memory, array in zip(rows.inputs, values, strict=True):
                for n, row in enumerate(at.tolist()):
                    cl.enqueue_copy(rows.chain.queue, memory, array[n : n + 1], dst_offset=4 * row)
        return True

    def _predictions_of(self, rows: np.ndarray) -> np.ndarray:
        return np.array([self._rows.fetched(self.predictions, 1, np.float64, 8 * row)[0] for row in rows.tolist()])

    def add_values(self, grower: Any) -> None:
        """Add to the predictions of rows what a tree says of them."""
        grower.add_values(self.predictions)
        self._is_behind = True

    def fetch(self, predictions: np.ndarray) -> None:
        """Write them to the array of the host that they began with, which nothing else changes, if they are new."""
        if self._is_behind:
            self._rows.fetch(self.predictions, predictions)
            self._is_behind = False
