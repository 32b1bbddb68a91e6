"""Arrays of .npy and .npz files, refused before they are allocated if the file cannot hold them."""

from __future__ import annotations

import math
import os
import sys
import zipfile
from collections.abc import Sequence
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
from numpy.lib import format as npy

from clhist.files.regular import Path, open_regular

NUMBERS = "iuf"  # kinds of dtypes


def read_npz(
    path: Path, names: Sequence[str], *, optional: Sequence[str] = (), kinds: str = NUMBERS, compressed: bool = True
) -> dict[str, npt.NDArray[Any]]:
    """Read arrays from an .npz file, refused before they are allocated if it cannot hold them.

    Parameters
    ----------
    path : str or path-like
        The file. Nothing in it is trusted.
    names, optional : sequences of str
        The arrays that there have to be, and that there may be.
    kinds : str
        Kinds of the dtypes that they may have; objects are always refused.
    compressed : bool
        Whether arrays may be compressed, and so take up to 1032 times the memory that the file takes.

    Raises
    ------
    OSError
        The file cannot be read.
    ValueError
        It is not an .npz file, is damaged, or lacks an array.
    """
    with open_regular(path) as file:
        # Members are compared with the size of the file, since sizes in an archive are not trusted.
        size = os.fstat(file.fileno()).st_size
        try:
            with zipfile.ZipFile(file) as archive:
                keys = _keys(archive)
                for name in names:
                    if name not in keys:
                        raise ValueError(f"{name}: expected a key of this name, got only {', '.join(keys) or 'none'}")
                wanted = [*names, *(name for name in optional if name in keys)]
                return {name: _read_member(archive, name, size, kinds, compressed) for name in wanted}
        except ValueError:
            raise
        except Exception as error:  # damage surfaces as any of the errors of zip, deflate and struct
            raise ValueError(f"expected an .npz file: {error}") from error


def only_key(path: Path) -> str:
    """Return the name of the one array of an .npz file; raise ValueError if there are others or none."""
    try:
        with open_regular(path) as file, zipfile.ZipFile(file) as archive:
            keys = _keys(archive)
    except zipfile.BadZipFile as error:
        raise ValueError(f"expected an .npz file: {error}") from error
    if len(keys) != 1:
        raise ValueError(
            f"expected a file of one array, got {', '.join(keys) or 'none'}; save the one to use with numpy.save"
        )
    return keys[0]


def read_npy(file: BinaryIO, kinds: str = NUMBERS) -> npt.NDArray[Any]:
    """Return the array of a .npy file; raise ValueError if it is none, or of other `kinds`."""
    size = os.fstat(file.fileno()).st_size
    try:
        # The header must account for every byte of the file before memory is allocated.
        declared, dtype = _declared(file)
        if dtype.kind not in kinds or declared != size:
            raise ValueError(f"expected {_KINDS[kinds]} in {size} bytes, got {dtype} in {declared}")
        file.seek(0)
        return npy.read_array(file, allow_pickle=False)
    except Exception as error:  # damage surfaces as any of the errors of struct, tokenize and npy
        raise ValueError(f"expected a whole .npy array: {error}") from error


_WIDE = np.dtype(np.uint32)  # a character of text
_KINDS = {NUMBERS: "integers or floats"}
# Deflate shrinks by at most this factor; a file that claims more is damaged.
_MOST_SHRUNK = 1032


def _keys(archive: zipfile.ZipFile) -> list[str]:
    return [member[:-4] for member in archive.namelist() if member.endswith(".npy")]


def _read_member(
    archive: zipfile.ZipFile, name: str, archive_size: int, kinds: str, compressed: bool
) -> npt.NDArray[Any]:
    info = archive.getinfo(f"{name}.npy")
    # The directory may claim anything, but not more bytes than the file has.
    stored = min(info.compress_size, archive_size)
    ratios = {zipfile.ZIP_STORED: 1} | ({zipfile.ZIP_DEFLATED: _MOST_SHRUNK} if compressed else {})
    if info.compress_type not in ratios:
        raise ValueError(f"{name}: expected {'stored or deflated' if compressed else 'uncompressed'} bytes, got others")
    possible = ratios[info.compress_type] * stored
    if info.file_size > possible:
        raise ValueError(f"{name}: expected at most {possible} bytes in {stored}, got {info.file_size}")
    try:
        # Compare the header with the sizes before memory is allocated.
        with archive.open(info) as member:
            declared, dtype = _declared(member)
        if dtype.kind not in kinds or dtype.hasobject or not dtype.itemsize:
            raise ValueError(f"dtype: expected {_KINDS.get(kinds, 'numbers, text or structs')}, got {dtype}")
        if declared != info.file_size:
            raise ValueError(f"shape: expected one of {info.file_size} bytes, the size of the member, got {declared}")
        with archive.open(info) as member:
            array = npy.read_array(member, allow_pickle=False)
        # A character has 32 bits, of which Unicode uses 21: Python has no text with larger ones.
        characters = np.frombuffer(array.tobytes(), _WIDE.newbyteorder(dtype.byteorder)) if dtype.kind == "U" else ()
        if np.max(characters, initial=0) > sys.maxunicode:
            raise ValueError("expected text of Unicode")
        return array
    except Exception as error:
        raise ValueError(f"{name}: expected a whole .npy array, got {type(error).__name__}: {error}") from error


def _declared(file: Any) -> tuple[int, np.dtype]:
    """How many bytes a .npy file says that it has, and of which type."""
    version = npy.read_magic(file)
    # Versions above 1.0 all have a length of 32 bits.
    read_header = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
    shape, _, dtype = read_header(file)
    if min(shape, default=0) < 0:
        raise ValueError(f"shape: expected one of no negative length, got {shape}")
    return file.tell() + math.prod(shape) * dtype.itemsize, dtype
