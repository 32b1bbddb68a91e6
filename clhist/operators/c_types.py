"""NumPy dtypes in OpenCL C: their names, their declarations and their literals.

Pure text: nothing here needs a device, so what a kernel will say can be tested anywhere.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Protocol

import numpy as np

from clhist.operators.halves import ELEMENT, declared, half_name, half_of, number_of

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

_BOOLEANS = (bool, np.bool_)
# A kernel's parameter cannot be of C's type bool, so that booleans are bytes.
_C_NAMES = {
    np.dtype(np.bool_): "uchar",
    np.dtype(np.int8): "char",
    np.dtype(np.uint8): "uchar",
    np.dtype(np.int16): "short",
    np.dtype(np.uint16): "ushort",
    np.dtype(np.int32): "int",
    np.dtype(np.uint32): "uint",
    np.dtype(np.int64): "long",
    np.dtype(np.uint64): "ulong",
    np.dtype(np.float32): "float",
    np.dtype(np.float64): "double",
    np.dtype(np.complex64): "float2",
    np.dtype(np.complex128): "double2",
}

# Types that users write in C. There "uchar" is a number, not a boolean.
_DTYPES = {name: dtype for dtype, name in _C_NAMES.items() if dtype.kind != "b"} | {
    "unsigned char": np.dtype(np.uint8),
    "unsigned short": np.dtype(np.uint16),
    "unsigned": np.dtype(np.uint32),
    "unsigned int": np.dtype(np.uint32),
    "unsigned long": np.dtype(np.uint64),
    **{f"{kind}{8 * size}_t": np.dtype(f"{kind[0]}{size}") for kind in ("int", "uint") for size in (1, 2, 4, 8)},
    "cfloat_t": np.dtype(np.complex64),
    "cdouble_t": np.dtype(np.complex128),
}

# Hints of errors, by the name of a dtype, or by the kind of dates and times.
_CONVERSIONS = {
    "object": "; make floats of integers beyond 64 bits by numpy.array(x, float)",
    "longdouble": "; convert it by .astype(numpy.float64)",
    "float128": "; convert it by .astype(numpy.float64)",
    "M": "; compute on .view(numpy.int64), in which NaT is the least number",
    "m": "; compute on .view(numpy.int64), in which NaT is the least number",
}

IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


def supported_dtype(dtype: DTypeLike, argument: str = "dtype") -> np.dtype:
    """Return `dtype` as a `numpy.dtype` that a bin can have.

    Parameters
    ----------
    dtype : dtype-like
        A boolean, an integer of 8 to 64 bits, float16 to float64, bfloat16 of ml_dtypes, complex64, complex128, or a
        structured dtype of these, but for half precision, laid out as C does it (``np.dtype([...], align=True)``).
    argument : str
        What to call it in an error.

    Raises
    ------
    TypeError
        If OpenCL C has no such type; the message names `argument`.
    """
    try:
        requested = np.dtype(dtype)
    except TypeError:
        raise TypeError(f"{argument}: expected a NumPy dtype, got {dtype!r}") from None
    if requested.names is not None:
        c_alignment(requested, argument)
        return requested
    native = requested.newbyteorder("=")
    if native not in _C_NAMES and not half_name(native):
        supported = ", ".join([*map(str, _C_NAMES), "float16", "bfloat16"])
        hint = _CONVERSIONS.get(native.name if native.kind not in "mM" else native.kind, "")
        raise TypeError(
            f"{argument}: OpenCL has no type for {requested}; expected one of {supported}, or a structured dtype{hint}"
        )
    return native


def c_name(dtype: np.dtype) -> str:
    """Return the OpenCL C name of a scalar dtype, such as ``"uint"``; complex numbers are two-vectors.

    Of half precision it is that of a number which has been read, a float: see `clhist.operators.halves`.
    """
    half = half_name(dtype)
    return f"clhist_{half}_t" if half else _C_NAMES[dtype]


def element_name(dtype: np.dtype) -> str:
    """Return the OpenCL C name of an element of an array: `c_name`, but of half precision that of its bits."""
    return ELEMENT if half_name(dtype) else _C_NAMES[dtype]


def dtype_of(c_type: str) -> np.dtype | None:
    """Return the scalar dtype that OpenCL C calls `c_type`, or None."""
    name = " ".join(c_type.split())
    return _DTYPES.get(name) or half_of(name)


def struct_of(fields: Mapping[str, np.dtype], argument: str = "dtype") -> np.dtype:
    """Return the structured dtype of `fields` that is laid out as C does it, complex numbers being two-vectors."""
    # C aligns each member, and pads a struct to a multiple of its widest alignment, so that arrays of it stay aligned.
    offsets, position, widest = [], 0, 1
    for name, dtype in fields.items():
        align = c_alignment(dtype, f"{argument}, field {name!r}")
        offsets.append(-(-position // align) * align)
        position, widest = offsets[-1] + dtype.itemsize, max(widest, align)
    size = -(-position // widest) * widest
    return np.dtype(
        {"names": list(fields), "formats": list(fields.values()), "offsets": offsets, "itemsize": size}, align=True
    )


def needs_fp64(dtype: np.dtype) -> bool:
    """Whether a kernel that holds `dtype` needs the device's double precision."""
    return any(scalar in (np.dtype(np.float64), np.dtype(np.complex128)) for scalar in scalars_of(dtype))


