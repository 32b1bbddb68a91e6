"""Checks of tensors: errors name the argument, before anything is enqueued."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import torch
from torch.autograd import forward_ad

REDUCTIONS = ("sum", "mean", "min", "max", "prod")
SPREADS = ("var", "std")  # means of squares of deviations from the mean, and their roots
_NAMES = {"add": "sum", "mul": "prod", "multiply": "prod", "amin": "min", "amax": "max"}  # of torch and PyG
_INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
_FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
SUMMED = (*_FLOATS, *_INTEGERS)
CHECKED = (*_INTEGERS, *_FLOATS, torch.bool)


def check_tensor(name: str, value: Any, dtypes: tuple[Any, ...], like: torch.Tensor | None = None) -> None:
    """Raise TypeError or ValueError unless `value` is a tensor of one of `dtypes`, on the device of `like`."""
    if not isinstance(value, torch.Tensor):
        raise TypeError(f"{name}: expected a torch.Tensor, got {type(value).__name__}")
    if value.layout is not torch.strided:
        raise TypeError(f"{name}: expected a dense tensor, got one of {value.layout}; pass .to_dense()")
    if not (value.is_cuda or value.is_cpu or value.is_meta):
        raise TypeError(f"{name}: expected a tensor of the CPU or of CUDA, got one on {value.device}; pass .cpu()")
    if value.dtype not in dtypes:
        hint = "; pass .float()" if value.dtype is torch.bfloat16 and torch.float32 in dtypes else ""
        raise TypeError(f"{name}: expected one of {', '.join(map(str, dtypes))}, got {value.dtype}{hint}")
    # `Tensor.device` takes ten times as long as these.
    if like is not None and (value.get_device() != like.get_device() or value.is_meta != like.is_meta):
        raise ValueError(f"{name}: expected a tensor on {like.device} as the others, got one on {value.device}")


def check_values(name: str, value: Any, reduce: str) -> None:
    """Raise an exception unless `value` is a tensor of values that can be reduced, one dimension or more."""
    # Means and spreads of integers would be fractions; minima and maxima of booleans are booleans.
    dtypes = _FLOATS if reduce in ("mean", *SPREADS) else (*_FLOATS, *_INTEGERS)
    check_tensor(name, value, (*dtypes, torch.bool) if reduce in ("min", "max") else dtypes)
    if value.dim() == 0:
        raise ValueError(f"{name}: expected one dimension or more, got a tensor of none")
    check_no_tangent(name, value)


def check_integers(name: str, value: Any, like: torch.Tensor | None = None) -> None:
    """Raise an exception unless `value` is a tensor of integers of one dimension."""
    check_tensor(name, value, _INTEGERS, like)
    if value.dim() != 1:
        raise ValueError(f"{name}: expected one dimension, got shape {tuple(value.shape)}")


def check_dim(src: torch.Tensor, dim: Any) -> None:
    """Raise an exception unless `dim` is a dimension of `src`."""
    if isinstance(dim, bool) or not isinstance(dim, int):
        raise TypeError(f"dim: expected an int, got {dim!r}")
    if not -src.dim() <= dim < src.dim():
        raise ValueError(f"dim: expected a dimension of src, which has {src.dim()}, got {dim}")


def check_data(name: str, value: Any) -> None:
    """Raise an exception unless `value` is a tensor of numbers whose bins are searched, which have no gradient."""
    check_tensor(name, value, (*(dtype for dtype in _FLOATS if dtype is not torch.bfloat16), *_INTEGERS, torch.bool))
    check_no_gradient(name, value)


def check_weights(name: str, value: Any, like: torch.Tensor, shape: tuple[int, ...]) -> None:
    """Raise an exception unless `value` is a tensor of weights of `like`, of this shape."""
    check_tensor(name, value, (*_FLOATS, *_INTEGERS, torch.bool), like)
    if tuple(value.shape) != tuple(shape):
        raise ValueError(f"{name}: expected shape {tuple(shape)} as of input, got {tuple(value.shape)}")
    check_no_tangent(name, value)


def check_no_gradient(name: str, value: torch.Tensor) -> None:
    """Raise TypeError if a gradient would be lost."""
    if value.requires_grad and torch.is_grad_enabled():
        raise TypeError(
            f"{name}: expected a tensor without a gradient, since the bins of a histogram have none; pass .detach()"
        )


def check_no_tangent(name: str, value: torch.Tensor) -> None:
    """Raise TypeError for a derivative in forward mode, which PyTorch would drop without a word."""
    if torch.compiler.is_compiling() or forward_ad._current_level < 0:  # noqa: SLF001  # there is no other way to ask
        return
    if forward_ad.unpack_dual(value).tangent is not None:
        raise TypeError(f"{name}: expected a tensor without a derivative in forward mode, which is not defined here")


def check_size(name: str, value: Any) -> None:
    """Raise an exception unless `value` is a number of bins."""
    # `torch.compile` passes sizes as SymInt.
    if isinstance(value, bool) or not isinstance(value, int | torch.SymInt):
        raise TypeError(f"{name}: expected an int, got {value!r}")
    if value < 0:
        raise ValueError(f"{name}: expected at least 0, got {value}")


def check_empty(value: Any, dtype: torch.dtype) -> None:
    """Raise an exception unless `value` is a number that `dtype` has, or None."""
    # `type` and not isinstance: a bool is no number here.
    if value is None or (type(value) in (int, float) and dtype.is_floating_point):
        return
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"empty: expected a number, or None for the identity element, got {value!r}")
    least, greatest = (0, 1) if dtype is torch.bool else (torch.iinfo(dtype).min, torch.iinfo(dtype).max)
    if not least <= value <= greatest or value != int(value):
        raise ValueError(f"empty: expected a value of {dtype}, got {value!r}")


def reduction(reduce: Any) -> str:
    """Return one of `REDUCTIONS` or `SPREADS`, or raise ValueError."""
    name = _NAMES.get(reduce, reduce) if isinstance(reduce, str) else reduce
    if name not in (*REDUCTIONS, *SPREADS):
        raise ValueError(f"reduce: expected one of {', '.join((*REDUCTIONS, *SPREADS))}, got {reduce!r}")
    return str(name)


def reductions_of(reduce: Any) -> list[str]:
    """Return the names of one reduction or of several, or raise ValueError."""
    if not isinstance(reduce, list | tuple):
        return [reduction(reduce)]
    if not reduce:
        raise ValueError("reduce: expected one reduction or more, got an empty sequence")
    return [reduction(name) for name in reduce]


def reproducibility(reproducible: bool | None, dtype: torch.dtype, reduce: str = "sum") -> bool:
    """Return whether a result is to be the same in any order: what is asked, or what PyTorch is set to.

    Raises
    ------
    TypeError
        If `reproducible` is neither a bool nor None, or is True for products of floats.
    RuntimeError
        If PyTorch is set to refuse what is not deterministic, and this is not; if it is set to warn, it is warned.
    """
    if reproducible is not None and not isinstance(reproducible, (bool, np.bool_)):
        raise TypeError(f"reproducible: expected a bool or None, got {reproducible!r:.60}")
    # Integers wrap, so their sums are the same in any order.
    if not dtype.is_floating_point:
        return False
    if reduce != "prod":
        return torch.are_deterministic_algorithms_enabled() if reproducible is None else bool(reproducible)
    if reproducible:
        raise TypeError("reproducible: expected none of products of floats, which depend on the order of values")
    if reproducible is None and torch.are_deterministic_algorithms_enabled():
        message = (
            "reduce: products of floats have no deterministic implementation, and "
            "torch.use_deterministic_algorithms(True) is set; pass reproducible=False or set warn_only=True"
        )
        if not torch.is_deterministic_algorithms_warn_only_enabled():
            raise RuntimeError(message)
        warnings.warn(message, UserWarning, stacklevel=3)
    return False
