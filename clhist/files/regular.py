"""Regular files: opened without waiting for a pipe or a device, and replaced as a whole."""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO

Path = str | os.PathLike[str]


def open_regular(path: Path) -> BinaryIO:
    """Return a regular file, opened to be read.

    Raises
    ------
    TypeError
        If `path` is no path; the number of an open file is none.
    OSError
        If it cannot be opened.
    ValueError
        If it is no regular file, or the system has no such names.
    """
    if not isinstance(path, str | os.PathLike):
        raise TypeError(f"file: expected a path, got {path!r}")
    # Without O_NONBLOCK, opening a pipe waits for a writer. What is no regular file is refused before it is opened, as
    # opening a device may do something, and once more after that, as the name may have come to stand for another.
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise ValueError("expected a regular file")
    number = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    file = open(number, "rb")  # noqa: SIM115
    if not stat.S_ISREG(os.fstat(number).st_mode):
        file.close()
        raise ValueError("expected a regular file")
    return file


@contextmanager
def replaced(path: Path, *, durable: bool = True) -> Iterator[BinaryIO]:
    """Yield a file to be written that takes the place of `path` in the end, unless anything is raised.

    `durable` waits until it is on the disk, so that not even a loss of power leaves an empty file.

    Raises
    ------
    TypeError
        If `path` is no path.
    OSError
        If it cannot be written.
    ValueError
        If it exists and is no regular file.
    """
    if not isinstance(path, str | os.PathLike):
        raise TypeError(f"file: expected a path, got {path!r}")
    # A symbolic link stays one: the file that it leads to is replaced.
    target = os.path.realpath(path)
    try:
        mode: int | None = os.stat(target).st_mode
    except FileNotFoundError:
        mode = None
    if mode is not None and not stat.S_ISREG(mode):
        raise ValueError(f"{path}: expected a regular file")
    # In the same folder, since a rename cannot cross file systems.
    temporary = os.path.join(os.path.dirname(target), f".clhist-{secrets.token_hex(8)}")
    file = open(temporary, "xb")  # noqa: SIM115
    try:
        with file:
            yield file
            if durable:
                file.flush()
                os.fsync(file.fileno())
        # The new file keeps the permissions of the old one.
        if mode is not None:
            os.chmod(temporary, stat.S_IMODE(mode))
        os.replace(temporary, target)
    except BaseException:
        os.unlink(temporary)
        raise


def read_text(path: Path, most: int) -> str:
    """Return the text of a regular file of at most `most` bytes.

    Raises
    ------
    OSError
        If it cannot be read.
    ValueError
        If it is larger, no regular file, or no UTF-8. A pipe or a device is not waited for.
    """
    with open_regular(path) as file:
        # One byte more than allowed shows whether the file is larger, without reading all of it.
        content = file.read(most + 1)
        if len(content) > most:
            raise ValueError(f"expected at most {most} bytes, got {max(len(content), os.fstat(file.fileno()).st_size)}")
    return content.decode("utf-8")