def scalars_of(dtype: np.dtype) -> Iterator[np.dtype]:
    """Yield the scalar dtypes that `dtype` consists of, in structs and arrays of whatever depth."""
    if dtype.subdtype is not None:
        yield from scalars_of(dtype.subdtype[0])
    elif dtype.fields is not None:
        for field in dtype.fields.values():
            yield from scalars_of(field[0])
    else:
        yield dtype


def assigned(dtype: np.dtype, to: str, source: str, depth: int = 0) -> list[str]:
    """Return the C statements that assign a value number by number, a variable `source` to the place `to`.

    Where clang inlines and Mesa 25.0.7 unrolls, a load behind the store of a whole struct has what was there before.
    """
    if dtype.fields:
        fields = [(field[0], f"{to}.{name}", f"{source}.{name}") for name, field in dtype.fields.items()]
        return [statement for field in fields for statement in assigned(*field, depth)]
    if dtype.shape:
        names = [f"k{depth + n}" for n in range(len(dtype.shape))]
        loops = " ".join(f"for (int {k} = 0; {k} < {size}; ++{k})" for k, size in zip(names, dtype.shape, strict=True))
        at = "".join(f"[{k}]" for k in names)
        inside = assigned(dtype.base, to + at, source + at, depth + len(names))
        return [f"{loops} {{ {' '.join(inside)} }}"]
    return [f"{to} = {source};"]


def declare(dtype: np.dtype, name: str) -> str:
    """Return C that makes `name` a type of `dtype`: a ``typedef`` of a scalar, or of a struct."""
    if dtype.names is None:
        return f"{declared(dtype)}typedef {c_name(dtype)} {name};"
    return f"typedef {_struct(dtype)} {name};"


def literal(value: object, dtype: np.dtype, name: str = "") -> str:
    """Return `value` as a C expression of exactly that value; `name` is the C type of a structured dtype.

    Floating-point numbers are written by their bits, so that infinities and NaN arrive as they are.
    """
    if dtype.names is not None:
        return f"(({name}){_initialiser(value, dtype)})"
    if dtype.kind == "c":
        part = np.dtype(f"f{dtype.itemsize // 2}")
        number = np.asarray(value, dtype)[()]
        return f"(({c_name(dtype)})({literal(number.real, part)}, {literal(number.imag, part)}))"
    dtype = number_of(dtype)
    number = np.asarray(value, dtype)[()]
    if dtype == np.float32:
        return f"as_float(0x{int(number.view(np.uint32)):08x}u)"
    if dtype == np.float64:
        return f"as_double(0x{int(number.view(np.uint64)):016x}ul)"
    if dtype == np.int64 and number == np.iinfo(np.int64).min:
        # C has no negative literals, and 2^63 does not fit before the minus is applied.
        return "(-0x7fffffffffffffffl - 1)"
    suffix = {"int64": "l", "uint64": "ul", "uint32": "u"}.get(dtype.name, "")
    return f"(({c_name(dtype)}){int(number)}{suffix})"


@lru_cache(maxsize=64)
def _values_of(dtype: np.dtype) -> range:
    """Return the values of an integer type; none of any other."""
    if dtype.kind not in "iu":
        return range(0)
    # Membership in a range takes constant time, also among 2^64 values.
    limits = np.iinfo(dtype)
    return range(int(limits.min), int(limits.max) + 1)


