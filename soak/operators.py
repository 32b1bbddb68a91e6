"""Operators drawn at random, each with a NumPy reference: all of it as text, for programs that stand alone.

A drawn operator is a plain value. Its text defines ``dtype``, ``operator``, ``draw(n)``, which draws values, and
``reference(bins, indices, values)``, which computes the histogram on the host without clhist.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from random import Random

import numpy as np

SIGNED, UNSIGNED = ("int8", "int16", "int32", "int64"), ("uint8", "uint16", "uint32", "uint64")
INTEGERS, FLOATS = SIGNED + UNSIGNED, ("float32", "float64")
REAL = INTEGERS + FLOATS
ANY = ("bool", *REAL, "complex64", "complex128")
UFUNCS = {
    "add": ANY,
    "multiply": ANY,
    **dict.fromkeys(("minimum", "maximum", "fmin", "fmax"), ("bool", *REAL)),
    **dict.fromkeys(("bitwise_and", "bitwise_or", "bitwise_xor"), ("bool", *INTEGERS)),
    **dict.fromkeys(("logical_and", "logical_or", "logical_xor"), ("bool", *REAL)),
}
EXPRESSIONS = {
    "add": "a + b",
    "multiply": "a * b",
    "minimum": "min(a, b)",
    "maximum": "max(a, b)",
    "bitwise_and": "a & b",
    "bitwise_or": "a | b",
    "bitwise_xor": "a ^ b",
}
PAIRS = ("argmin", "argmax", "first", "last")
CUSTOM = ("shifted sum", "sum and product", "gcd")
STRUCTS = ("largest struct", "smallest struct", "struct of operators")
SPREADS = ("variance", "standard_deviation")
READY = (*UFUNCS, "saturating_add", *PAIRS, "mean", *SPREADS, "count", "reproducible_add", "product", "any", "all")
KINDS = (*READY, "ufunc of a struct", "sum of squares", *CUSTOM, *STRUCTS)
_WEIGHTS = {"product": 3, "ufunc of a struct": 2, **dict.fromkeys(PAIRS, 3), **dict.fromkeys(STRUCTS, 6)}
_FOLDED = (*PAIRS, *CUSTOM, *STRUCTS[:2])  # element by element, in Python


@dataclass(frozen=True)
class DrawnOperator:
    """An operator as a plain value.

    Attributes
    ----------
    kind : str
        One of `KINDS`.
    types : tuple of str
        Its dtype; for a struct or a product that of each field, after an operator's name where fields have their own.
    number : int
        The maximum, ddof, bits or constant of kinds that have one.
    spelling : str
        "operator", or for one of `UFUNCS` also "ufunc" or "expression".
    """

    kind: str
    types: tuple[str, ...]
    number: int = 0
    spelling: str = "operator"

    @property
    def is_struct(self) -> bool:
        """Whether values have fields."""
        return self.kind in (*PAIRS, *STRUCTS, "product", "ufunc of a struct")

    @property
    def takes_dest(self) -> bool:
        """Whether bins may begin with values."""
        return self.kind != "count"

    @property
    def is_float_sum(self) -> bool:
        """Whether it can be reproducible."""
        return self.kind == "add" and self.types[0] in FLOATS

    @property
    def most(self) -> int:
        """How many elements and bins there may be together."""
        if self.kind in PAIRS:
            return min(20_000, int(np.iinfo(self.types[1]).max) - 1)
        return 20_000 if self.kind in (*_FOLDED, "sum of squares") else 10**9


def draw_operator(rng: Random, fp64: bool = True, kinds: tuple[str, ...] = KINDS) -> DrawnOperator:
    """Draw an operator of one of `kinds`."""
    kind = rng.choices(kinds, [_WEIGHTS.get(kind, 1) for kind in kinds])[0]
    types: tuple[str, ...]
    number, spelling = 0, "operator"

    def pick(names: tuple[str, ...]) -> str:
        return rng.choice([name for name in names if fp64 or name not in ("float64", "complex128")])

    if kind in UFUNCS:
        types = (pick(UFUNCS[kind]),)
        known = types[0] not in ("bool", "complex64", "complex128") or EXPRESSIONS.get(kind) == "a + b"
        known = known and not (types[0] in FLOATS and kind in ("minimum", "maximum")) and types[0] != "bool"
        spelling = rng.choice(["operator", "ufunc", *["expression"] * (known and kind in EXPRESSIONS)])
    elif kind in ("any", "all"):
        types = (pick(("bool", *REAL)),)
    elif kind == "saturating_add":
        types, number = (pick(REAL),), rng.choice([1, 40, 127])
    elif kind in PAIRS:
        types = (pick(REAL), rng.choice(INTEGERS))
    elif kind in ("mean", *SPREADS):
        types, number = (pick(FLOATS), pick(FLOATS)), rng.choice([0, 1]) if kind in SPREADS else 0
    elif kind == "count":
        types = (rng.choice(INTEGERS),)
    elif kind == "reproducible_add":
        types, number = (pick(FLOATS),), rng.choice([32, 64])
    elif kind == "sum of squares":
        types = (pick(FLOATS),)
    elif kind in CUSTOM:
        types, number = (rng.choice(UNSIGNED),), rng.randrange(1, 2**16)
    elif kind in STRUCTS[:2]:
        types = tuple(pick(REAL) for _ in range(rng.randint(1, 6)))
    else:  # fields with an operator each, or one for all
        each = [rng.choice(list(UFUNCS)) for _ in range(rng.randint(1, 5))]
        if kind == "ufunc of a struct":
            each = [rng.choice(["add", "maximum", "multiply"])] * len(each)
        fields = (*REAL, "complex64", "complex128") if kind == "product" else REAL
        allowed = {name: tuple(t for t in UFUNCS[name] if t in fields) for name in each}
        types = tuple(f"{name} {pick(allowed[name])}" for name in each)
    return DrawnOperator(kind, types, number, spelling)


def operator_text(op: DrawnOperator, special: bool, k: str = "") -> str:
    """Return the text that defines the operator, with names that end in `k`; `special` draws NaN and the like too."""
    lines = [f"dtype{k} = {_dtype(op)}", f"operator{k} = {_operator(op, k)}", "", f"def draw{k}(n):"]
    lines += [f"    {line}" for line in _draw(op, special, k)]
    lines += ["", f"def reference{k}(bins, indices, values):"]
    lines += [f"    {line}" for line in _reference(op, k)]
    return "\n".join(lines)


def tolerance(op: DrawnOperator) -> float:
    """Return by how much a result may be off, relatively and absolutely; 0 for exact ones."""
    if op.kind not in ("mean", *SPREADS):
        return 0
    found = 1e-2 if "float32" in op.types else 1e-9
    return math.sqrt(found) if op.kind == "standard_deviation" else found  # of a variance of 0


def _dtype(op: DrawnOperator) -> str:
    if not op.is_struct:
        return f'np.dtype("{op.types[0]}")'
    if op.kind == "product":  # which aligns complex numbers as C does
        return f"{_operator(op, '')}.dtype"
    names = ("value", "index") if op.kind in PAIRS else tuple(f"f{n}" for n in range(len(op.types)))
    fields = ", ".join(f'("{name}", "{t.split()[-1]}")' for name, t in zip(names, op.types, strict=True))
    return f"np.dtype([{fields}], align=True)"


def _operator(op: DrawnOperator, k: str) -> str:
    kind, types, dtype = op.kind, op.types, f"dtype{k}"
    if op.spelling == "ufunc":
        return f"np.{kind}"
    if op.spelling == "expression":
        return f'"{EXPRESSIONS[kind]}"'
    if kind == "saturating_add":
        return f"operators.saturating_add({dtype}, {op.number})"
    if kind in (*PAIRS, "mean"):
        return f'operators.{kind}("{types[0]}", "{types[1]}")'
    if kind in SPREADS:
        return f'operators.{kind}("{types[0]}", {op.number}, "{types[1]}")'
    if kind == "reproducible_add":
        return f"operators.reproducible_add({dtype}, max_abs=10, bits={op.number})"
    if kind == "ufunc of a struct":
        return f"operators.as_operator(np.{types[0].split()[0]}, {dtype})"
    if kind == "product":
        parts = (f'"f{n}": operators.{t.split()[0]}("{t.split()[1]}")' for n, t in enumerate(types))
        return f"operators.product({{{', '.join(parts)}}})"
    if kind == "sum of squares":
        sums = f'{{"sum": operators.add({dtype}), "squares": operators.add({dtype})}}'
        return f'operators.product({sums}, {dtype}, lift="(accumulator_t){{v, v * v}}", finish="a.squares + a.sum")'
    if kind in CUSTOM:
        return _custom(op, dtype)
    if kind in STRUCTS[:2]:
        sign = ">" if kind.startswith("largest") else "<"
        wins = _lexicographic(len(types), sign)
        return f'clhist.Operator({dtype}, "{wins} ? b : a", {_neutral(op)})'
    if kind == "struct of operators":
        parts = (_in_c(t, n) for n, t in enumerate(types))
        return f'clhist.Operator({dtype}, "(value_t){{{", ".join(parts)}}}", {_neutral(op)})'
    return f"operators.{kind}({dtype})"


def _custom(op: DrawnOperator, dtype: str) -> str:
    bits = 8 * np.dtype(op.types[0]).itemsize
    suffix = "ul" if bits == 64 else "u"
    if op.kind == "gcd":
        name = {8: "uchar", 16: "ushort", 32: "uint", 64: "ulong"}[bits]
        body = f"{name} gcd_{name}({name} a, {name} b) {{ while (b) {{ {name} t = a % b; a = b; b = t; }} return a; }}"
        return f'clhist.Operator({dtype}, "gcd_{name}(a, b)", 0, preamble="{body}")'
    if op.kind == "shifted sum":
        return f'clhist.Operator({dtype}, "a + b + {op.number}{suffix}", {-op.number % 2**bits})'
    return f'clhist.Operator({dtype}, "a + b + {op.number}{suffix} * a * b", 0)'


def _lexicographic(fields: int, sign: str) -> str:
    text = f"b.f{fields - 1} {sign} a.f{fields - 1}"
    for n in reversed(range(fields - 1)):
        text = f"b.f{n} {sign} a.f{n} || (b.f{n} == a.f{n} && ({text}))"
    return f"({text})"


def _in_c(field: str, n: int) -> str:
    """Return C of one field of a struct whose fields have an operator each."""
    (name, dtype), a, b = field.split(), f"a.f{n}", f"b.f{n}"
    if name.startswith("logical"):  # of numbers that are 0 or 1
        return f"({a} != 0) {EXPRESSIONS[name.replace('logical', 'bitwise')][2]} ({b} != 0)"
    if name in ("minimum", "maximum", "fmin", "fmax"):
        if dtype in FLOATS and name in ("minimum", "maximum"):
            return f"{a} != {a} || {a} {'<' if name == 'minimum' else '>'} {b} ? {a} : {b}"
        return f"{name if dtype in FLOATS else name.replace('fm', 'm')[:3]}({a}, {b})"
    return EXPRESSIONS[name].replace("a", a, 1).replace(" b", f" {b}", 1)


def _neutral(op: DrawnOperator) -> str:
    """Return the bin that gets nothing."""
    if op.kind in PAIRS:
        index = np.iinfo(op.types[1])
        value = _neutral_of("maximum" if op.kind == "argmax" else "minimum", op.types[0])
        value = value if op.kind.startswith("arg") else "0"
        return f"({value}, {index.min if op.kind == 'last' else index.max})"
    if op.kind in STRUCTS[:2]:
        name = "maximum" if op.kind.startswith("largest") else "minimum"
        return "(" + "".join(f"{_neutral_of(name, t)}, " for t in op.types) + ")"
    if op.is_struct:
        return "(" + "".join(f"{_neutral_of(*t.split())}, " for t in op.types) + ")"
    if op.kind in CUSTOM:
        return str(-op.number % 256 ** np.dtype(op.types[0]).itemsize if op.kind == "shifted sum" else 0)
    return _neutral_of({"any": "logical_or", "all": "logical_and"}.get(op.kind, op.kind), op.types[0])


def _neutral_of(name: str, dtype: str) -> str:
    if name in ("minimum", "maximum", "fmin", "fmax"):
        least = name in ("maximum", "fmax")
        if dtype in FLOATS:
            return "np.nan" if name[0] == "f" else "-np.inf" if least else "np.inf"
        if dtype == "bool":
            return str(not least)
        return str(np.iinfo(dtype).min if least else np.iinfo(dtype).max)
    if name == "bitwise_and":
        return "True" if dtype == "bool" else "-1" if dtype in SIGNED else str(np.iinfo(dtype).max)
    return "1" if name in ("multiply", "logical_and") else "0"


def _draw(op: DrawnOperator, special: bool, k: str) -> list[str]:
    kind, types = op.kind, op.types
    if kind in PAIRS:
        return [
            f"values = np.zeros(n, dtype{k})",
            *_column('values["value"]', "ties", types[0], special and kind.startswith("arg")),
            f'values["index"] = rng.permutation({min(2 * op.most, int(np.iinfo(types[1]).max) - 1)})[:n]',
            "return values",
        ]
    if op.is_struct:
        lines = [f"values = np.zeros(n, dtype{k})"]
        for n, t in enumerate(types):
            name = t.split()[0] if " " in t else "ties"
            bit = kind == "struct of operators" and name.startswith("logical")
            lines += _column(f'values["f{n}"]', "bit" if bit else name, t.split()[-1], special and name != "ties")
        return [*lines, "return values"]
    if kind == "count":
        return [f"return np.ones(n, dtype{k})"]
    known = kind in UFUNCS or kind in ("any", "all", "reproducible_add")
    style = "natural" if kind == "saturating_add" else "bits" if kind in CUSTOM else kind if kind in UFUNCS else "small"
    style = "ties" if kind in ("any", "all") else style
    lines = _column("values[...]", style, types[0], special and known and types[0] in FLOATS)
    return [f"values = np.zeros(n, dtype{k})", *lines, "return values"]


def _column(target: str, style: str, dtype: str, special: bool) -> list[str]:
    """Return lines that fill `target` with n random numbers."""
    lines = []
    if dtype == "bool":
        return [f"{target} = rng.random(n) < 0.3"]
    if style == "bit":
        return [f"{target} = rng.random(n) < 0.3"]
    if dtype in INTEGERS and style not in ("natural", "ties", "small") and not style.startswith("logical"):
        low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
        return [f'{target} = rng.integers({low}, {high}, n, "{dtype}", endpoint=True)']
    if style == "multiply":
        lines.append(f"{target} = rng.choice({[1, -1, 1j, -1j] if 'complex' in dtype else [1, -1]}, n)")
        # Not a scalar, which stands for each element: a product that overflows is inf, 0 or NaN, by the order.
        lines.append(f"{target.removesuffix('[...]')}[rng.integers(0, max(n, 1), 20 * (n > 1))] *= 2")
    elif "complex" in dtype:
        lines.append(f"{target} = rng.integers(-9, 10, n) + 1j * rng.integers(-9, 10, n)")
    elif style == "natural":
        lines.append(f"{target} = rng.integers(0, 10, n)")
    elif style.startswith("logical") or style in ("ties", "small", "add") or dtype not in FLOATS:
        low = 0 if dtype in UNSIGNED else -9
        odds = " * (rng.random(n) < 0.3)" if style.startswith("logical") else ""
        lines.append(f"{target} = rng.integers({low}, 10, n){odds}")
    else:
        lines.append(f"{target} = rng.normal(size=n) * 10.0 ** rng.integers(-3, 4, n)")
    if special and dtype in FLOATS:
        name = target.removesuffix("[...]")
        lines.append(f"{name}[rng.integers(0, max(n, 1), 3 * (n > 0))] = [np.nan, np.inf, -0.0][: 3 * (n > 0)]")
    return lines


def _reference(op: DrawnOperator, k: str) -> list[str]:
    kind, dtype = op.kind, f"dtype{k}"
    if kind in _FOLDED:
        combine = {
            "shifted sum": f"(a + b + {op.number}) % {256 ** np.dtype(op.types[0]).itemsize}",
            "sum and product": f"(a + b + {op.number} * a * b) % {256 ** np.dtype(op.types[0]).itemsize}",
            "gcd": "math.gcd(a, b)",
            "largest struct": "max(a, b)",
            "smallest struct": "min(a, b)",
            "argmin": "min(a, b, key=lambda p: (p[0] == p[0], p[0] if p[0] == p[0] else 0, p[1]))",
            "argmax": "max(a, b, key=lambda p: (p[0] != p[0], p[0] if p[0] == p[0] else 0, -p[1]))",
            "first": "min(a, b, key=lambda p: (p[1], p[0] == 0))",  # a bin that got none may hold the index of a pair
            "last": "max(a, b, key=lambda p: (p[1], p[0] != 0))",
        }[kind]
        return [
            f"held = [{_neutral(op)}] * bins",
            "for k, b in zip(indices.tolist(), values.tolist()):",
            "    if 0 <= k < bins:",
            "        a = held[k]",
            f"        held[k] = {combine}",
            f"return np.array(held, {dtype})",
        ]
    lines = ["inside = (indices >= 0) & (indices < bins)", "at, values = indices[inside].astype(int), values[inside]"]
    if kind in ("mean", *SPREADS):
        lines += [
            "number, total = np.bincount(at, minlength=bins), np.bincount(at, values.astype(float), bins)",
            "squares = np.bincount(at, values.astype(float) ** 2, bins)",
        ]
        found = "total / number"
        if kind in SPREADS:
            spread = f"(squares - total**2 / number) / (number - {op.number})"
            found = f"np.where(number > {op.number}, {spread}, np.nan)"
        if kind == "standard_deviation":
            found = f"np.sqrt(np.maximum({found}, 0))"
        return [*lines, f"return ({found}).astype({dtype})"]
    if kind == "saturating_add":
        total = f"np.minimum(np.bincount(at, values.astype(float), bins), {op.number})"
        return [*lines, f"return {total}.astype({dtype})"]
    if kind == "sum of squares":
        total = "np.bincount(at, values.astype(float) ** 2 + values, bins)"
        return [*lines, f"return {total}.astype({dtype})"]
    lines.append(f"expected = np.array([{_neutral(op)}] * bins, {dtype})")
    if op.is_struct:
        for n, t in enumerate(op.types):
            lines += _at(t.split()[0], f'expected["f{n}"]', f'values["f{n}"]')
    else:
        lines += _at(kind, "expected", "values")
    return [*lines, "return expected"]


def _at(name: str, target: str, values: str) -> list[str]:
    name = {"any": "logical_or", "all": "logical_and", "count": "add", "reproducible_add": "add"}.get(name, name)
    if not name.startswith("logical"):
        return [f"np.{name}.at({target}, at, {values})"]
    return [f"held = {target} != 0", f"np.{name}.at(held, at, {values} != 0)", f"{target}[...] = held"]
