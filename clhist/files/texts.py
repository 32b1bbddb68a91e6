"""Text files of bounded size."""

from __future__ import annotations

import os
import stat
from pathlib import Path


def read_text(path: Path, most: int) -> str:
    """Return the text of a regular file of at most `most` bytes.

    Raises
    ------
    OSError
        If it cannot be read.
    ValueError
        If it is larger, no regular file, or no UTF-8. A pipe or a device is not waited for.
    """
    # Without O_NONBLOCK, opening a pipe waits for a writer. What is no regular file is refused before it is opened, as
    # opening a device may do something, and once more after that, as the name may have come to stand for another.
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise ValueError("expected a regular file")
    number = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    with open(number, "rb") as file:
        if not stat.S_ISREG(os.fstat(number).st_mode):
            raise ValueError("expected a regular file")
        content = file.read(most + 1)
        if len(content) > most:
            raise ValueError(f"expected at most {most} bytes, got {max(len(content), os.fstat(number).st_size)}")
    return content.decode("utf-8")