def same_value(value: object, dtype: np.dtype, argument: str) -> object:
    """Return `value` converted to `dtype`, refusing what does not fit.

    Raises
    ------
    ValueError
        If `dtype` cannot hold `value`, such as -1 for an unsigned integer or a tuple of another length for a struct.
    """
    # Two fast paths: most values have the type, or are Python's integers.
    if type(value) is dtype.type and dtype.names is None:
        return value
    if type(value) is int and value in _values_of(dtype):
        return dtype.type(value)
    wrong = f"{argument}: {value!r} does not fit {shown_dtype(dtype)}"
    try:
        # Overflow to infinity is accepted, so NumPy need not warn of it.
        with np.errstate(all="ignore"):
            converted = np.zeros((), dtype)
            if dtype.names is None:
                number = np.asarray(value)
                if number.shape != () or number.dtype.kind not in "biufc":
                    raise ValueError(f"{wrong}; expected one number")
                # NumPy drops the imaginary part with no more than a warning.
                if number.dtype.kind == "c" and dtype.kind != "c":
                    raise ValueError(wrong)
                converted[()] = number
            else:
                converted[()] = value
            # A float may round, or overflow; an integer must stay what it is.
            fits = dtype.kind in "fcV" or converted[()] == number[()]
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(str(error) if str(error).startswith(wrong) else wrong) from error
    if not fits:
        raise ValueError(wrong)
    return converted[()]


def _struct(dtype: np.dtype) -> str:
    members = []
    for name, (field, *_) in (dtype.fields or {}).items():
        base, shape = field.subdtype if field.subdtype is not None else (field, ())
        kind = c_name(base) if base.names is None else _struct(base)
        members.append(f"{kind} {name}{''.join(f'[{n}]' for n in shape)};")
    return "struct { " + " ".join(members) + " }"


def _initialiser(value: object, dtype: np.dtype) -> str:
    if dtype.subdtype is not None:
        base, _ = dtype.subdtype
        return "{" + ", ".join(_initialiser(v, base) for v in np.asarray(value, base).ravel()) + "}"
    if dtype.names is None:
        return literal(value, dtype)
    record = np.asarray(value, dtype)[()]
    return "{" + ", ".join(_initialiser(record[name], dtype[name]) for name in dtype.names) + "}"


