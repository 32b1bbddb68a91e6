"""Conditions on columns as `--where` takes them: comparisons, arithmetic, and, or, not; as mathematics has them."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from clhist.cli.hist import exact

Array = npt.NDArray[Any]

_BINARY: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: partial(exact.combined, operator.add),
    ast.Sub: partial(exact.combined, operator.sub),
    ast.Mult: partial(exact.combined, operator.mul),
    ast.Div: exact.divided,
    ast.FloorDiv: partial(exact.combined, operator.floordiv),
    ast.Mod: partial(exact.combined, operator.mod),
    ast.Pow: partial(exact.combined, operator.pow),
    ast.BitAnd: partial(exact.bits, operator.and_),
    ast.BitOr: partial(exact.bits, operator.or_),
}
_COMPARED: dict[type, Callable[[Any, Any], Any]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}


def _is_not(value: Any) -> Any:
    return np.logical_not(exact.is_true(value))


def _in_floats(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: function(exact.as_float(value))


_UNARY: dict[type, Callable[[Any], Any]] = {
    ast.USub: exact.negated,
    ast.UAdd: lambda value: value,
    ast.Not: _is_not,
    ast.Invert: _is_not,
}
_FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "abs": exact.absolute,
    "sqrt": _in_floats(np.sqrt),
    "log": _in_floats(np.log),
    "exp": _in_floats(np.exp),
    "sin": _in_floats(np.sin),
    "cos": _in_floats(np.cos),
    "isnan": _in_floats(np.isnan),
    "isfinite": _in_floats(np.isfinite),
}
EXAMPLE = "pt > 20 and abs(eta) < 2.5"


class Condition:
    """A condition on the rows of a table.

    Raises
    ------
    ValueError
        If the text is none; it says what is wrong.

    Attributes
    ----------
    names : tuple of str
        Columns that it needs.
    """

    def __init__(self, text: str) -> None:
        try:
            self._tree = ast.parse(text.strip(), mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            raise ValueError(f"--where: expected a condition such as {EXAMPLE!r}, got {text!r}") from error
        # Functions are names in the tree, too, but no columns.
        functions = {id(node.func) for node in ast.walk(self._tree) if isinstance(node, ast.Call)}
        names = [n.id for n in ast.walk(self._tree) if isinstance(n, ast.Name) and id(n) not in functions]
        self.names = tuple(dict.fromkeys(names))
        self._text = text
        # Evaluated for no rows, so that a wrong expression is refused before any file is read.
        self._evaluated(dict.fromkeys(self.names, np.zeros(0, np.int64)))

    def __call__(self, columns: Mapping[str, Array]) -> Array:
        """Return which rows fulfil the condition.

        Raises
        ------
        ValueError
            If it cannot be evaluated for these columns; the text names the expression.
        """
        try:
            mask = self._evaluated(columns)
        except exact.DifferentRows as rows:
            # Rows with integers and rows with floats as results are evaluated separately.
            mask = np.empty(rows.in_floats.shape, bool)
            for part in (rows.in_floats, ~rows.in_floats):
                mask[part] = self({name: columns[name][part] for name in self.names})
        if mask.dtype != np.bool_:
            raise ValueError(f"--where: expected a comparison such as {EXAMPLE!r}, got {self._text!r}")
        return mask

    def _evaluated(self, columns: Mapping[str, Array]) -> Array:
        try:
            with np.errstate(all="ignore"):
                return np.asarray(_value(self._tree, columns))
        except ValueError as error:
            raise ValueError(f"--where: {error}") from error


def _value(node: ast.AST, columns: Mapping[str, Array]) -> Any:
    try:
        return _evaluated(node, columns)
    except OverflowError as error:
        raise ValueError(
            f"expected integers of at most 1,023 bits, got larger ones from {ast.unparse(node)!r}; "
            "with a decimal point, as in 10.0 ** n, numbers are computed in float64"
        ) from error
    except TypeError as error:
        raise ValueError(f"{error} in {ast.unparse(node)!r}, got floats") from error


def _evaluated(node: ast.AST, columns: Mapping[str, Array]) -> Any:
    def of(child: ast.AST) -> Any:
        return _value(child, columns)

    if isinstance(node, ast.Name):
        return columns[node.id]
    if isinstance(node, ast.Constant) and isinstance(node.value, bool | int | float):
        return node.value
    if isinstance(node, ast.BinOp) and type(node.op) in _BINARY:
        return _BINARY[type(node.op)](of(node.left), of(node.right))
    if isinstance(node, ast.UnaryOp) and type(node.op) in _UNARY:
        return _UNARY[type(node.op)](of(node.operand))
    if isinstance(node, ast.BoolOp):
        join = np.logical_and if isinstance(node.op, ast.And) else np.logical_or
        result = exact.is_true(of(node.values[0]))
        for operand in node.values[1:]:
            result = join(result, exact.is_true(of(operand)))
        return result
    if isinstance(node, ast.Compare) and all(type(op) in _COMPARED for op in node.ops):
        parts = [of(operand) for operand in (node.left, *node.comparators)]
        result = np.True_
        for compare, low, high in zip(node.ops, parts[:-1], parts[1:], strict=True):
            result = np.logical_and(result, exact.compared(_COMPARED[type(compare)], low, high))
        return result
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and len(node.args) == 1 and not node.keywords:
        if node.func.id not in _FUNCTIONS:
            raise ValueError(f"expected a function among {', '.join(_FUNCTIONS)}; got {node.func.id!r}")
        return _FUNCTIONS[node.func.id](of(node.args[0]))
    raise ValueError(f"expected numbers, columns, comparisons, and, or, not; got {ast.unparse(node)!r}")
