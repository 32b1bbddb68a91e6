"""Whether OpenCL works in this process: after a fork it does not, and calls would wait for ever."""

from __future__ import annotations

import os

_used = _forked = False


def check_process() -> None:
    """Raise RuntimeError in a process that was forked after its parent had used OpenCL."""
    global _used
    if _forked:
        raise RuntimeError(
            "OpenCL was used before this process was forked, and does not work in it; start processes by "
            'multiprocessing.get_context("spawn"), or use OpenCL only in the children'
        )
    _used = True


def is_forked() -> bool:
    """Whether this process was forked after its parent had used OpenCL: what is left of that is not to be touched."""
    return _forked


def _after_fork() -> None:
    global _forked
    _forked = _forked or _used


if hasattr(os, "register_at_fork"):  # Windows has no forks
    os.register_at_fork(after_in_child=_after_fork)