def c_alignment(dtype: np.dtype, argument: str = "dtype") -> int:
    """Return the alignment that C gives `dtype`, refusing a layout that C would not choose."""
    if dtype.subdtype is not None:
        return c_alignment(dtype.subdtype[0], argument)
    if dtype.names is None:
        native = supported_dtype(dtype, argument)
        # A struct is one type in memory and in registers; half precision has two.
        if half_name(native):
            raise TypeError(f"{argument}: expected no {native} in a struct; float32 can hold its numbers")
        if native != dtype:
            raise TypeError(f"{argument}: {dtype} is of the other byte order")
        return native.itemsize
    position, widest = 0, 1
    for name, (field, offset, *_) in (dtype.fields or {}).items():
        if not IDENTIFIER.match(name):
            raise TypeError(f"{argument}: field name {name!r} of {shown_dtype(dtype)} is not a C identifier")
        align = c_alignment(field, f"{argument}, field {name!r}")
        position = -(-position // align) * align
        if offset != position:
            raise TypeError(
                f"{argument}: field {name!r} of {shown_dtype(dtype)} lies at byte {offset} where C puts it at "
                f"{position}; make it with np.dtype([...], align=True)"
            )
        position += field.itemsize
        widest = max(widest, align)
    size = -(-position // widest) * widest
    if dtype.itemsize != size:
        raise TypeError(
            f"{argument}: {shown_dtype(dtype)} has {dtype.itemsize} bytes where C gives it {size}; "
            "make it with np.dtype([...], align=True)"
        )
    return widest


def native(dtype: np.dtype) -> np.dtype:
    """Return `dtype` in the byte order of the host."""
    return dtype.newbyteorder("=") if dtype.names is None else dtype


def shown_dtype(dtype: np.dtype) -> str:
    """Return a dtype for people: of a struct, the names and types of its first fields, without its layout."""
    if dtype.names is None:
        return str(dtype)
    fields = [f"{name} {dtype[name].base if dtype[name].base.names is None else 'struct'}" for name in dtype.names]
    return f"({', '.join([*fields[:_MOST_FIELDS], *['...'] * (len(fields) > _MOST_FIELDS)])})"


_MOST_FIELDS = 8  # that a message lists


def without_comments(code: str) -> str:
    """Return C without comments; lines stay where they are, as errors of compilers have their numbers."""
    # Newlines stay, and a blank separates the words on both sides of a comment.
    return re.sub(r"//[^\n]*|/\*.*?\*/", lambda comment: " " + "\n" * comment[0].count("\n"), code, flags=re.DOTALL)


def shortened(dtype: np.dtype, code: str) -> str:
    """Return a dtype and C of it for people: of a struct the fields, of long C the beginning."""
    words = " ".join(code.split())
    return f"{shown_dtype(dtype)}: {words if len(words) <= 60 else f'{words[:57]}...'}"


def bytes_of(value: object, dtype: np.dtype) -> bytes:
    """Return the bytes of a value; the gaps of a struct, which NumPy leaves as they are, are 0."""
    array = np.zeros((), dtype)
    _copy_fields(array, np.asarray(value, dtype))
    return array.tobytes()


def _copy_fields(to: np.ndarray, source: np.ndarray) -> None:
    """Copy an array of the same dtype, but for what lies between the fields of structs."""
    if to.dtype.names is None:
        to[...] = source
    for name in to.dtype.names or ():
        _copy_fields(to[name], source[name])


def integer(name: str, value: object, least: int) -> int:
    """Return `value` as an int of at least `least`.

    Raises
    ------
    TypeError, ValueError
        If it is not an integer, or too small; the message calls it `name`.
    """
    try:
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise TypeError(f"{name}: expected an integer, got {value!r}") from None
    if number < least:
        raise ValueError(f"{name}: expected at least {least}, got {number}")
    return number


def check_booleans(**options: object) -> None:
    """Raise TypeError unless all options are booleans of Python or NumPy; the message names the first other one."""
    for name, value in options.items():
        if not isinstance(value, _BOOLEANS):
            raise TypeError(f"{name}: expected a bool, got {value!r:.60}")


class Declared(Protocol):
    """A scalar argument: its name and type."""

    @property
    def name(self) -> str: ...

    @property
    def dtype(self) -> np.dtype: ...


def scalar(argument: Declared, value: object) -> np.generic:
    """Return `value` as a scalar of the type that `argument` declares.

    Raises
    ------
    TypeError, ValueError
        If it is not a number, or does not fit; the argument is named.
    """
    # Repeated calls mostly pass NumPy scalars, which need no conversion.
    dtype = argument.dtype
    if type(value) is dtype.type and dtype.names is None:
        return value  # type: ignore[return-value]
    # So do small integers of Python, which all types of integers have.
    if type(value) is int and 0 <= value < 128 * 256 ** (dtype.itemsize - 1) and dtype.kind in "iu":
        return dtype.type(value)
    if not isinstance(value, int | float | complex | np.generic) and dtype.names is None:
        raise TypeError(f"{argument.name}: expected a scalar of {dtype}, got {type(value).__name__}")
    if isinstance(value, np.void) and value.dtype.names != dtype.names:  # NumPy would go by their order
        raise TypeError(
            f"{argument.name}: expected a scalar of {shown_dtype(dtype)}, got one of {shown_dtype(value.dtype)}"
        )
    return same_value(value, dtype, argument.name)  # type: ignore[return-value]


def largest_of(dtype: np.dtype) -> object:
    """Return the value of a dtype that is no less than any other."""
    return np.inf if number_of(dtype).kind == "f" else True if dtype.kind == "b" else np.iinfo(dtype).max


def smallest_of(dtype: np.dtype) -> object:
    """Return the value of a dtype that is no more than any other."""
    return -np.inf if number_of(dtype).kind == "f" else False if dtype.kind == "b" else np.iinfo(dtype).min


def number_dtype(dtype: DTypeLike) -> np.dtype:
    """Return the dtype of a number, checked."""
    return dtype_of_kind(dtype, "biufc", "a number", "dtype")


def real_dtype(dtype: DTypeLike) -> np.dtype:
    """Return the dtype of an integer or a float, checked."""
    return dtype_of_kind(dtype, "biuf", "an integer or a float", "dtype")


def float_dtype(dtype: DTypeLike, argument: str = "dtype") -> np.dtype:
    """Return the dtype of a float, checked."""
    return dtype_of_kind(dtype, "f", "a float", argument)


def integer_dtype(dtype: DTypeLike) -> np.dtype:
    """Return the dtype of an integer, checked."""
    return dtype_of_kind(dtype, "biu", "an integer", "dtype")


def dtype_of_kind(dtype: DTypeLike, kinds: str, expected: str, argument: str) -> np.dtype:
    """Return a dtype of one of these kinds; raises TypeError that says what was expected."""
    supported = supported_dtype(dtype, argument)
    if number_of(supported).kind not in kinds:
        raise TypeError(f"{argument}: expected {expected}, got {shown_dtype(supported)}")
    return supported


def check_max_abs(max_abs: float | None, reproducible: bool) -> None:
    """Raise TypeError if `reproducible` is no bool, or if sums that are not so have a largest |value|."""
    check_booleans(reproducible=reproducible)
    if max_abs is not None and not reproducible:
        raise TypeError(f"max_abs: expected none, since the sums are not reproducible; got {max_abs!r}")
