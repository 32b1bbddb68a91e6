"""The command ``clhist``, which ``python -m clhist`` is, too."""

from __future__ import annotations

import os
import signal
from types import FrameType


def _end(number: int, frame: FrameType | None) -> None:
    # Signal-safe: neither buffered streams nor exit handlers, whose modules may be half imported.
    os.write(2, b"\ninterrupted\n")
    os._exit(130)


def run() -> None:
    """Run the command; Ctrl-C ends it without a traceback while it still imports libraries, too."""
    # A parent process may have set SIGINT to be ignored, as for a job in the background: leave that alone.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end)
    from clhist.cli.main import run as run_command

    run_command()


if __name__ == "__main__":
    run()
