"""Text files of bounded size."""

from __future__ import annotations

import os
from pathlib import Path

from clhist.files.regular import open_regular


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
