"""Ctrl-C within a second: Python runs no signal handler while an OpenCL call waits for the device."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import active_children
from types import FrameType

_PATIENCE = 0.7  # seconds that the main thread has to notice


@contextmanager
def interruptible(status: int) -> Iterator[None]:
    """End the process with `status` if Ctrl-C is not noticed within a second, or is pressed again.

    The interpreter's C code writes the signal to a socket at once, where a thread reads it. A main thread that runs
    Python raises KeyboardInterrupt as always.
    """
    # Python sets signal handlers in the main thread only.
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    noticed = threading.Event()

    def notice(number: int, frame: FrameType | None) -> None:
        noticed.set()
        raise KeyboardInterrupt

    def watch() -> None:
        # An empty read means that the writer is closed, and the block has ended.
        while reader.recv(1):
            # The first signal has time to be noticed; a second one, or one that is not noticed, ends the process.
            if noticed.wait(_PATIENCE) and not again.is_set():
                again.set()
                continue
            sys.stderr.write("\ninterrupted\n")
            sys.stderr.flush()
            # Workers would outlive a process that ends without its exit handlers.
            for child in active_children():
                child.kill()
            # The main thread is inside of a C call and cannot unwind.
            os._exit(status)

    again = threading.Event()
    reader, writer = socket.socketpair()
    # set_wakeup_fd requires a descriptor that does not block.
    writer.setblocking(False)
    before = signal.signal(signal.SIGINT, notice)
    wakeup = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
    threading.Thread(target=watch, daemon=True).start()
    try:
        yield
    finally:
        # Restore before the socket is closed, or a signal would be written to a closed descriptor.
        signal.set_wakeup_fd(wakeup)
        signal.signal(signal.SIGINT, before)
        writer.close()
