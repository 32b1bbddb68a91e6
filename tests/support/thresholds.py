"""Thresholds between the host and a device that tests choose."""

from clhist._core.runtime.small import Cost


def threshold(elements: float) -> Cost:
    """Return the cost of a call that any device computes from so many elements on."""
    # No columns: a GPU would be predicted a little more for their copies.
    return Cost(elements, 0, 1000, 0, columns=0)
