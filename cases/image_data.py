"""Generated images for the cases `clhist.cases.image` and `clhist.cases.joint`."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["image_pair", "photograph"]

_OCTAVES = (3, 6, 12, 25, 50, 100, 200)  # cells of the noise across a picture
_MARGIN = 32


def photograph(height: int, width: int, channels: int = 3, seed: int = 0) -> npt.NDArray[np.uint8]:
    """Return a picture of shape (height, width, channels): clouds of noise of all scales, each channel of a tint."""
    rng = np.random.default_rng(seed)
    shared = _clouds(rng, height, width)
    image = np.empty((height, width, channels), np.uint8)
    for channel in range(channels):
        light = 0.9 * shared + 0.5 * _clouds(rng, height, width, _OCTAVES[:3])
        image[:, :, channel] = (255 / (1 + np.exp(-1.4 * light + 0.8 * (channel - 1)))).astype(np.uint8)
    return image


def image_pair(size: int, shift: tuple[int, int], seed: int = 0) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8]]:
    """Return two images of one scene as two instruments see it: pixel p of the first is p + `shift` of the second.

    The second is warped by up to a pixel, has noise, and its intensities are no monotonic function of the first's, so
    that their difference or correlation says little of how they lie.

    Parameters
    ----------
    size : int
        Height and width of both.
    shift : pair of int
        Rows down and columns right, of up to 32.
    """
    down, right = shift
    if max(abs(down), abs(right)) > _MARGIN:
        raise ValueError(f"shift: expected at most {_MARGIN} rows and columns, got {shift}")
    scene = photograph(size + 2 * _MARGIN, size + 2 * _MARGIN, 1, seed)[:, :, 0]
    fixed = scene[_MARGIN:-_MARGIN, _MARGIN:-_MARGIN].copy()
    place = np.arange(size)
    warp = np.rint(0.7 * np.sin(2 * np.pi * 3 * place / size)).astype(int)
    rows, columns = place + _MARGIN - down, place + _MARGIN - right
    seen = scene[rows[:, None] + warp[None, :], columns[None, :] + warp[:, None]]
    noise = np.random.default_rng(seed + 1).normal(scale=6, size=seen.shape)
    moving = 40 + 180 * np.sin(1.6 * np.pi * seen / 255) ** 2 + noise
    return fixed, np.clip(np.rint(moving), 0, 255).astype(np.uint8)


def _clouds(rng: np.random.Generator, height: int, width: int, cells: tuple[int, ...] = _OCTAVES) -> np.ndarray:
    """Return noise of about unit size: random grids of so many `cells`, the finer the fainter, interpolated."""
    total = np.zeros((height, width), np.float32)
    for count in cells:
        grid = rng.standard_normal((count + 1, count + 1), dtype=np.float32) * np.sqrt(cells[0] / count)
        total += _between(height, count) @ grid @ _between(width, count).T
    return total


def _between(length: int, count: int) -> npt.NDArray[np.float32]:
    """Return the matrix of shape (length, count + 1) that interpolates smoothly between grid points."""
    place = np.linspace(0, count, length, dtype=np.float32)
    near = np.minimum(place.astype(int), count - 1)
    part = (1 - np.cos(np.pi * (place - near))) / 2
    matrix = np.zeros((length, count + 1), np.float32)
    matrix[np.arange(length), near] = 1 - part
    matrix[np.arange(length), near + 1] = part
    return matrix
