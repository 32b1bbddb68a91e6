"""Structures in GROMACS' .gro files: residues, atoms, positions and the periodic box.

The format has fixed columns (manual of GROMACS, "gro file format"): residue number, residue name, atom name and atom
number of 5 characters each, then positions and, if there are any, velocities, of n + 5 characters with n decimals (one
more for velocities). n is 3 unless the distance between the decimal points says otherwise.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from clhist.files.fields import float_of
from clhist.files.regular import open_regular

__all__ = ["Structure", "read_gro", "write_gro"]

Path = str | os.PathLike[str]

_NUMBERS_WRAP = 100_000  # residue and atom numbers have five digits and begin again at 0
_COORDINATES = 20  # the column where they begin
# Characters of a coordinate, more than the digits of a float64.
_WIDEST = 24


@dataclass(frozen=True, eq=False)
class Structure:
    """Atoms in a rectangular periodic box.

    Attributes
    ----------
    residue_numbers : int array, shape (n,)
        Of each atom, as a file has them: they need not be consecutive and begin again after 99 999.
    residues, atoms : str arrays, shape (n,)
        Names of at most five characters, such as "SOL" and "OW".
    positions : float64 array, shape (n, 3)
        nm; molecules may reach out of the box.
    box : float64 array, shape (3,)
        Edges of the box, nm.
    velocities : float64 array, shape (n, 3), optional
        nm/ps.
    title : str
        One line.
    """

    residue_numbers: npt.NDArray[np.int64]
    residues: npt.NDArray[np.str_]
    atoms: npt.NDArray[np.str_]
    positions: npt.NDArray[np.float64]
    box: npt.NDArray[np.float64]
    velocities: npt.NDArray[np.float64] | None = None
    title: str = ""

    @cached_property
    def molecule(self) -> npt.NDArray[np.int32]:
        """The residue of each atom, from 0, int32 of shape (n,); a new one begins where number or name change."""
        numbers, names = self.residue_numbers, self.residues
        begins = (numbers[1:] != numbers[:-1]) | (names[1:] != names[:-1])
        return np.concatenate([[0], np.cumsum(begins)]).astype(np.int32)


def read_gro(path: Path) -> Structure:
    """Read a .gro file of one frame.

    Parameters
    ----------
    path : str or path-like
        The file. Any number of decimals; velocities may be missing.

    Raises
    ------
    OSError
        The file cannot be read.
    ValueError
        It is malformed, has several frames or a triclinic box. The text names the file, the line and the reason.
    """
    try:
        with open_regular(path) as file:
            lines = file.read().split(b"\n")
        if lines[-1] == b"":
            lines.pop()
        return _parse(lines)
    except ValueError as error:
        raise ValueError(f"{os.fspath(path)}: {error}") from error


def write_gro(path: Path, structure: Structure, *, decimals: int = 3) -> None:
    """Write a .gro file that `read_gro` and GROMACS read.

    Parameters
    ----------
    path : str or path-like
        The file; overwritten if it exists.
    structure : Structure
        What to write.
    decimals : int
        Of positions in nm; velocities in nm/ps have one more. Other programs may expect 3.

    Raises
    ------
    ValueError
        A name or a number does not fit its column.
    """
    if decimals < 1:
        raise ValueError(f"decimals: expected at least 1, got {decimals}")
    width = decimals + 5
    columns = [(structure.positions, decimals)]
    if structure.velocities is not None:
        columns.append((structure.velocities, decimals + 1))
    numbers = [[f"{x:{width}.{digits}f}" for x in values.ravel()] for values, digits in columns]
    names = {*structure.residues.tolist(), *structure.atoms.tolist()}
    for text, limit in [*((name, 5) for name in names), *((text, width) for part in numbers for text in part)]:
        if len(text) > limit:
            raise ValueError(f"structure: expected at most {limit} characters, got {text!r}")
    lines = [structure.title.replace("\n", " "), f"{len(structure.atoms):5d}"]
    for n, (number, residue, atom) in enumerate(
        zip(structure.residue_numbers.tolist(), structure.residues, structure.atoms, strict=True)
    ):
        coordinates = "".join(text for part in numbers for text in part[3 * n : 3 * n + 3])
        lines.append(f"{number % _NUMBERS_WRAP:5d}{residue:<5}{atom:>5}{(n + 1) % _NUMBERS_WRAP:5d}{coordinates}")
    lines.append("".join(f"{edge:{decimals + 7}.{decimals + 2}f}" for edge in structure.box))
    with open(path, "w", encoding="utf-8", newline="\n") as file:
        file.write("\n".join(lines) + "\n")


def _refuse(line: int, expected: str, got: object) -> NoReturn:
    raise ValueError(f"line {line}: expected {expected}, got {got}")


def _text(line: bytes) -> str:
    """A line as an error quotes it."""
    return repr(line[:60].decode("utf-8", "replace").rstrip())


def _parse(lines: list[bytes]) -> Structure:
    if len(lines) < 2:
        _refuse(len(lines) + 1, "a title, the number of atoms, the atoms and the box", "the end of the file")
    try:
        # Python would read 3_00 as 300.
        n = int(lines[1]) if b"_" not in lines[1] else 0
    except ValueError:
        n = 0
    if n < 1:
        _refuse(2, "the number of atoms", _text(lines[1]))
    if len(lines) < n + 3:
        _refuse(len(lines) + 1, f"{n} lines of atoms and the box", "the end of the file")
    for number, line in enumerate(lines[n + 3 :], n + 4):
        if line.strip():
            _refuse(number, "the end of the file after the box (one frame)", _text(line))
    rows = _Rows(lines[2 : n + 2])
    return Structure(
        residue_numbers=rows.numbers(0, 5, np.int64, "a residue number"),
        residues=rows.names(5, 10),
        atoms=rows.names(10, 15),
        positions=rows.vectors(0, "a position in nm"),
        velocities=rows.vectors(3, "a velocity in nm/ps") if rows.has_velocities else None,
        box=_box(n + 3, lines[n + 2]),
        title=lines[0].decode("utf-8", "replace").strip(),
    )


def _box(number: int, line: bytes) -> npt.NDArray[np.float64]:
    try:
        values = np.array([float_of(word.decode()) for word in line.split()])
    except ValueError:
        values = np.empty(0)
    if len(values) not in (3, 9) or not np.isfinite(values).all() or (values[:3] <= 0).any():
        _refuse(number, "three positive edges of the box in nm", _text(line))
    if values[3:].any():
        _refuse(number, "a rectangular box", f"a triclinic one, {_text(line)}")
    return values[:3]


class _Rows:
    """The lines of atoms as a table of characters, cut into columns."""

    def __init__(self, lines: list[bytes]) -> None:
        self._lines = lines
        first = lines[0].rstrip()
        dots = [k for k, character in enumerate(first) if character == ord(".") and k >= _COORDINATES]
        self._width = dots[1] - dots[0] if len(dots) >= 3 else 0
        if not 2 <= self._width <= _WIDEST or dots[2] - dots[1] != self._width or dots[0] - _COORDINATES >= self._width:
            _refuse(3, "x, y and z in columns of one width, from column 21 on", _text(first))
        self.has_velocities = len(first) > _COORDINATES + 3 * self._width
        length = _COORDINATES + (6 if self.has_velocities else 3) * self._width
        self._characters = np.array(lines, dtype=f"S{length}").view("S1").reshape(len(lines), length)
        # A shifted line would still be cut into numbers, but into wrong ones.
        aligned = (self._characters[:, dots[:3]] == b".").all(axis=1)
        if not aligned.all():
            wrong = int(np.argmin(aligned))
            columns = ", ".join(str(k + 1) for k in dots[:3])
            _refuse(wrong + 3, f"decimal points in columns {columns}, as in line 3", _text(lines[wrong]))

    def names(self, begin: int, end: int) -> npt.NDArray[np.str_]:
        return np.char.strip(np.char.decode(self._column(begin, end), "latin-1"))

    def vectors(self, first: int, what: str) -> npt.NDArray[np.float64]:
        begins = [_COORDINATES + k * self._width for k in range(first, first + 3)]
        return np.stack([self.numbers(k, k + self._width, np.float64, what) for k in begins], axis=1)

    def numbers(self, begin: int, end: int, dtype: Any, what: str) -> npt.NDArray[Any]:
        column = self._column(begin, end)
        try:
            values = column.astype(dtype)
            if np.isfinite(values).all() and b"_" not in column.tobytes():
                return values
        except ValueError:
            pass
        for number, text in enumerate(column, 3):
            try:
                valid = b"_" not in text and np.isfinite(dtype(text))
            except ValueError:
                valid = False
            if not valid:
                _refuse(number, f"{what} in columns {begin + 1} to {end}", _text(text))
        raise AssertionError("one of them is wrong")

    def _column(self, begin: int, end: int) -> npt.NDArray[np.bytes_]:
        return np.ascontiguousarray(self._characters[:, begin:end]).view(f"S{end - begin}")[:, 0]
