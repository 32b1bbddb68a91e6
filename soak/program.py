"""The program of a random call: it makes the data, computes what is expected, calls clhist and compares.

It needs NumPy, PyOpenCL and clhist's public functions alone. The soak runs the same text that it prints.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from soak.calls import Setting
from soak.operators import PAIRS, operator_text, tolerance

IMPORTS = """\
import dataclasses
import math

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array

import clhist
from clhist import operators

queue = clhist.default_queue()
"""

_BINS = {
    "uniform": "rng.integers(0, H, N)",
    "uniform, some outside": "rng.integers(-2, H + 2, N)",
    "all in one": "np.full(N, H // 2)",
    "all in the last": "np.full(N, H - 1)",
    "half in one": "np.where(rng.random(N) < 0.5, H // 2, rng.integers(0, H, N))",
    "one of two": "(np.arange(N) % 2 * (H - 1))",
    "sorted": "np.sort(rng.integers(0, H, N))",
    "reversed": "np.sort(rng.integers(0, H, N))[::-1]",
    "skewed": "np.minimum(rng.zipf(1.3, N) - 1, 10**6)",
    "all outside": "np.where(rng.random(N) < 0.5, -1, H)",
    "anything": "rng.integers(-2**63, 2**63 - 1, N)",
}
_GIVEN = {
    "plain": "x",
    "view": "np.pad(x, [(3, 0)] + [(0, 0)] * (x.ndim - 1))[3:]",  # np.concatenate would lay out structs again
    "strided": "np.repeat(x, 2, axis=0)[::2]",
    "byte-swapped": "x if x.dtype.names else x.astype(x.dtype.newbyteorder())",
    "device": "cl_array.to_device(queue, x)",
    "device view": "cl_array.to_device(queue, np.pad(x, [(3, 0)] + [(0, 0)] * (x.ndim - 1)))[3:]",
}
_NARROW = {
    "int32": "int8", "int64": "int16", "uint64": "uint8", "float64": "float32", "complex64": "int16",
    "complex128": "complex64",
}  # fmt: skip
_CHECK = """\
def check(found, expected):
    found = found.get() if isinstance(found, cl_array.Array) else found
    assert (found.shape, found.dtype) == (expected.shape, expected.dtype), (found.shape, found.dtype)
    for name in found.dtype.names or [...]:
        {compare}
