"""The kernels that sort by digits: their parameters. Pure."""

from __future__ import annotations

from clhist.planning.feature import UINT, Parameter

EACH = 8
"""Keys of a tile for each work-item; below 16."""


def _buffers(*names: str) -> tuple[Parameter, ...]:
    return tuple(Parameter("__global", name, None) for name in names)


def _uints(*names: str) -> tuple[Parameter, ...]:
    return tuple(Parameter("const uint", name, UINT) for name in names)


PARAMETERS: dict[str, tuple[Parameter, ...]] = {
    "sort_tile": (*_buffers("keys", "values"), *_uints("size", "bits")),
    "count_digits": (*_buffers("keys"), *_uints("size", "share", "shift"), *_buffers("counts")),
    "scan_digits": (*_buffers("counts"), *_uints("groups")),
    "move_digits": (
        *(*_buffers("keys", "values"), *_uints("size", "share", "shift")),
        *_buffers("counts", "to_keys", "to_values"),
    ),
}
"""The parameters of each kernel of ``digits.mako``, in order."""
