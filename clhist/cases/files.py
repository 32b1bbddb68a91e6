"""Data files of the case studies: read without trusting them, refused with their name and the reason."""

from __future__ import annotations

import math
import os
import zipfile
from collections.abc import Sequence
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
from numpy.lib import format as npy

__all__ = ["read_image", "read_npz", "read_table"]

Path = str | os.PathLike[str]


def read_table(path: Path, *, columns: int | None = None, key: str | None = None) -> npt.NDArray[Any]:
    """Read a table of numbers from a .npy, .npz or text file.

    Parameters
    ----------
    path : str or path-like
        A .npy file, an .npz file, or text: a row a line, separated by commas, semicolons or blanks; what follows a
        ``#`` is a comment, and a first line of names is skipped. Nothing in it is trusted: no pickles, and no array
        larger than the file can hold.
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
            name = key or _only_key(path)
            array = read_npz(path, [name])[name]
        elif ending == ".npy":
            with open(path, "rb") as file:
                array = _read_npy(file, os.fstat(file.fileno()).st_size)
        else:
            array = _read_text(path)
        if array.ndim != 2 or (columns is not None and array.shape[1] != columns):
            expected = f"{columns} columns" if columns is not None else "rows and columns"
            raise ValueError(f"expected {expected}, got shape {array.shape}")
    except ValueError as error:
        raise ValueError(f"{os.fspath(path)}: {error}") from error
    return array


def read_npz(path: Path, names: Sequence[str], *, optional: Sequence[str] = ()) -> dict[str, npt.NDArray[Any]]:
    """Read arrays of integers or floats from an .npz file, refused before they are allocated if it cannot hold them.

    Parameters
    ----------
    path : str or path-like
        The file. Nothing in it is trusted.
    names, optional : sequences of str
        The arrays that there have to be, and that there may be.

    Raises
    ------
    OSError
        The file cannot be read.
    ValueError
        It is not an .npz file, is damaged, or lacks an array.
    """
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        try:
            with zipfile.ZipFile(file) as archive:
                keys = [member[:-4] for member in archive.namelist() if member.endswith(".npy")]
                for name in names:
                    if name not in keys:
                        raise ValueError(f"{name}: expected a key of this name, got only {', '.join(keys) or 'none'}")
                wanted = [*names, *(name for name in optional if name in keys)]
                return {name: _read_member(archive, name, size) for name in wanted}
        except ValueError:
            raise
        except Exception as error:  # damage surfaces as any of the errors of zip, deflate and struct
            raise ValueError(f"expected an .npz file: {error}") from error


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
        with open(path, "rb") as file:
            try:
                array = _read_npy(file, os.fstat(file.fileno()).st_size)
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
    with open(path, "rb") as file:
        try:
            with Image.open(file) as image:
                if image.mode in ("P", "PA", "1", "CMYK", "YCbCr", "LAB", "HSV"):
                    return np.asarray(image.convert({"1": "L", "PA": "RGBA"}.get(image.mode, "RGB")))
                return np.asarray(image)
        except (UnidentifiedImageError, Image.DecompressionBombError) as error:
            raise ValueError(f"{os.fspath(path)}: expected an image: {error}") from error
        except (OSError, SyntaxError, EOFError) as error:  # how Pillow reports damage
            raise ValueError(f"{os.fspath(path)}: expected a whole image: {error}") from error


def _only_key(path: Path) -> str:
    try:
        with zipfile.ZipFile(path) as archive:
            keys = [member[:-4] for member in archive.namelist() if member.endswith(".npy")]
    except zipfile.BadZipFile as error:
        raise ValueError(f"expected an .npz file: {error}") from error
    if len(keys) != 1:
        raise ValueError(f"expected one array or a key that says which, got {', '.join(keys) or 'none'}")
    return keys[0]


def _read_text(path: Path) -> npt.NDArray[np.float64]:
    rows: list[list[float]] = []
    with open(path, encoding="utf-8", errors="strict") as file:
        for number, line in enumerate(file, 1):
            words = line.partition("#")[0].replace(",", " ").replace(";", " ").split()
            if not words:
                continue
            try:
                row = [float(word) for word in words]
            except ValueError as error:
                if not rows and number == 1:  # the names of the columns
                    continue
                raise ValueError(f"line {number}: expected numbers, got {line.strip()[:60]!r}") from error
            if rows and len(row) != len(rows[0]):
                raise ValueError(f"line {number}: expected {len(rows[0])} numbers as before, got {len(row)}")
            rows.append(row)
    if not rows:
        raise ValueError("expected rows of numbers, got none")
    return np.array(rows)


def _read_npy(file: BinaryIO, size: int) -> npt.NDArray[Any]:
    """One array of a .npy file of `size` bytes, refused before it is allocated if the file cannot hold it."""
    try:
        declared, dtype = _declared(file)
        if dtype.kind not in "iuf" or declared != size:
            raise ValueError(f"expected integers or floats in {size} bytes, got {dtype} in {declared}")
        file.seek(0)
        return npy.read_array(file, allow_pickle=False)
    except Exception as error:  # damage surfaces as any of the errors of struct, tokenize and npy
        raise ValueError(f"expected a whole .npy array: {error}") from error


def _read_member(archive: zipfile.ZipFile, name: str, archive_size: int) -> npt.NDArray[Any]:
    info = archive.getinfo(f"{name}.npy")
    # Deflate shrinks at most 1032 times, so a larger claim is false.
    stored = min(info.compress_size, archive_size)
    possible = {zipfile.ZIP_STORED: 1, zipfile.ZIP_DEFLATED: 1032}.get(info.compress_type, 0) * stored
    if info.file_size > possible:
        raise ValueError(f"{name}: expected at most {possible} bytes in {stored}, got {info.file_size}")
    try:
        with archive.open(info) as member:
            declared, dtype = _declared(member)
        if dtype.kind not in "iuf":
            raise ValueError(f"dtype: expected integers or floats, got {dtype}")
        if declared != info.file_size:
            raise ValueError(f"shape: expected one of {info.file_size} bytes, the size of the member, got {declared}")
        with archive.open(info) as member:
            return npy.read_array(member, allow_pickle=False)
    except Exception as error:
        raise ValueError(f"{name}: expected a whole .npy array, got {type(error).__name__}: {error}") from error


def _declared(file: Any) -> tuple[int, np.dtype]:
    """How many bytes a .npy file says that it has, and of which type."""
    version = npy.read_magic(file)
    read_header = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
    shape, _, dtype = read_header(file)
    if min(shape, default=0) < 0:
        raise ValueError(f"shape: expected one of no negative length, got {shape}")
    return file.tell() + math.prod(shape) * dtype.itemsize, dtype
