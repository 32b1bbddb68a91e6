"""Data files of the case studies: read without trusting them, refused with their name and the reason."""

from __future__ import annotations

import os
from pathlib import Path as FilePath
from typing import Any

import numpy as np
import numpy.typing as npt

from clhist.files.arrays import Path, only_key, read_npy, read_npz
from clhist.files.regular import open_regular
from clhist.files.table import TableError
from clhist.files.text import read_numbers

__all__ = ["read_image", "read_npz", "read_table"]


def read_table(path: Path, *, columns: int | None = None, key: str | None = None) -> npt.NDArray[Any]:
    """Read a table of numbers from a .npy, .npz or text file.

    Parameters
    ----------
    path : str or path-like
        A .npy file, an .npz file, or text: a row a line, with one separator, which is a comma, a semicolon, a tab or
        blanks. What follows a ``#`` is a comment, and a first line without a number has names. An empty field is
        refused. Nothing in a file is trusted: no pickles, and no array larger than the file can hold.
    columns : int, optional
        How many columns there have to be.
    key : str, optional
        Which array of an .npz file; the only one if it has one.

    Returns
    -------
    array of shape (rows, columns)
        Integers or floats as stored; float64 from text.

    Raises
    ------
    OSError
        The file cannot be read.
    ValueError
        It is no such table. The text names the file, what was expected and what was there.
    """
    ending = os.path.splitext(path)[1].lower()
    try:
        if ending == ".npz":
            name = key or only_key(path)
            array = read_npz(path, [name])[name]
        elif ending == ".npy":
            with open_regular(path) as file:
                array = read_npy(file)
        else:
            array = read_numbers(FilePath(path))
        if array.ndim != 2 or (columns is not None and array.shape[1] != columns):
            expected = f"{columns} columns" if columns is not None else "rows and columns"
            raise ValueError(f"expected {expected}, got shape {array.shape}")
    except TableError:  # which names the file
        raise
    except ValueError as error:
        raise ValueError(f"{os.fspath(path)}: {error}") from error
    return array


def read_image(path: Path) -> npt.NDArray[np.uint8]:
    """Read an image of 8 bits a channel: PNG, JPEG, TIFF and what else Pillow knows, or a .npy file of uint8.

    Parameters
    ----------
    path : str or path-like
        The file.

    Returns
    -------
    uint8 array of shape (height, width) or (height, width, channels)
        Palettes become colours; 1-bit images 0 and 255.

    Raises
    ------
    ImportError
        Pillow is not installed; the text says how to install it.
    OSError
        The file cannot be read.
    ValueError
        It is no image, or one of other than 8 bits a channel.
    """
    name = os.fspath(path)
    if name.lower().endswith(".npy"):
        try:
            with open_regular(path) as file:
                array = read_npy(file)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from error
    else:
        array = _read_with_pillow(path)
    if array.dtype != np.uint8 or array.ndim not in (2, 3) or not array.size:
        expected = "an image of 8 bits a channel, (height, width) or (height, width, channels)"
        raise ValueError(f"{name}: expected {expected}, got {array.dtype} of shape {array.shape}")
    return array


def _read_with_pillow(path: Path) -> npt.NDArray[Any]:
    try:
        from PIL import Image, UnidentifiedImageError
    except ImportError as error:
        raise ImportError(f'{os.fspath(path)}: reading images needs Pillow: pip install "clhist[image]"') from error
    try:
        opened = open_regular(path)
    except ValueError as error:
        raise ValueError(f"{os.fspath(path)}: {error}") from error
    with opened as file:
        try:
            with Image.open(file) as image:
                if image.mode in ("P", "PA", "1", "CMYK", "YCbCr", "LAB", "HSV"):
                    return np.asarray(image.convert({"1": "L", "PA": "RGBA"}.get(image.mode, "RGB")))
                return np.asarray(image)
        except UnidentifiedImageError as error:
            raise ValueError(
                f"{os.fspath(path)}: expected an image of a format that Pillow reads (PNG, JPEG, TIFF, ...), or a .npy "
                "file of uint8; got something else"
            ) from error
        except Image.DecompressionBombError as error:
            raise ValueError(f"{os.fspath(path)}: expected an image: {error}") from error
        except (OSError, SyntaxError, EOFError) as error:
            # Pillow raises any of these for damaged files.
            raise ValueError(f"{os.fspath(path)}: expected a whole image: {error}") from error