"""


@dataclass(frozen=True)
class Program:
    """The text of a call in three parts: what makes the data, the call alone, and the comparison."""

    prepare: str
    call: str
    check: str

    def __str__(self) -> str:
        return "\n".join((IMPORTS, self.prepare, self.call, self.check))


def program(setting: Setting) -> Program:
    """Return the program of a setting."""
    return _WRITERS[setting.form](setting)


def _reduce(at: Setting) -> Program:
    op = at.operators[0]
    prepare = [*_head(at), *_data(at), *_expected(at)]
    shape = {"vectors": "(H, {})", "rows": "({}, H)", "ragged": "({}, H)"}.get(at.layout, "H").format(at.count)
    prepare += _dest_and_out(at, shape)
    if at.layout == "rows":
        prepare.append(f"indices = indices.reshape({at.count}, -1)")
        if at.values in ("array", "narrow"):
            prepare.append(f"values = values.reshape({at.count}, -1)")
        elif at.values == "positions":
            prepare.append(f"given_values = given_values.reshape({at.count}, -1)")
    values = "given_values" if at.values in ("fields", "positions", "scalar") else "values"
    if at.values == "fields" and at.layout == "rows":
        prepare.append(f"given_values = tuple(field.reshape({at.count}, -1) for field in given_values)")
    prepare += _arrays(at, "indices")
    if at.values == "fields":
        prepare.append("given_values = tuple(given(field) for field in given_values)")
    elif at.values != "scalar":
        prepare += _arrays(at, values)
    options = _options(at, {"batched": True} if at.layout == "rows" else {})
    if at.layout == "ragged":
        options = ["offsets=offsets", *options]
    dest = "dest" if at.dest else shape
    ufunc_of_values = op.spelling != "operator" and not at.dest
    assert not (ufunc_of_values and at.values == "narrow")
    call = f"found = clhist.reduce_by_index({dest}, operator, indices, {values}{''.join(f', {o}' for o in options)})"
    return _program(at, prepare, _repeated(at, call))


def _kernel(at: Setting) -> Program:
    prepare, bins = [*_head(at), *_data(at), *_expected(at)], "H"
    shape = "H" if at.layout == "flat" else f"({at.count}, H)"
    if at.layout == "shape":
        prepare.append(f"dest, expected = dest.reshape({at.count}, -1), expected.reshape({at.count}, -1)")
        bins = shape = f"({at.count}, H // {at.count})"
    prepare += [*_dest_and_out(at, shape), *_arrays(at, "indices"), *_arrays(at, "values")]
    code = "EMIT(indices[i], values[i])"
    if at.emits > 1:
        code = f"for (int k = 0; k < {at.emits}; ++k) EMIT((long)indices[i] + k, values[i])"
    prepare += [*_profile(at), *_pair_kernel(at, "operator", code, at.emits)]
    where = {"rows": [f"num_histograms={at.count}"], "ragged": ["offsets=offsets"]}.get(at.layout, [])
    options = ", ".join([f"num_bins={bins}", *where, *["dest=dest"] * at.dest, *_options(at)])
    return _program(at, prepare, _repeated(at, f"found = kernel(indices, values, {options})"))


def _several(at: Setting) -> Program:
    prepare = [*_head(at), f"indices = {_BINS[at.distribution]}.astype('{at.index}')"]
    types, emits, numbers = [], [], range(len(at.operators))
    names = [f"_f{k}" if at.mapped else f"{k}" for k in numbers]
    for k in numbers:
        prepare.append(f"values{k} = draw{k}(N)")
        given, more = f"indices.astype(np.int64) // {k + 1}", f"values{k}"
        if at.dest:
            prepare.append(f"dest{k} = draw{k}(H)")
            given, more = f"np.concatenate([np.arange(H), {given}])", f"np.concatenate([dest{k}, values{k}])"
            if at.operators[k].kind in ("first", "last"):  # no index twice
                prepare[-2:] = [f"values{k} = draw{k}(N + H)", f"values{k}, dest{k} = values{k}[:N], values{k}[N:]"]
        prepare.append(f"expected{k} = reference{k}(H, {given}, {more})")
        types.append(f"const value{names[k]}_t *values{k}")
        emits.append(f"EMIT{names[k]}(own_floor((long)indices[i], {k + 1}), values{k}[i]);")
    for name in ("indices", *(f"values{k}" for k in numbers), *(f"dest{k}" for k in numbers if at.dest)):
        prepare += _arrays(at, name)
    each = [f'"f{k}": operator{k}' if at.mapped else f"operator{k}" for k in numbers]
    listed = f"{{{', '.join(each)}}}" if at.mapped else f"[{', '.join(each)}]"
    floor = "long own_floor(long a, long b) { return a / b - (a % b < 0); }"
    prepare += [
        *_profile(at),
        "kernel = clhist.HistogramKernel(",
        f'    queue.context, {listed}, profile=profile, preamble="{floor}",',
        f'    arguments="const {_c(at.index)} *indices, {", ".join(types)}",',
        f'    map="{" ".join(emits)}")',
    ]
    given = ", ".join(f"values{k}" for k in numbers)
    dests = [f"dest={listed.replace('operator', 'dest')}"] * at.dest
    options = ", ".join(["num_bins=H", *dests, *_options(at)])
    call = _repeated(at, f"found = kernel(indices, {given}, {options})")
    check = "\n".join(f"check(found[{repr(f'f{k}') if at.mapped else k}], expected{k})" for k in numbers)
    return Program("\n".join([*prepare, *_checking(at)]), call, check)


def _stream(at: Setting) -> Program:
    prepare = [*_head(at), *_data(at), *_expected(at), *_dest_and_out(at, "H")]
    maker = "clhist.Accumulator(operator, H"
    if at.mapped:
        prepare += [*_profile(at), *_pair_kernel(at, "operator", "EMIT(indices[i], values[i])", 1)]
        maker = "clhist.Accumulator(kernel, H"
    elif at.operators[0].spelling != "operator":
        maker += ", dtype=dtype"
    options = [f"queue=queue, chunk_bytes={at.chunk_bytes}", *(f"{name}={value!r}" for name, value in at.choices)]
    maker = ", ".join([maker, *options])
    part = "given(indices[a:b])"
    value = {
        "fields": "tuple(given(field[a:b]) for field in given_values)",
        "positions": "given(given_values[a:b])",
        "scalar": "given_values",
    }.get(at.values, "given(values[a:b])")
    cuts = f"cuts = np.linspace(0, N, {at.chunks} + 1).astype(int).tolist()"
    call = [cuts, f"stream = {maker}{', dest=dest' * at.dest})"]
    if at.merged:
        call += [
            f"other = {maker})",
            "for n, (a, b) in enumerate(zip(cuts, cuts[1:])):",
            f"    (stream, other)[n % 2].add({part}, {value})",
            f"stream.merge(other{'.partial()' * (at.seed % 2)})",
        ]
    elif at.seed % 3:
        call += ["for a, b in zip(cuts, cuts[1:]):", f"    stream.add({part}, {value})"]
    else:
        call.append(f"stream.extend(({part}, {value}) for a, b in zip(cuts, cuts[1:]))")
    return _program(at, prepare, "\n".join([*call, "found = stream.result()"]))


def _bincount(at: Setting) -> Program:
    (_, least) = at.choices[0]
    low, high = "0", f"min(H, np.iinfo('{at.index}').max)"
    prepare = [*_head(at), f"indices = np.clip({_BINS[at.distribution]}, {low}, {high}).astype('{at.index}')"]
    weights = reproducible = ""
    if at.values:
        reproducible = f", reproducible={bool(at.reproducible)}"
        prepare.append(f"values = rng.integers(0, 10, N).astype('{at.values}')")
        if at.special:
            prepare.append("values[N // 2 :][:2] = [np.nan, np.inf][: min(2, N - N // 2)]")
        weights = ", values"
    prepare.append(f"expected = np.bincount(indices{weights}, minlength={least})")
    prepare += [*_arrays(at, "indices"), *(_arrays(at, "values") if at.values else [])]
    call = f"found = clhist.bincount(indices{weights}, minlength={least}, queue=queue{reproducible})"
    return _program(at, prepare, call)


_WRITERS = {"reduce": _reduce, "kernel": _kernel, "several": _several, "stream": _stream, "bincount": _bincount}


def _head(at: Setting) -> list[str]:
    suffixes = [str(k) if at.form == "several" else "" for k in range(len(at.operators))]
    texts = [operator_text(op, at.special, k) for op, k in zip(at.operators, suffixes, strict=True)]
    if at.arrays == "read-only":
        given = "def given(x):\n    x = x.copy()\n    x.flags.writeable = False\n    return x"
    else:
        given = f"def given(x):\n    return {_GIVEN[at.arrays]}"
    bins = f"{at.count} * {at.bins}" if at.layout == "shape" else at.bins
    numbers = [f"rng = np.random.default_rng({at.seed})", f"N, H = {at.size}, {bins}"]
    return ['np.seterr(all="ignore")', *numbers, "", *texts, "", given, ""]


def _data(at: Setting) -> list[str]:
    """Return lines that draw indices and values, and dest along with them."""
    op, lines = at.operators[0], [f"indices = {_BINS[at.distribution]}.astype('{at.index}')"]
    if at.layout == "ragged":
        lines.append(f"offsets = np.sort(rng.integers(0, N + 1, {at.count + 1}))")
    rows = {"vectors": f"H * {at.count}", "rows": f"{at.count} * H", "ragged": f"{at.count} * H"}.get(at.layout, "H")
    each = f"N * {at.count}" if at.layout == "vectors" else "N"
    lines += [f"drawn = draw({each} + {rows})", f"values, dest = drawn[: {each}], drawn[{each} :]"]
    if at.values == "scalar":
        lines.append("given_values = draw(1)[0]")
        lines.append("values = np.full(N, given_values, dtype)")
    elif at.values == "fields":
        lines.append("given_values = tuple(values[name].copy() for name in dtype.names)")
        if op.kind not in PAIRS and at.seed % 2:
            lines += _narrower([t.split()[-1] for t in op.types])
    elif at.values == "positions":
        lines += ['given_values, values = values["value"].copy(), values.copy()', 'values["index"] = np.arange(N)']
        if at.dest and op.kind in ("first", "last"):
            lines.append(f'dest["index"] = np.arange(N, N + {rows})')
    elif at.values == "narrow":
        small = "int16" if op.types[0] == "int64" else "float32"
        lines.append(f"values = rng.integers(-9, 10, {each}).astype('{small}')")
    if at.layout == "vectors":
        lines.append(f"values, dest = values.reshape(N, {at.count}), dest.reshape(H, {at.count})")
        if at.values == "fields":
            lines.append(f"given_values = tuple(field.reshape(N, {at.count}) for field in given_values)")
    elif at.layout in ("rows", "ragged"):
        lines.append(f"dest = dest.reshape({at.count}, H)")
    return lines


def _narrower(types: list[str]) -> list[str]:
    """Return lines that make the fields narrower than those of the struct."""
    given = [f'values["f{n}"]{".real" * (t == "complex64")}.astype("{_NARROW.get(t, t)}")' for n, t in enumerate(types)]
    return [
        f"given_values = ({', '.join(given)},)",
        "for name, field in zip(dtype.names, given_values):",
        "    values[name] = field",
    ]


def _expected(at: Setting) -> list[str]:
    """Return lines that compute what is expected; `dest` counts as a value of each bin."""
    values = "values.astype(dtype)" if at.values == "narrow" else "values"
    if at.layout == "vectors":
        pairs = ("indices", f"{values}[:, k]", "dest[:, k]")
        each = f"np.stack([{_of(at, *pairs)} for k in range({at.count})], axis=1, dtype=dtype)"
    elif at.layout in ("flat", "shape"):
        each = _of(at, "indices", values, "dest")
        if at.emits > 1:
            shifted = f"np.concatenate([indices.astype(np.int64) + k for k in range({at.emits})])"
            each = _of(at, shifted, f"np.concatenate([{values}] * {at.emits})", "dest")
    else:
        lines = [f"offsets = np.linspace(0, N, {at.count} + 1).astype(int)"] if at.layout == "rows" else []
        each = _of(at, "indices[a:b]", f"{values}[a:b]", "dest[k]")
        return [
            *lines,
            f"expected = np.stack([{each} for k, (a, b) in enumerate(zip(offsets, offsets[1:]))], dtype=dtype)",
        ]
    return [f"expected = {each}"]


def _of(at: Setting, indices: str, values: str, dest: str) -> str:
    if not at.dest:
        return f"reference(H, {indices}, {values})"
    indices = f"np.concatenate([np.arange(H), {indices}.astype(np.int64)])"
    return f"reference(H, {indices}, np.concatenate([{dest}, {values}]))"


def _dest_and_out(at: Setting, shape: str) -> list[str]:
    lines = []
    if at.dest:
        written = at.out == "dest" and at.arrays in ("read-only", "strided", "byte-swapped")
        lines += [] if written else ["dest = given(dest)"] if at.arrays != "byte-swapped" else []
    if at.out == "new":
        make = f"np.empty({shape}, dtype)"
        lines.append(f"out = cl_array.to_device(queue, {make})" if "device" in at.arrays else f"out = {make}")
    return lines


def _arrays(at: Setting, name: str) -> list[str]:
    return [f"{name} = given({name})"] if at.arrays != "plain" else []


def _profile(at: Setting) -> list[str]:
    if not at.profile:
        return ["profile = None"]
    fields = dict(at.profile)
    local, without = fields.pop("local_memory"), fields.pop("without")
    given = "".join(f"{name}={value!r}, " for name, value in fields.items())
    features = f', features=own.features - {{"{without}"}}' if without else ""
    return [
        "own = clhist.device_profile(queue.device)",
        f"profile = dataclasses.replace(own, {given}local_memory=min({local}, own.local_memory), rates={{}}{features})",
    ]


def _pair_kernel(at: Setting, operator: str, code: str, emits: int) -> list[str]:
    more = f", emits={emits}" if emits > 1 and at.seed % 2 else ""
    profile = "profile" if at.form == "kernel" or at.profile else "None"
    return [
        f"kernel = clhist.HistogramKernel(queue.context, {operator}, profile={profile}{more},",
        f'    arguments="const {_c(at.index)} *indices, const value_t *values",',
        f'    map="{code}")',
    ]


def _c(dtype: str) -> str:
    name = dtype.removeprefix("u")
    return "u" * dtype.startswith("u") + {"int8": "char", "int16": "short", "int32": "int", "int64": "long"}[name]


def _options(at: Setting, more: dict[str, Any] | None = None) -> list[str]:
    out = {"new": ["out=out"], "dest": ["out=dest"], "": []}[at.out]
    options = {**(more or {}), **dict(at.choices)}
    if at.reproducible:
        options["reproducible"] = True
        if at.reproducible == "given":
            options["max_abs"] = 10
    return ["queue=queue", *out, *(f"{name}={value!r}" for name, value in options.items())]


def _repeated(at: Setting, call: str) -> str:
    return call if at.times == 1 else f"for _ in range({at.times}):\n    {call}"


def _checking(at: Setting) -> list[str]:
    off = max((tolerance(op) for op in at.operators), default=0)
    compare = "np.testing.assert_array_equal(found[name], expected[name])"
    if off:
        compare = f"np.testing.assert_allclose(found[name], expected[name], rtol={off}, atol={off})"
    return ["", _CHECK.format(compare=compare)]


def _program(at: Setting, prepare: list[str], call: str) -> Program:
    return Program("\n".join([*prepare, *_checking(at)]), call, "check(found, expected)")
